//! `tollgate key hash`: the entries of keys in a list of hashes.

use std::{io::Read as _, net::IpAddr};

use clap::{Args, builder::NonEmptyStringValueParser};
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
    #[arg(value_name = "LIST", value_parser = NonEmptyStringValueParser::new())]
    list: String,

    /// The key as the application writes it, and all of it: no line with an end, a comment or a network.
    #[arg(value_name = "KEY")]
    key: Option<String>,

    #[command(flatten)]
    secret: SecretArgs,
}

/// Clients by address are looked up as they are: a hash of one denies none.
fn is_network(key: &str) -> bool {
    let address = key.split('/').next();
    address.is_some_and(|it| it.parse::<IpAddr>().is_ok())
}

pub(crate) fn hash(args: &HashArgs) -> Result<Report, Failure> {
    let secret = args.secret.secret()?;
    let list = Bindings::hashed_list(&args.list, &secret);
    let entries = match &args.key {
        Some(key) if key.is_empty() || key.contains(" until ") || is_network(key) => {
            return Err(Failure::usage(
                "write a key; an address, a network, or a key with an end is a line of a list, which the standard input takes",
            ));
        }
        Some(key) => vec![list.hashed_key(key)],
        None => {
            let mut read = String::new();
            let stdin = std::io::stdin().read_to_string(&mut read);
            stdin.map_err(|wrong| Failure::usage(format!("the keys cannot be read: {wrong}")))?;
            list.hashed_lines(&read).map_err(Failure::usage)?
        }
    };
    let json = json!({ "list": args.list, "entries": entries });
    Ok(Report::new(entries.join("\n"), json, true))
}
