//! `tollgate rules check`, `diff`, `import` and `explain`: rules in files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::{Value, json};
use tollgate_rules::{
    DocumentError, RuleDocument, RuleText,
    operators::{Explained, Explanation, QuotaOrigin, import_envoy},
};

use crate::{
    args::{RequestArgs, SecretArgs},
    report::{self, Exit, Failure, Report, Table, hints},
    rule_args::{BoundNames, RuleArgs},
};

const CHECK_EXAMPLES: &str = "\
Examples:
  tollgate rules check limits.toml
  tollgate rules check limits/ staging.yaml
  tollgate rules check limits.toml --bind key:tenant --bind plan:plan   # names that the code binds

Exit code 1 if anything is wrong, so that it can stand before a deployment; 3 if a file cannot be read. What is right and probably not meant is a
warning. Whether a service has a ledger for `durable` and `daily_usage` is not in its rules: `tollgate-server check` knows.";

const DIFF_EXAMPLES: &str = "\
Examples:
  tollgate rules diff limits.toml new/limits.toml
  git show main:limits.toml > /tmp/main.toml && tollgate rules diff /tmp/main.toml limits.toml

Exit code 1 if they differ. Clients with limits of their own are counted, and not named.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  tollgate rules import ratelimit/*.yaml > limits.toml

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
    /// The files of envoyproxy/ratelimit, in YAML. Those of one domain are put together.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn check(args: &CheckArgs) -> Result<Report, Failure> {
    let bindings = args.bound.bindings(args.secret.find()?.as_ref())?;
    let (mut text, mut documents, mut exit) = (String::new(), Vec::new(), Exit::Yes);
    for path in &args.paths {
        let shown = path.display().to_string();
        let read = RuleText::read_path(path);
        let if_wrong = read.as_ref().map_or(Exit::Failed, |_| Exit::No);
        match read.and_then(|text| text.parse(&bindings)) {
            Ok(document) => {
                text += &format!("{}: no mistakes\n", report::line(&shown, 200));
                let (table, rules) = rules_of(&document, "  rule");
                text += &table;
                let warnings: Vec<String> = document.warnings().chain(unread(path)).collect();
                for warning in &warnings {
                    text += &format!("warning: {}\n", report::line(warning, 500));
                }
                documents.push(
                    json!({ "path": shown, "ok": true, "rules": rules, "warnings": warnings }),
                );
            }
            Err(wrong) => {
                exit = exit.max(if_wrong);
                text += &format!("{wrong}\n{}", hints(&wrong));
                documents.push(wrong_json(&shown, &wrong));
            }
        }
    }
    let json = json!({ "ok": exit == Exit::Yes, "documents": documents });
    let mut report = Report::new(text, json, true);
    report.exit = exit;
    Ok(report)
}

/// The folders in a folder of rules that have rules too: not those that Kubernetes makes, and of lists.
fn unread(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let shown = entries.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
    let folders = shown.map(|it| it.path()).filter(|it| it.is_dir());
    let with_rules = folders.filter(|it| RuleText::read_path(it).is_ok());
    with_rules.map(|it| {
        let inner = it.display();
        format!("{inner}: a folder in a folder of rules is not read; move its files out of it")
    })
}

pub(crate) fn diff(args: &DiffArgs) -> Result<Report, Failure> {
    let bindings = args.bound.bindings(args.secret.find()?.as_ref())?;
    let before = RuleText::read_path(&args.before)?;
    let after = RuleText::read_path(&args.after)?;
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
    let text = import_envoy(files.iter().map(|(name, text)| (&**name, &**text)))?;
    let json = json!({ "rules": text });
    Ok(Report::verbatim(text, json))
}

/// The rules as a table, whose first column is `title` with the space before it, and for programs.
pub(super) fn rules_of(document: &RuleDocument, title: &str) -> (String, Vec<Value>) {
    let indent = &title[..title.len() - title.trim_start().len()];
    let mut table = Table::new(&format!("{title} | limit | by"));
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

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tollgate rules explain --rules limits.toml --path /search -H 'x-api-key: acme-key-1'
  tollgate rules explain --rules limits.toml --method POST --path /items/7 --client-ip 192.0.2.7
  tollgate rules explain --rules limits.toml --path /search --bind key:tenant=acme --bind plan:plan=gold
  tollgate rules explain --rules limits.toml --at edge --domain sms --descriptor kind=alert --descriptor to=+441234

Nothing is decided and nothing is taken; `tollgate key status` says what is left. With the secret of the service,
the client's hash is shown: the audit shows its beginning, and an override may name the client by it.";

#[derive(Args, Debug)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    request: RequestArgs,

    #[command(flatten)]
    rules: RuleArgs,

    #[command(flatten)]
    secret: SecretArgs,
}

pub(crate) fn explain(args: &ExplainArgs) -> Result<Report, Failure> {
    let document = args.rules.document(&args.secret)?;
    let explained = document.explain(&args.request.head()?);
    let mut table = Table::new("rule | counts | limit | from | #units | by");
    for rule in &explained {
        let counts = match &rule.outcome {
            Explained::Enforces => "yes".to_owned(),
            Explained::Shadows => "as a shadow".to_owned(),
            other => format!("no: {other}"),
        };
        let (from, units) = match rule.counts() {
            true => (rule.origin.to_string(), rule.units.to_string()),
            false => (String::new(), String::new()),
        };
        table.row([
            rule.rule.to_owned(),
            counts,
            rule.quota.to_string(),
            from,
            units,
            rule.by.join(", "),
        ]);
    }
    let text = table.text() + &notes(&explained);
    let json = json!({ "rules": rules_json(&explained) });
    Ok(Report::new(text, json, true))
}

/// What does not fit into a table: whom a rule counts, which responses count, and what is switched.
fn notes(explained: &[Explanation]) -> String {
    let mut notes = String::new();
    for rule in explained {
        let hash = rule.key_hash.filter(|_| rule.counts() && !rule.is_shared());
        let client = hash.map(|hash| format!("the client is {hash:032x}"));
        for note in client.into_iter().chain(rule.notes()) {
            notes += &format!("\n{}: {}", rule.rule, report::line(&note, 400));
        }
    }
    match explained.iter().any(Explanation::counts) {
        true => notes,
        false => notes + "\nno rule counts this request",
    }
}

pub(crate) fn rules_json(explained: &[Explanation]) -> Value {
    explained.iter().map(explained_json).collect()
}

/// For programs. The key itself is not part of it.
pub(crate) fn explained_json(explained: &Explanation) -> Value {
    let (until, reason) = match &explained.origin {
        QuotaOrigin::Override { until, reason, .. } => (until.map(report::time), reason.clone()),
        _ => (None, None),
    };
    json!({
        "rule": explained.rule,
        "by": explained.by,
        "counts": explained.counts(),
        "outcome": explained.outcome.to_string(),
        "limit": explained.quota.to_string(),
        "limit_from": explained.origin.to_string(),
        "until": until,
        "reason": reason,
        "units": explained.units,
        "waits_seconds": explained.limiter_rule.at_most_wait().map(|at_most| at_most.as_secs_f64()),
        "debt": explained.limiter_rule.debt_of(),
        "takes_credits": explained.limiter_rule.has_credits(),
        "count_if": explained.counts_if,
        "switches": explained.switches,
        "client": explained.key_hash.map(|hash| format!("{hash:032x}")),
        "shares_the_bucket_without_key": explained.is_shared(),
    })
}
