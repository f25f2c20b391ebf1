//! `tollgate key find` and `hash`: whose letters a log or the top keys show, and the hashes of keys.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;
use tollgate::Key;
use tollgate_redis::Partition;
use tollgate_rules::Bindings;

use crate::{
    args::SecretArgs,
    key::states::{is_asked, known_rules},
    report::{self, Failure, Report, Table},
    rule_args::StateArgs,
};

/// Whose letters, and among which clients.
#[derive(Args, Debug)]
pub(crate) struct FindArgs {
    /// The letters of top keys or of the log, or the first digits of a hash in the audit; the first four at least.
    prefix: String,

    /// Clients to look among, as overrides name them.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// A file with more of them, one in each line; `-` is the standard input. A client of a rule by several keys has its parts in one
    /// line, with tabs between them.
    #[arg(long, value_name = "FILE")]
    names_from: Option<PathBuf>,

    /// Only this rule; may be given several times.
    #[arg(long = "rule", value_name = "NAME")]
    only: Vec<String>,

    #[command(flatten)]
    states: StateArgs,
}

/// Which list and which keys.
#[derive(Args, Debug)]
pub(crate) struct HashArgs {
    /// The name of the list.
    #[arg(value_name = "LIST")]
    list: String,

    /// The key as the application writes it.
    #[arg(value_name = "KEY")]
    key: Option<String>,

    #[command(flatten)]
    secret: SecretArgs,
}

/// Shorter beginnings are of too many clients.
const SHORTEST: usize = 4;

pub(crate) async fn find(args: &FindArgs) -> Result<Report, Failure> {
    if args.prefix.len() < SHORTEST {
        return Err(Failure::usage(format!(
            "{:?} begins too many keys; give at least {SHORTEST} characters of the eight",
            args.prefix
        )));
    }
    let document = args.states.document().await?;
    known_rules(&document, &args.only)?;
    let mut names = args.names.clone();
    if let Some(path) = &args.names_from {
        names.extend(read(path)?.lines().map(str::to_owned));
    }
    names.retain(|name| !name.is_empty());
    if names.is_empty() {
        return Err(Failure::usage(
            "among which clients? Name them, or give a file with one in each line: --names-from clients.txt",
        ));
    }
    // Letters are the same by each partition.
    let (limiter, _store) = args.states.limiter(&document, Partition::One).await?;
    let letters = |rule: &str, key: &Key| {
        let check = limiter.check(rule, key).ok()?;
        Some(check.key().prefix().to_string())
    };
    let (mut table, mut found) = (Table::new("rule | key | client"), Vec::new());
    for rule in document.names().filter(|name| is_asked(&args.only, name)) {
        for name in &names {
            let parts: Vec<&str> = name.split('\t').collect();
            // Not every client is one of every rule.
            let Ok(explained) = document.explain_key(rule, &parts) else {
                continue;
            };
            let Some(key) = explained.key else { continue };
            let hash = explained.key_hash.map(|hash| format!("{hash:032x}"));
            let mut shown = [letters(rule, &key), hash].into_iter().flatten();
            if let Some(shown) = shown.find(|shown| shown.starts_with(&args.prefix)) {
                let name = parts.join(", ");
                table.row([rule.to_owned(), shown.clone(), report::line(&name, 80)]);
                found.push(json!({ "rule": rule, "key": shown, "client": parts }));
            }
        }
    }
    let text = match found.is_empty() {
        false => table.text(),
        true => format!(
            "none of {} clients; are the rules, the namespace and the secret the service's, and is its state in Redis? In memory each \
             process has letters of its own\n",
            names.len()
        ),
    };
    let are_any = !found.is_empty();
    Ok(Report::new(text, json!({ "found": found }), are_any))
}

fn read(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(|_| text),
        false => std::fs::read_to_string(path),
    };
    read.map_err(|wrong| {
        Failure::usage(format!(
            "--names-from {} cannot be read: {wrong}",
            path.display()
        ))
    })
}

pub(crate) fn hash(args: &HashArgs) -> Result<Report, Failure> {
    let secret = args.secret.secret()?;
    let mut read = String::new();
    let keys: Vec<&str> = match &args.key {
        Some(key) => vec![key],
        None => {
            let stdin = std::io::stdin().read_to_string(&mut read);
            stdin.map_err(|wrong| Failure::usage(format!("the keys cannot be read: {wrong}")))?;
            read.lines().filter(|line| !line.is_empty()).collect()
        }
    };
    let entries = keys
        .into_iter()
        .map(|key| Bindings::list_entry(&args.list, key, &secret));
    let entries: Vec<String> = entries.collect();
    let json = json!({ "list": args.list, "entries": entries });
    Ok(Report::new(entries.join("\n"), json, true))
}
