//! `tollgate doctor`: what is wrong with a Redis for this use. It looks for what costs users limits or data, and for nothing else.
//!
//! `examination` asks each server, and hands what it says to the checks, which make findings of it.

mod access;
mod clock;
mod doctor_command;
mod examination;
mod finding;
mod namespace;
mod server_info;
mod servers;

pub(crate) use self::doctor_command::{DoctorArgs, run};
