//! The command.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::{
    bound_names::BoundNames,
    doctor::{
        examination::Patient,
        finding::{self, Level},
        servers::Servers,
    },
    exit::Exit,
    failure::Failure,
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
        longest,
    };
    let findings = patient.examine().await?;
    let is_well = findings.iter().all(|it| it.level < Level::Warning);
    let json = json!({ "ok": is_well, "findings": finding::json(&findings) });
    Ok(Report::new(
        finding::text(&findings),
        json,
        Exit::of(is_well),
    ))
}
