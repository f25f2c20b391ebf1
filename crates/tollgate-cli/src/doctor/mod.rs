//! `tollgate doctor`: what is wrong with a Redis for this use. It looks for what costs users limits or data, and for nothing else.
//!
//! `doctor_command` asks each server, and hands what it says to the checks, which make findings of it.

mod access;
mod doctor_command;
mod finding;
mod namespace;
mod server_info;

pub(crate) use self::doctor_command::{DoctorArgs, run};
