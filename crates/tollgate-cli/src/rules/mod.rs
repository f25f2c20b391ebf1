//! `tollgate rules`: rules in files, and those that services share through Redis.

mod change;
mod check;
mod diff;
mod explain;
mod explained;
mod history;
mod import;
mod push;
mod rules_command;
mod show;

pub(crate) use self::{
    change::{ChangeArgs, ends, limit_of},
    explained::explained_json,
    rules_command::{RulesCommand, run},
    show::is_set,
};
