//! `tollgate rules show` and `history`: what is in force in all processes that follow Redis, and who changed it.

use clap::Args;
use serde_json::{Value, json};
use tollgate_rules::{
    Author,
    operators::{EntryOrigin, EntryStatus},
};

use crate::{
    args::RedisArgs,
    report::{self, Failure, Report, Table},
    rule_args::{BoundNames, SharedRules},
    rules::files::rules_of,
};

const EXAMPLES: &str = "\
Examples:
  tollgate rules show --redis redis://cache.internal --namespace shop

The rules with what is switched, and each override and switch: until when, who set it and why, and its number for
`tollgate rules end`.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    redis: RedisArgs,

    #[command(flatten)]
    bound: BoundNames,
}

pub(crate) async fn run(args: &ShowArgs) -> Result<Report, Failure> {
    let shared = SharedRules::new(&args.redis, &args.bound)?;
    let Some(stored) = shared.stored().await? else {
        let json = json!({ "revision": 0, "rules": [], "entries": [] });
        return Ok(Report::new("there are no rules in Redis", json, true));
    };
    let author = &stored.pushed_by;
    let pushed = report::time(stored.pushed_at);
    let mut text = format!(
        "revision {}; the rules are of revision {}, pushed by {author} at {pushed}\n{}\n\n",
        stored.revision, stored.pushed_revision, stored.fleet,
    );
    if let Some(lost) = stored.lost {
        text += &format!(
            "what operators had set up to revision {lost} is lost with Redis, or as old as its backup: set it again (the status of each \
             process says what it had)\n\n"
        );
    }
    let (table, rules) = rules_of(&stored.document, "rule");
    text += &table;
    let mut entries = stored.document.entries();
    entries.retain(|entry| entry.until.is_none_or(|until| until > stored.now));
    if entries.is_empty() {
        text += "\nno override and no switch is set";
    } else {
        let mut table = Table::new("#number | rule | limit | client | until | set by | because");
        entries.iter().for_each(|entry| table.row(cells(entry)));
        text += &format!("\n{}", table.text());
    }
    for entry in &entries {
        if let Some(problem) = &entry.problem {
            let (id, problem) = (entry.id.unwrap_or(0), report::line(problem, 300));
            text += &format!("\n{id} is not in force: {problem}");
        }
    }
    let json = json!({
        "revision": stored.revision,
        "pushed_revision": stored.pushed_revision,
        "pushed_by": author.actor(),
        "pushed_because": author.reason(),
        "pushed_at": pushed,
        "lost_up_to": stored.lost,
        "processes": stored.fleet.processes,
        "lagging": stored.fleet.lagging,
        "rules": rules,
        "entries": entries.iter().map(entry_json).collect::<Vec<_>>(),
    });
    Ok(Report::new(text, json, true))
}

/// Whether an operator set it.
pub(crate) fn is_set(entry: &EntryStatus) -> bool {
    entry.origin == EntryOrigin::Redis
}

/// For people, in a line.
pub(crate) fn described(entry: &EntryStatus) -> String {
    let [number, rule, limit, client, until, by, because] = cells(entry);
    let client = entry
        .client
        .map_or(String::new(), |_| format!(" for client {client}"));
    let until = entry
        .until
        .map_or(String::new(), |_| format!(" until {until}"));
    format!("{number}, {rule}: {limit}{client}{until}, set by {by} ({because})")
}

/// An override or a switch as a row.
fn cells(entry: &EntryStatus) -> [String; 7] {
    let by = entry.author.as_ref().filter(|_| is_set(entry));
    let client = entry.client.map(|hash| format!("{:08x}", hash >> 96));
    [
        entry.id.map_or(String::new(), |id| id.to_string()),
        entry.rules.clone(),
        entry.limit.clone(),
        client.unwrap_or_default(),
        entry.until.map_or("never".to_owned(), report::time),
        by.map_or("(the rules)", Author::actor).to_owned(),
        entry.reason.clone().unwrap_or_default(),
    ]
}

fn entry_json(entry: &EntryStatus) -> Value {
    json!({
        "number": entry.id,
        "kind": entry.kind.name(),
        "rules": entry.rules,
        "limit": entry.limit,
        "client": entry.client.map(|hash| format!("{hash:032x}")),
        "until": entry.until.map(report::time),
        "reason": entry.reason,
        "set_by": entry.author.as_ref().map(|author| author.actor()),
        "set_because": entry.author.as_ref().map(|author| author.reason()),
        "set_at": entry.set_at.map(report::time),
        "problem": entry.problem,
    })
}

const HISTORY_EXAMPLES: &str = "\
Examples:
  tollgate rules history --redis redis://cache.internal --namespace shop --most 5 --json";

#[derive(Args, Debug)]
#[command(after_help = HISTORY_EXAMPLES)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    redis: RedisArgs,

    /// How many records.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    most: u16,
}

pub(crate) async fn history(args: &HistoryArgs) -> Result<Report, Failure> {
    let redis = args.redis.rules(&args.redis.secret.secret()?)?;
    let stored = redis.document().await?;
    let records = redis.audit(args.most.into()).await?;
    let fleet = redis.fleet().await?;
    let revision = stored.map_or(0, |(revision, _)| revision);
    let mut text = match (revision, fleet.ahead) {
        (0, 0) => "there are no rules in Redis\n".to_owned(),
        (0, ahead) => format!(
            "there are no rules in Redis; {ahead} of {} processes keep those that were there: push again\n",
            fleet.processes
        ),
        _ => format!("revision {revision} is stored; {fleet}\n"),
    };
    let (mut lagging, mut history) = (Vec::new(), Vec::new());
    for process in &fleet.lagging_processes {
        lagging.push(json!({
            "name": process.name,
            "revision": process.revision,
            "lagging_seconds": process.lagging_for.as_secs(),
            "rejection": process.rejection,
        }));
    }
    for record in &records {
        let (at, kind) = (report::time(record.at), record.kind.name());
        let (author, reason) = (record.author.actor(), record.author.reason());
        let shown = report::line(author, 100);
        text += &format!("\n{at}  {kind} by {shown}");
        if record.after > 0 {
            text += &format!("  {} → {}", record.before, record.after);
        }
        if !reason.is_empty() {
            text += &format!("  ({})", report::line(reason, 300));
        }
        text += "\n";
        for line in &record.lines {
            text += &format!("  {}\n", report::line(line, 300));
        }
        history.push(json!({
            "at": at,
            "kind": kind,
            "actor": author,
            "reason": reason,
            "before": record.before,
            "after": record.after,
            "changes": record.lines,
        }));
    }
    let json = json!({
        "revision": revision,
        "processes": fleet.processes,
        "ahead": fleet.ahead,
        "lagging": lagging,
        "history": history,
    });
    Ok(Report::new(text, json, true))
}
