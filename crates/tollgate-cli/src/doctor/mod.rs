//! `tollgate doctor`: what is wrong with a Redis for this use.
//!
//! `examination` asks each server, and hands what it says to the checks, which make findings of it.

mod access;
mod cluster;
mod doctor_command;
mod examination;
mod finding;
mod memory;
mod namespace;
mod pace;
mod persistence;
mod place;
mod replication;
mod server;
mod version;

pub(crate) use self::{
    doctor_command::{DoctorArgs, run},
    place::{Access, Place, Places},
    server::{Server, numbers},
};
