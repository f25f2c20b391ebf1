//! `tollgate rules history`: who changed the rules in Redis.

use clap::Args;
use serde_json::json;

use crate::{
    exit::Exit, failure::Failure, printable, redis_args::RedisArgs, report::Report, time_text,
};

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
    let redis = args.redis.rules(&args.redis.secret()?)?;
    let stored = args.redis.in_time(redis.document()).await??;
    let audit = redis.audit(args.most.into());
    let records = args.redis.in_time(audit).await??;
    let fleet = args.redis.in_time(redis.fleet()).await??;
    let revision = stored.map_or(0, |(revision, _)| revision);
    let mut text = match revision {
        0 => match fleet.ahead {
            0 => "there are no rules in Redis\n".to_owned(),
            ahead => format!(
                "there are no rules in Redis; {ahead} of {} processes keep those that were there: push again\n",
                fleet.processes
            ),
        },
        _ => format!("revision {revision} is stored; {fleet}\n"),
    };
    for process in &fleet.lagging_processes {
        let name = printable::line(&process.name, 60);
        text.push_str(&format!(
            "  {name} has revision {}, for {}",
            process.revision,
            time_text::duration(process.lagging_for)
        ));
        if let Some(why) = &process.rejection {
            text.push_str(&format!(": {}", printable::line(why, 300)));
        }
        text.push('\n');
    }
    for record in &records {
        let (author, reason) = (record.author.actor(), record.author.reason());
        text.push_str(&format!(
            "\n{}  {} by {}",
            time_text::time(record.at),
            record.kind.name(),
            printable::line(author, 100)
        ));
        if record.after > 0 {
            text.push_str(&format!("  {} → {}", record.before, record.after));
        }
        if !reason.is_empty() {
            text.push_str(&format!("  ({})", printable::line(reason, 300)));
        }
        text.push('\n');
        for line in &record.lines {
            text.push_str(&format!("  {}\n", printable::line(line, 300)));
        }
    }
    let lagging = fleet.lagging_processes.iter().map(|process| {
        json!({
            "name": process.name,
            "revision": process.revision,
            "lagging_seconds": process.lagging_for.as_secs(),
            "rejection": process.rejection,
        })
    });
    let history = records.iter().map(|record| {
        json!({
            "at": time_text::time(record.at),
            "kind": record.kind.name(),
            "actor": record.author.actor(),
            "reason": record.author.reason(),
            "before": record.before,
            "after": record.after,
            "changes": record.lines,
        })
    });
    let json = json!({
        "revision": revision,
        "processes": fleet.processes,
        "ahead": fleet.ahead,
        "lagging": lagging.collect::<Vec<_>>(),
        "history": history.collect::<Vec<_>>(),
    });
    Ok(Report::new(text, json, Exit::Yes))
}
