//! The program `tollgate`: checks, explains and sizes rate limits, and looks after those in Redis.
//!
//! Each command makes a [`Report`](report::Report): text for people, JSON for programs, and an exit code.

mod arguments;
mod bound_names;
mod byte_text;
mod change_args;
mod completions;
mod doctor;
mod exit;
mod failure;
mod hints;
mod key;
mod load;
mod page;
mod printable;
mod redis_args;
mod replay;
mod report;
mod request_args;
mod rule_args;
mod rules;
mod run;
mod size;
mod table;
mod time_text;
mod top;
mod trust;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    run::run(arguments::Arguments::parse()).into()
}
