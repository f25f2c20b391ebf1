//! `tollgate key hash`: the entries of keys in a list of hashes.

use std::io::Read as _;

use clap::Args;
use serde_json::json;
use tollgate_rules::Bindings;

use crate::{
    args::SecretArgs,
    report::{Failure, Report},
};

/// Which list and which keys.
#[derive(Args, Debug)]
pub(crate) struct HashArgs {
    /// The name of the list.
    #[arg(value_name = "LIST")]
    list: String,

    /// The key as the application writes it; as a line of a list, it may have an end.
    #[arg(value_name = "KEY")]
    key: Option<String>,

    #[command(flatten)]
    secret: SecretArgs,
}

pub(crate) fn hash(args: &HashArgs) -> Result<Report, Failure> {
    let secret = args.secret.secret()?;
    let mut read = args.key.clone().unwrap_or_default();
    if args.key.is_none() {
        let stdin = std::io::stdin().read_to_string(&mut read);
        stdin.map_err(|wrong| Failure::usage(format!("the keys cannot be read: {wrong}")))?;
    }
    let list = Bindings::hashed_list(&args.list, &secret);
    let entries = list.hashed_lines(&read).map_err(Failure::usage)?;
    let json = json!({ "list": args.list, "entries": entries });
    Ok(Report::new(entries.join("\n"), json, true))
}
