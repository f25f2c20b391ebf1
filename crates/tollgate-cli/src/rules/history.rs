//! `tollgate rules history`: who changed the rules in Redis.

use clap::Args;
use serde_json::json;

use crate::{failure::Failure, printable, redis_args::RedisArgs, report::Report, time_text};

const EXAMPLES: &str = "\
Examples:
  tollgate rules history --redis redis://cache.internal --namespace shop
  tollgate rules history --redis redis://cache.internal --namespace shop --most 5 --json";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    redis: RedisArgs,

    /// How many records.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    most: u16,
}

pub(crate) async fn run(args: &HistoryArgs) -> Result<Report, Failure> {
    let redis = args.redis.rules(&args.redis.secret.secret()?)?;
    let stored = args.redis.in_time(redis.document()).await??;
    let audit = redis.audit(args.most.into());
    let records = args.redis.in_time(audit).await??;
    let fleet = args.redis.in_time(redis.fleet()).await??;
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
        let name = printable::line(&process.name, 60);
        let time = time_text::duration(process.lagging_for);
        text += &format!("  {name} has revision {}, for {time}", process.revision);
        if let Some(why) = &process.rejection {
            text += &format!(": {}", printable::line(why, 300));
        }
        text += "\n";
        lagging.push(json!({
            "name": process.name,
            "revision": process.revision,
            "lagging_seconds": process.lagging_for.as_secs(),
            "rejection": process.rejection,
        }));
    }
    for record in &records {
        let (at, kind) = (time_text::time(record.at), record.kind.name());
        let (author, reason) = (record.author.actor(), record.author.reason());
        let shown = printable::line(author, 100);
        text += &format!("\n{at}  {kind} by {shown}");
        if record.after > 0 {
            text += &format!("  {} → {}", record.before, record.after);
        }
        if !reason.is_empty() {
            text += &format!("  ({})", printable::line(reason, 300));
        }
        text += "\n";
        for line in &record.lines {
            text += &format!("  {}\n", printable::line(line, 300));
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
