//! Examples as they are run, over sockets and by what they print.

mod exports;
mod flag_source;
mod login;
mod overload;
mod polite_client;
#[path = "../process/mod.rs"]
mod process;
mod rules;
mod shared;
