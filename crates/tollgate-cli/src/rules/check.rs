//! `tollgate rules check`: all that is wrong with rules.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tollgate_rules::{Bindings, DocumentError, RuleDocument};

use crate::{
    bound_names::{BoundNames, SecretArgs},
    exit::Exit,
    failure::Failure,
    hints::hints,
    printable,
    report::Report,
    rule_args,
    table::Table,
};

const EXAMPLES: &str = "\
Examples:
  tollgate rules check limits.toml
  tollgate rules check limits/ staging.yaml
  tollgate rules check limits.toml --bind-key tenant --bind-plan plan   # names that the code binds

Exit code 1 if anything is wrong, so that it can stand before a deployment. What is right and probably not meant is a
warning. Whether a service has a ledger for `durable` and `daily_usage` is not in its rules: `tollgate-server check` knows.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Files, or folders of files. Each is a document of its own, with what it includes.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    #[command(flatten)]
    bound: BoundNames,

    #[command(flatten)]
    secret: SecretArgs,
}

pub(crate) async fn run(args: &CheckArgs) -> Result<Report, Failure> {
    let bindings = args.bound.bindings(args.secret.find()?.as_ref())?;
    let (mut text, mut documents, mut is_fine) = (String::new(), Vec::new(), true);
    for path in &args.paths {
        let shown = path.display().to_string();
        match read(path, &bindings).await {
            Ok(document) => {
                text.push_str(&format!("{}: no mistakes\n", printable::line(&shown, 200)));
                let (table, rules) = rules_of(&document, "  rule");
                text.push_str(&table);
                let warnings: Vec<String> = document.warnings().collect();
                for warning in &warnings {
                    text.push_str(&format!("warning: {}\n", printable::line(warning, 500)));
                }
                documents.push(
                    json!({ "path": shown, "ok": true, "rules": rules, "warnings": warnings }),
                );
            }
            Err(wrong) => {
                is_fine = false;
                text.push_str(&format!("{wrong}\n{}", hints(&wrong)));
                documents.push(wrong_json(&shown, &wrong));
            }
        }
    }
    let json = json!({ "ok": is_fine, "documents": documents });
    Ok(Report::new(text, json, Exit::of(is_fine)))
}

async fn read(path: &Path, bindings: &Bindings) -> Result<RuleDocument, DocumentError> {
    let text = rule_args::read(path).await?;
    text.parse(bindings)
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
