//! The program `tollgate`: checks and explains rate limits, and looks after those in Redis.
//!
//! Each command makes a [`Report`](report::Report): text for people, JSON for programs, and an exit code.

mod args;
mod doctor;
mod key;
mod ledger;
mod load;
mod replay;
mod report;
mod rule_args;
mod rules;
mod top;

use std::{
    env,
    error::Error as _,
    io::{self, Write as _},
    num::{IntErrorKind, ParseIntError},
    process::ExitCode,
};

use clap::{
    Args, CommandFactory as _, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};
use clap_complete::{Shell, generate};
use serde_json::json;
use tokio::runtime;

use crate::report::{EXIT_CODES, Exit, Failure, Report, json_text};

const COMPLETION_EXAMPLES: &str = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

/// Checks and explains rate limits, and looks after those in Redis.
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    max_term_width = 100,
    after_help = EXIT_CODES,
    after_long_help = EXIT_CODES
)]
struct Arguments {
    /// Prints JSON, for programs.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Rules in files, and those that services share through Redis.
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// What one client has left, and letting it start anew.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// What accounts have used of durable rules, line by line, and corrections.
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// What rules would have done with the requests of yesterday's log.
    Replay(replay::ReplayArgs),
    /// Which limit a server has: a load of requests, and what it denies.
    Load(load::LoadArgs),
    /// What is wrong with a Redis for this use, and what to do about it.
    Doctor(doctor::DoctorArgs),
    /// Which keys come most often: one look at a service.
    Top(top::TopArgs),
    /// Prints completions for a shell.
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completions(CompletionsArgs),
}

#[derive(Args, Debug)]
struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Runs a command, prints its report, and gives the exit code.
fn run(arguments: Arguments) -> Exit {
    let json = arguments.json;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(report(arguments)),
        Err(wrong) => Err(Failure::failed(format!("no runtime: {wrong}"))),
    };
    let (text, exit) = match report {
        Ok(report) => (report.printed(json), report.exit),
        Err(Failure { exit, message }) => {
            // An error while the error is written is dropped.
            let _ = writeln!(io::stderr(), "error: {}", report::lines(&message));
            let text = match json {
                true => json_text(&json!({ "error": message })),
                false => String::new(),
            };
            (text, exit)
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Who reads has seen enough: `tollgate … | head`.
        Err(wrong) if wrong.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "error: the standard output: {wrong}");
            Exit::Failed
        }
        _ => exit,
    }
}

async fn report(arguments: Arguments) -> Result<Report, Failure> {
    match arguments.command {
        Command::Rules(command) => rules::run(command).await,
        Command::Key(command) => key::run(command).await,
        Command::Ledger(command) => ledger::run(command, arguments.json).await,
        Command::Replay(args) => replay::run(&args),
        Command::Load(args) => load::run(&args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Top(args) => top::run(&args).await,
        Command::Completions(args) => {
            let (mut command, mut text) = (Arguments::command(), Vec::new());
            generate(args.shell, &mut command, "tollgate", &mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            let json = json!({ "completions": text });
            Ok(Report::verbatim(text, json))
        }
    }
}

fn is_no_number(wrong: &ParseIntError) -> bool {
    matches!(
        wrong.kind(),
        IntErrorKind::Empty | IntErrorKind::InvalidDigit
    )
}

/// What would be right, where a parser says only what is wrong.
fn right(wrong: &clap::Error) -> Option<&'static str> {
    match (wrong.source(), wrong.get(ContextKind::InvalidArg)) {
        (Some(it), _) if (it.downcast_ref()).is_some_and(is_no_number) => {
            Some("write a whole number")
        }
        (Some(it), _) if it.is::<jiff::Error>() => {
            Some("write a time with its zone, as 2026-12-04T18:00:00Z")
        }
        (None, Some(ContextValue::String(more)))
            if !more.starts_with('-') && env::args_os().any(|it| it == "override") =>
        {
            Some("a key of several parts is one argument, with tabs between them")
        }
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|mut wrong| {
        if let Some(right) = right(&wrong) {
            let right = ContextValue::StyledStrs(vec![right.into()]);
            wrong.insert(ContextKind::Suggested, right);
        }
        if wrong.use_stderr() && env::args_os().any(|it| it == "--json") {
            let message = wrong.to_string();
            let json = json_text(&json!({ "error": message.trim_start_matches("error: ") }));
            let _ = io::stdout().write_all(json.as_bytes());
        }
        wrong.exit()
    });
    run(arguments).into()
}
