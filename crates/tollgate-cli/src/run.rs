//! One run of the program.

use std::io::{self, Write as _};

use serde_json::json;
use tokio::runtime;

use clap::CommandFactory as _;

use crate::{
    arguments::{Arguments, Command},
    completions, doctor,
    exit::Exit,
    failure::Failure,
    key, ledger, load, printable, replay,
    report::{Report, json_text},
    rules, top,
};

/// Runs a command, prints its report, and gives the exit code.
pub(crate) fn run(arguments: Arguments) -> Exit {
    let json = arguments.json;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(report(arguments)),
        Err(wrong) => Err(Failure::failed(format!("no runtime: {wrong}"))),
    };
    let (text, exit) = match report {
        Ok(report) => (report.printed(json), report.exit),
        Err(failure) => {
            // An error while the error is written is dropped.
            let _ = writeln!(
                io::stderr(),
                "error: {}",
                printable::lines(&failure.message)
            );
            let text = match json {
                true => json_text(&json!({ "error": failure.message })),
                false => String::new(),
            };
            (text, failure.exit)
        }
    };
    match print(&text) {
        Ok(()) => exit,
        // Who reads has seen enough: `tollgate … | head`.
        Err(wrong) if wrong.kind() == io::ErrorKind::BrokenPipe => exit,
        Err(_) => Exit::Failed,
    }
}

/// Writes to the standard output.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

async fn report(arguments: Arguments) -> Result<Report, Failure> {
    match arguments.command {
        Command::Rules(command) => rules::run(command).await,
        Command::Key(command) => key::run(command).await,
        Command::Ledger(command) => ledger::run(command, arguments.json).await,
        Command::Replay(args) => replay::run(&args).await,
        Command::Load(args) => load::run(&args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Top(args) => top::run(&args).await,
        Command::Completions(args) => Ok(completions::completions(&args, Arguments::command())),
    }
}
