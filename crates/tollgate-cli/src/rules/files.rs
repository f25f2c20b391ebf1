//! `tollgate rules check`, `diff` and `import`: rules in files.

use std::{fs, path::PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tollgate_rules::{DocumentError, RuleDocument, operators::import_envoy};

use crate::{
    args::SecretArgs,
    failure::{Failure, hints},
    report::{self, Report, Table},
    rule_args::{self, BoundNames},
};

const CHECK_EXAMPLES: &str = "\
Examples:
  tollgate rules check limits.toml
  tollgate rules check limits/ staging.yaml
  tollgate rules check limits.toml --bind-key tenant --bind-plan plan   # names that the code binds

Exit code 1 if anything is wrong, so that it can stand before a deployment. What is right and probably not meant is a
warning. Whether a service has a ledger for `durable` and `daily_usage` is not in its rules: `tollgate-server check` knows.";

const DIFF_EXAMPLES: &str = "\
Examples:
  tollgate rules diff limits.toml new/limits.toml
  git show main:limits.toml > /tmp/main.toml && tollgate rules diff /tmp/main.toml limits.toml

Exit code 1 if they differ. Clients with limits of their own are counted, and not named.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  tollgate rules import --from envoy ratelimit/*.yaml > limits.toml

What rules cannot say is refused with its line, and nothing is printed. The rules have at = \"edge\", for tollgate-server.";

#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Files, or folders of files. Each is a document of its own, with what it includes.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    bound: BoundNames,

    #[command(flatten)]
    secret: SecretArgs,
}

#[derive(Args, Debug)]
#[command(after_help = DIFF_EXAMPLES)]
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

#[derive(Args, Debug)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Whose configuration it is.
    #[arg(long, value_name = "LIMITER")]
    from: Limiter,

    /// Its files. Those of one domain are put together.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Limiter {
    /// envoyproxy/ratelimit, in YAML.
    Envoy,
}

pub(crate) async fn check(args: &CheckArgs) -> Result<Report, Failure> {
    let bindings = args.bound.bindings(args.secret.find()?.as_ref())?;
    let (mut text, mut documents, mut is_fine) = (String::new(), Vec::new(), true);
    for path in &args.paths {
        let shown = path.display().to_string();
        let read = rule_args::read(path).await;
        match read.and_then(|text| text.parse(&bindings)) {
            Ok(document) => {
                text += &format!("{}: no mistakes\n", report::line(&shown, 200));
                let (table, rules) = rules_of(&document, "  rule");
                text += &table;
                let warnings: Vec<String> = document.warnings().collect();
                for warning in &warnings {
                    text += &format!("warning: {}\n", report::line(warning, 500));
                }
                documents.push(
                    json!({ "path": shown, "ok": true, "rules": rules, "warnings": warnings }),
                );
            }
            Err(wrong) => {
                is_fine = false;
                text += &format!("{wrong}\n{}", hints(&wrong));
                documents.push(wrong_json(&shown, &wrong));
            }
        }
    }
    let json = json!({ "ok": is_fine, "documents": documents });
    Ok(Report::new(text, json, is_fine))
}

pub(crate) async fn diff(args: &DiffArgs) -> Result<Report, Failure> {
    let bindings = args.bound.bindings(args.secret.find()?.as_ref())?;
    let before = rule_args::read(&args.before).await?;
    let after = rule_args::read(&args.after).await?;
    let changes = after.changes_from(&before, &bindings)?;
    let is_same = changes.is_empty();
    let lines = changes.iter().map(|change| report::line(change, 1_000));
    let text = match is_same {
        true => "no difference".to_owned(),
        false => lines.collect::<Vec<_>>().join("\n"),
    };
    Ok(Report::new(text, json!({ "changes": changes }), is_same))
}

pub(crate) fn import(args: &ImportArgs) -> Result<Report, Failure> {
    let read = args.files.iter().map(|path| {
        let shown = path.display().to_string();
        match fs::read_to_string(path) {
            Ok(text) => Ok((shown, text)),
            Err(wrong) => Err(Failure::failed(format!("{shown} cannot be read: {wrong}"))),
        }
    });
    let files = read.collect::<Result<Vec<_>, _>>()?;
    let text = match args.from {
        Limiter::Envoy => import_envoy(files.iter().map(|(name, text)| (&**name, &**text)))?,
    };
    let json = json!({ "rules": text });
    Ok(Report::verbatim(text, json))
}

/// The rules as a table, whose first column is `title` with the space before it, and for programs.
pub(super) fn rules_of(document: &RuleDocument, title: &'static str) -> (String, Vec<Value>) {
    let indent = &title[..title.len() - title.trim_start().len()];
    let mut table = Table::new([title, "limit", "by"]);
    let mut rules = Vec::new();
    for (rule, by) in document.keyed_rules() {
        let (name, limit) = (rule.name(), rule.quota().to_string());
        rules.push(json!({ "name": name, "limit": limit, "by": by }));
        table.row([format!("{indent}{name}"), limit, by.join(", ")]);
    }
    (table.text(), rules)
}

fn wrong_json(path: &str, wrong: &DocumentError) -> Value {
    let mistakes = wrong.mistakes().iter().map(|mistake| {
        json!({
            "file": mistake.origin,
            "line": mistake.line,
            "column": mistake.column,
            "message": mistake.message,
            "text": mistake.to_string(),
        })
    });
    json!({ "path": path, "ok": false, "mistakes": mistakes.collect::<Vec<_>>() })
}
