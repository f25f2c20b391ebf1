//! `tollgate rules push`: rules for all processes that follow Redis.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate_rules::{Bindings, Format, RuleText, operators::EntryStatus, redis::RedisRules};

use crate::{
    bound_names::BoundNames,
    change_args::{ByArgs, YesArgs},
    exit::Exit,
    failure::Failure,
    printable,
    redis_args::RedisArgs,
    report::Report,
    rule_args,
    rules::{
        change::{followers, stored_in_time},
        show::{described, is_set},
    },
};

const EXAMPLES: &str = "\
Examples:
  tollgate rules push limits.toml --redis redis://cache.internal --namespace shop --by alice --because 'ticket 4711'
  tollgate rules push limits/ --redis redis://cache.internal --namespace shop --dry-run
  tollgate rules push limits.toml --redis redis://cache.internal --namespace shop --replace-all

The document is signed with the service's secret. It replaces the pushed document as a whole; the overrides and
switches that operators set stay in force. --bind-… must name what the service's code binds.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PushArgs {
    /// The rules: a file, or a folder of files.
    path: PathBuf,

    #[command(flatten)]
    redis: RedisArgs,

    #[command(flatten)]
    bound: BoundNames,

    #[command(flatten)]
    by: ByArgs,

    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,

    /// Says what would change, and changes nothing.
    #[arg(long)]
    dry_run: bool,

    /// Ends the overrides and switches that operators set: lists them, and asks.
    #[arg(long, conflicts_with = "dry_run")]
    replace_all: bool,

    #[command(flatten)]
    yes: YesArgs,
}

pub(crate) async fn run(args: &PushArgs) -> Result<Report, Failure> {
    let read = rule_args::read(&args.path).await;
    let text = read.map_err(Failure::mistakes)?.for_push();
    let secret = args.redis.secret()?;
    let bindings = args.bound.bindings(Some(&secret))?;
    text.parse(&bindings).map_err(Failure::mistakes)?;
    let redis = args.redis.rules(&secret)?;
    let stored = args.redis.in_time(redis.document()).await??;
    let before = stored.as_ref().map_or(0, |(revision, _)| *revision);
    if args.dry_run {
        return would_change(&text, stored, &bindings);
    }
    let mut author = args.by.author();
    if let Some(reason) = &args.because {
        author = author.because(&**reason);
    }
    let revision = match args.replace_all {
        false => {
            let push = redis.push(text, &bindings, &author);
            stored_in_time(&args.redis, push).await?
        }
        true => {
            let set = entries(args, &redis, &bindings).await?;
            if !set.is_empty() {
                let lines = set
                    .iter()
                    .map(|entry| format!("ends: {}\n", described(entry)));
                let lines = lines.collect::<String>();
                args.yes
                    .ask(&format!("{lines}and pushes {}", args.path.display()))?;
            }
            let push = redis.replace_all(text, &bindings, &author);
            stored_in_time(&args.redis, push).await?
        }
    };
    let (follow, processes) = followers(&args.redis, &redis).await;
    let instead = match before {
        0 => String::new(),
        _ => format!(", in the place of {before}"),
    };
    let mut text = match revision == before {
        true => format!("revision {revision} is stored already; nothing changed"),
        false => format!(
            "revision {revision} is stored{instead}; {follow}\n(`tollgate rules history` says which lag)"
        ),
    };
    // It is stored, whatever becomes of this question.
    let set = entries(args, &redis, &bindings).await.unwrap_or_default();
    if !set.is_empty() {
        let count = set.len();
        text.push_str(&format!(
            "\nwhat operators set stays in force: {count} (`tollgate rules show`)"
        ));
    }
    let unfit: Vec<_> = set.iter().filter(|entry| entry.problem.is_some()).collect();
    for entry in &unfit {
        let (what, why) = (
            described(entry),
            entry.problem.as_deref().unwrap_or_default(),
        );
        let line = format!("no longer fits: {what}: {why}");
        text.push_str(&format!("\n{}", printable::line(&line, 500)));
    }
    let json = json!({
        "pushed": revision != before,
        "revision": revision,
        "before": before,
        "processes": processes,
        "set": set.len(),
        "unfit": unfit.iter().map(|entry| entry.id).collect::<Vec<_>>(),
    });
    Ok(Report::new(text, json, Exit::Yes))
}

/// What operators set.
async fn entries(
    args: &PushArgs,
    redis: &RedisRules,
    bindings: &Bindings,
) -> Result<Vec<EntryStatus>, Failure> {
    let stored = args.redis.in_time(redis.stored(bindings)).await?;
    let all = stored?.map_or_else(Vec::new, |stored| stored.document.entries());
    Ok(all.into_iter().filter(is_set).collect())
}

/// What a push would change.
fn would_change(
    text: &RuleText,
    stored: Option<(u64, String)>,
    bindings: &Bindings,
) -> Result<Report, Failure> {
    let Some((before, document)) = stored else {
        let json = json!({ "pushed": false, "before": 0 });
        let text = "the rules are right; there are none in Redis yet";
        return Ok(Report::new(text, json, Exit::Yes));
    };
    let document = RuleText::named("the rules in Redis", document, Format::Json);
    let changes = text.changes_from(&document, bindings)?;
    let json = json!({ "pushed": false, "before": before, "changes": changes });
    let lines = changes
        .iter()
        .map(|change| format!("\n  {}", printable::line(change, 1_000)));
    let text = match changes.is_empty() {
        true => format!("the rules are right, and no other than revision {before}"),
        false => format!(
            "the rules are right; they would change revision {before}:{}",
            lines.collect::<String>()
        ),
    };
    Ok(Report::new(text, json, Exit::Yes))
}
