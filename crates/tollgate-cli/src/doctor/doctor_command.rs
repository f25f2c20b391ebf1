//! The command.

use std::{cmp::Reverse, path::PathBuf, time::Duration};

use clap::Args;
use serde_json::json;

use crate::{
    bound_names::BoundNames,
    doctor::{
        examination::Patient,
        finding::{Finding, Level},
        servers::Servers,
    },
    exit::Exit,
    failure::Failure,
    printable,
    redis_args::RedisArgs,
    report::Report,
    rule_args,
};

const EXAMPLES: &str = "\
Examples:
  tollgate doctor --redis redis://tollgate:sesame@cache.internal --namespace shop
  tollgate doctor --redis redis-cluster://one,two,three --namespace shop --rules limits.toml
  tollgate doctor --redis redis://admin:sesame@cache.internal --namespace shop --json

Run it as the user of the service, to learn what that user may do, and as an administrator, who may read more. It
writes one key of its own, which it removes. Exit code 1: there is an error or a warning.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    redis: RedisArgs,

    /// How long a request of the service may wait for Redis, in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    deadline: u64,

    /// The rules, for what a restart would cost: a file, or a folder of files.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_RULES")]
    rules: Option<PathBuf>,

    #[command(flatten)]
    bound: BoundNames,
}

pub(crate) async fn run(args: &DoctorArgs) -> Result<Report, Failure> {
    let secret = args.redis.secret.find()?;
    let longest = match &args.rules {
        None => None,
        Some(path) => {
            let bindings = args.bound.bindings(secret.as_ref())?;
            let document = rule_args::document(path, &bindings).await?;
            let rules = document.limiter_rules();
            rules.iter().map(|rule| rule.quota().window()).max()
        }
    };
    let patient = Patient {
        servers: Servers::of(&args.redis)?,
        namespace: &args.redis.namespace,
        secret,
        deadline: Duration::from_millis(args.deadline),
        longest,
    };
    let findings = patient.examine().await?;
    let worst = findings.iter().map(|finding| finding.level).max();
    let is_well = worst.is_none_or(|worst| worst < Level::Warning);
    let json = json!({
        "ok": is_well,
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    });
    Ok(Report::new(text(&findings), json, Exit::of(is_well)))
}

/// The worst first; a remedy is a line of its own, to be copied.
fn text(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| Reverse(finding.level));
    let mut text = String::new();
    for finding in sorted {
        let (level, check) = (finding.level.word(), finding.check);
        let server = match &*finding.server {
            "" => String::new(),
            server => format!("{server}: "),
        };
        let says = printable::line(&(server + &finding.says), 1_000);
        text += &format!("{level:8} {check:12} {says}\n");
        if !finding.remedy.is_empty() {
            text += &format!("{:21} → {}\n", "", printable::line(&finding.remedy, 1_000));
        }
    }
    let count = |level| findings.iter().filter(|it| it.level == level).count();
    text + &match (count(Level::Error), count(Level::Warning)) {
        (0, 0) => "\nnothing is wrong".to_owned(),
        (errors, warnings) => format!("\n{errors} errors, {warnings} warnings"),
    }
}
