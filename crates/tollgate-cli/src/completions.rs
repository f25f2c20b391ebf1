//! Completions for shells, and manual pages.

use std::{fs, path::PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use serde_json::json;

use crate::{exit::Exit, failure::Failure, report::Report};

const EXAMPLES: &str = "\
Examples:
  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > ~/.zfunc/_tollgate
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  tollgate man | man -l -
  tollgate man --into /usr/local/share/man/man1";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: ShellName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellName {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

#[derive(Args, Debug)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// A folder for one page of each command.
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// Completions of this command line for a shell.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Report {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Elvish => Shell::Elvish,
        ShellName::Fish => Shell::Fish,
        ShellName::Powershell => Shell::PowerShell,
        ShellName::Zsh => Shell::Zsh,
    };
    let mut text = Vec::new();
    generate(shell, &mut command, "tollgate", &mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let json = json!({ "completions": text });
    Report::verbatim(text, json)
}

/// The page of the program, or one page for each command.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<Report, Failure> {
    let Some(folder) = &args.into else {
        let mut text = Vec::new();
        Man::new(command)
            .render(&mut text)
            .map_err(Failure::failed)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let json = json!({ "man": text });
        return Ok(Report::verbatim(text, json));
    };
    let cannot = |wrong| {
        Failure::failed(format!(
            "{} cannot be written: {wrong}; give a folder that you may write to",
            folder.display()
        ))
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(command, folder).map_err(cannot)?;
    let text = format!("written to {}", folder.display());
    let json = json!({ "folder": folder.display().to_string() });
    Ok(Report::new(text, json, Exit::Yes))
}
