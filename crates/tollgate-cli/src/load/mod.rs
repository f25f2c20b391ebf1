//! `tollgate load`: a burst of requests that shows which limit is in force.

mod load_command;
mod target;

pub(crate) use self::{load_command::run, target::LoadArgs};
