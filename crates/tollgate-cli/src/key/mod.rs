//! `tollgate key`: what one client has left, and letting it start anew.

mod block;
mod check;
mod client_args;
mod credits;
mod find;
mod key_command;
mod reset;
mod states;
mod status;

pub(crate) use self::key_command::{KeyCommand, run};
