//! `tollgate rules diff`: what differs between two documents.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::{
    bound_names::{BoundNames, SecretArgs},
    exit::Exit,
    failure::Failure,
    printable,
    report::Report,
    rule_args,
};

const EXAMPLES: &str = "\
Examples:
  tollgate rules diff limits.toml new/limits.toml
  git show main:limits.toml > /tmp/main.toml && tollgate rules diff /tmp/main.toml limits.toml

Exit code 1 if they differ. Clients with limits of their own are counted, and not named.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The document before: a file, or a folder of files.
    before: PathBuf,

    /// The document after.
    after: PathBuf,

    #[command(flatten)]
    bound: BoundNames,

    #[command(flatten)]
    secret: SecretArgs,
}

pub(crate) async fn run(args: &DiffArgs) -> Result<Report, Failure> {
    let bindings = args.bound.bindings(args.secret.find()?.as_ref())?;
    let before = rule_args::read(&args.before).await?;
    let after = rule_args::read(&args.after).await?;
    let changes = after.changes_from(&before, &bindings)?;
    let text = match changes.is_empty() {
        true => "no difference".to_owned(),
        false => {
            let lines = changes.iter().map(|change| printable::line(change, 1_000));
            lines.collect::<Vec<_>>().join("\n")
        }
    };
    let exit = Exit::of(changes.is_empty());
    Ok(Report::new(text, json!({ "changes": changes }), exit))
}
