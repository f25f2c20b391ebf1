//! `tollgate replay`: what rules would have done with the requests of an access log.

mod line_format;
mod reading;
mod replay_command;
mod replay_report;
mod trial;

pub(crate) use self::replay_command::{ReplayArgs, run};
