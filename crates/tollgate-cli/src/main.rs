//! The program `tollgate`: checks and explains rate limits, and looks after those in Redis.
//!
//! Each command makes a [`Report`](report::Report): text for people, JSON for programs, and an exit code.

mod change_args;
mod doctor;
mod failure;
mod key;
mod ledger;
mod load;
mod printable;
mod redis_args;
mod replay;
mod report;
mod request_args;
mod rule_args;
mod rules;
mod run;
mod table;
mod time_text;
mod top;
mod web;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    run::run(run::Arguments::parse()).into()
}
