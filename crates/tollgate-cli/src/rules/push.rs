//! `tollgate rules push`: rules for all processes that follow Redis.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate_rules::{Bindings, Format, RuleText, redis::PushErrorKind};

use crate::{
    args::{BecauseArgs, RedisArgs, YesArgs},
    report::{self, Failure, Report},
    rule_args::{BoundNames, SharedRules},
    rules::{change::ends, show::described},
};

const EXAMPLES: &str = "\
Examples:
  tollgate rules push limits.toml --redis redis://cache.internal --namespace shop --by alice --because 'ticket 4711'
  tollgate rules push limits/ --redis redis://cache.internal --namespace shop --dry-run
  tollgate rules push limits.toml --redis redis://cache.internal --namespace shop --replace-all

The document is signed with the service's secret. It replaces the pushed document as a whole; the overrides and
switches that operators set stay in force. --bind must name what the service's code binds.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES,
    mut_arg("because", |arg| arg.required(false).default_value("").hide_default_value(true)))]
pub(crate) struct PushArgs {
    /// The rules: a file, or a folder of files.
    path: PathBuf,

    #[command(flatten)]
    redis: RedisArgs,

    #[command(flatten)]
    bound: BoundNames,

    #[command(flatten)]
    because: BecauseArgs,

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
    let text = RuleText::read_path(&args.path)?.for_push();
    let shared = SharedRules::new(&args.redis, &args.bound)?;
    let (redis, bindings) = (&shared.redis, &shared.bindings);
    text.parse(bindings).map_err(Failure::mistakes)?;
    let stored = redis.document().await;
    if args.dry_run {
        return would_change(&text, stored?, bindings);
    }
    let before = match stored {
        // One that is not signed with this secret is as good as none.
        Err(wrong) if args.replace_all && wrong.kind() == PushErrorKind::Document => 0,
        stored => stored?.map_or(0, |(revision, _)| revision),
    };
    let author = args.because.author_of_push();
    if args.replace_all {
        let unread = redis.stored(bindings).await.err();
        let lines: String = match unread.filter(|wrong| wrong.kind() == PushErrorKind::Document) {
            // What cannot be read is replaced all the same.
            Some(wrong) => {
                report::lines(&Failure::from(wrong).message) + "\nends all that operators set\n"
            }
            None => {
                let set = shared.set().await?;
                set.iter().map(|entry| ends(entry) + "\n").collect()
            }
        };
        if !lines.is_empty() {
            let question = format!("{lines}and pushes {}", args.path.display());
            args.yes.ask(&question)?;
        }
    }
    let push = redis.push_after(Some(before), text, bindings, &author, args.replace_all);
    let revision = shared.change(push).await?;
    let (follow, processes) = shared.followers().await;
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
    let set = shared.set().await.unwrap_or_default();
    if !set.is_empty() {
        text += &format!(
            "\nwhat operators set stays in force: {} (`tollgate rules show`)",
            set.len()
        );
    }
    let mut unfit = Vec::new();
    for entry in &set {
        if let Some(why) = &entry.problem {
            let line = format!("no longer fits: {}: {why}", described(entry));
            text += &format!("\n{}", report::line(&line, 500));
            unfit.push(entry.id);
        }
    }
    let json = json!({
        "pushed": revision != before,
        "revision": revision,
        "before": before,
        "processes": processes,
        "set": set.len(),
        "unfit": unfit,
    });
    Ok(Report::new(text, json, true))
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
        return Ok(Report::new(text, json, true));
    };
    let document = RuleText::named("the rules in Redis", document, Format::Json);
    let changes = text.changes_from(&document, bindings)?;
    let mut text = match changes.is_empty() {
        true => format!("the rules are right, and no other than revision {before}"),
        false => format!("the rules are right; they would change revision {before}:"),
    };
    for change in &changes {
        text += &format!("\n  {}", report::line(change, 1_000));
    }
    let json = json!({ "pushed": false, "before": before, "changes": changes });
    Ok(Report::new(text, json, true))
}
