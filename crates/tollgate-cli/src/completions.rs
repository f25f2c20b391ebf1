//! Completions for shells.

use clap::{Args, Command};
use clap_complete::{Shell, generate};
use serde_json::json;

use crate::report::Report;

const EXAMPLES: &str = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Completions of this command line for a shell.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Report {
    let mut text = Vec::new();
    generate(args.shell, &mut command, "tollgate", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let json = json!({ "completions": text });
    Report::verbatim(text, json)
}
