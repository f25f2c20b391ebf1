//! `tollgate rules push`: rules for all processes that follow Redis.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tollgate_rules::{Author, Bindings, FleetStatus, Format, RuleText, redis::PushErrorKind};

use crate::{
    bound_names::BoundNames, exit::Exit, failure::Failure, printable, redis_args::RedisArgs,
    report::Report, rule_args,
};

/// Who pushes, where it is not said.
const UNKNOWN: &str = "unknown";

const EXAMPLES: &str = "\
Examples:
  tollgate rules push limits.toml --redis redis://cache.internal --namespace shop --by alice --because 'ticket 4711'
  tollgate rules push limits/ --redis redis://cache.internal --namespace shop --dry-run

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

    /// Who pushes, for the audit.
    #[arg(long, value_name = "NAME", env = "USER", default_value = UNKNOWN)]
    by: String,

    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,

    /// Says what would change, and changes nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: &PushArgs) -> Result<Report, Failure> {
    let read = rule_args::read(&args.path).await;
    let text = read.map_err(Failure::mistakes)?;
    let secret = args.redis.secret()?;
    let bindings = args.bound.bindings(Some(&secret))?;
    text.parse(&bindings).map_err(Failure::mistakes)?;
    let redis = args.redis.rules(&secret)?;
    let stored = args.redis.in_time(redis.document()).await??;
    let before = stored.as_ref().map_or(0, |(revision, _)| *revision);
    if args.dry_run {
        return would_change(&text, stored, &bindings);
    }
    let by = match args.by.trim() {
        // A container often sets USER to nothing.
        "" => UNKNOWN,
        by => by,
    };
    let mut author = Author::new(by);
    if let Some(reason) = &args.because {
        author = author.because(&**reason);
    }
    let pushed = args
        .redis
        .in_time(redis.push(text, &bindings, &author))
        .await;
    let revision = match pushed {
        Ok(pushed) => pushed.map_err(|wrong| match wrong.kind() {
            PushErrorKind::Unavailable => may_have_arrived(&wrong.into()),
            _ => wrong.into(),
        })?,
        Err(late) => return Err(may_have_arrived(&late)),
    };
    // It is stored, whatever becomes of the question who follows it.
    let answer = args.redis.in_time(redis.fleet()).await;
    let fleet = answer.and_then(|fleet| Ok(fleet?));
    let processes = fleet.as_ref().ok().map(FleetStatus::processes);
    let text = match revision == before {
        true => format!("revision {revision} is stored already; nothing changed"),
        false => {
            let instead = match before {
                0 => String::new(),
                _ => format!(", in the place of {before}"),
            };
            let follow = match &fleet {
                Ok(fleet) => format!(
                    "{} processes follow the rules, and have it in force within seconds",
                    fleet.processes()
                ),
                Err(failure) => format!(
                    "how many processes follow the rules is not known: {}",
                    failure.message
                ),
            };
            format!(
                "revision {revision} is stored{instead}; {follow}\n(`tollgate rules history` says which lag)"
            )
        }
    };
    let json = json!({
        "pushed": revision != before,
        "revision": revision,
        "before": before,
        "processes": processes,
    });
    Ok(Report::new(text, json, Exit::Yes))
}

/// The reply to a push was lost.
fn may_have_arrived(failure: &Failure) -> Failure {
    Failure::failed(format!(
        "{}\nthe push may have arrived nevertheless: `tollgate rules history` says what is stored",
        failure.message
    ))
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
