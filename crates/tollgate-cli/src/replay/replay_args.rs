//! What is replayed, and how it is read.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
};

use clap::Args;
use tollgate_core::AlgorithmKind;
use tollgate_rules::RuleDocument;

use crate::{
    args::{SecretArgs, parse_pair},
    replay::line_format::{LineFormat, PATTERNS},
    report::Failure,
    rule_args::RuleArgs,
};

const EXAMPLES: &str = "\
Examples:
  tollgate replay /var/log/nginx/access.log.1 --rules limits.toml
  tollgate replay access.log.2.gz access.log.1 --rules limits.toml --against new.toml
  tollgate replay access.log --rules limits.toml --lower --svg lower.svg
  tollgate replay app.log --rules limits.toml --format json --field request_uri=req.url --field duration_ms=took
  tollgate replay access.log --rules limits.toml \\
    --format '$remote_addr [$time_local] \"$request\" $status $request_time \"$http_x_api_key\"'

Nothing is sent and nothing is stored. No key is printed: a denied client is named by the first line in which it is denied. With the secret of the service, by its hash too, as in the audit.";

/// What is replayed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Logs of requests, plain or gzip; `-` is the standard input. Several are taken together, in the order of their times.
    #[arg(value_name = "LOG", required = true)]
    pub(crate) logs: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) rules: RuleArgs,

    /// Other rules, which are tried on the same requests.
    #[arg(long, value_name = "PATH")]
    pub(crate) against: Option<PathBuf>,

    /// Says how far each limit could go down before it denies anybody: by tens of percent, each rule as if it were alone.
    #[arg(long)]
    pub(crate) lower: bool,

    /// Draws what lower limits would deny into this file.
    #[arg(long, value_name = "FILE", requires = "lower")]
    pub(crate) svg: Option<PathBuf>,

    /// The format of the lines: combined (nginx, Apache), common, alb, envoy, json, or a log_format of nginx. Default: found out.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// In JSON, where a variable of nginx is: request_uri=req.url. May be given several times.
    #[arg(long = "field", value_name = "VARIABLE=NAME", value_parser = |pair: &str| parse_pair(pair, "request_uri=req.url"))]
    fields: Vec<(String, String)>,

    /// How many clients are listed, those that are denied most often.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub(crate) most: usize,

    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

impl ReplayArgs {
    /// How the lines of a sample are read.
    pub(crate) fn format(&self, sample: &[&[u8]]) -> Result<LineFormat, Failure> {
        let bound: Vec<&str> = self.rules.bound.keys().map(|(name, _)| name).collect();
        let Some(named) = self.format.as_deref() else {
            return LineFormat::detect(sample, &self.fields, &bound).ok_or_else(|| {
                Failure::failed(
                    "the first lines are of no format that is known: combined, common, alb, envoy, or JSON with a time; say which with \
                     --format, or where things are with --field",
                )
            });
        };
        let known = PATTERNS.iter().find(|(name, _)| *name == named);
        match known.map_or(named, |(_, pattern)| pattern) {
            "json" => Ok(LineFormat::of_json(sample, &self.fields, &bound)),
            pattern if pattern.contains('$') => Ok(LineFormat::of_pattern(pattern, &bound)),
            other => Err(Failure::argument(
                "format",
                other,
                "it is combined, common, alb, envoy, json, or a log_format of nginx, whose variables begin with $",
            )),
        }
    }

    /// The rules that cannot be tried, each with why.
    pub(crate) fn left_out(
        &self,
        document: &RuleDocument,
        format: &LineFormat,
    ) -> BTreeMap<String, String> {
        let bound: HashMap<&str, bool> = self.rules.bound.keys().collect();
        let has = |by: &str| format.has(by) || bound.get(by) == Some(&true);
        let (head, ()) = http::Request::new(()).into_parts();
        let mut left_out = BTreeMap::new();
        for ((rule, by), explained) in document.keyed_rules().zip(document.explain(&head)) {
            let counts_if = explained.counts_if.as_deref().unwrap_or("{failure");
            let asks = |word: &&str| counts_if.contains(word);
            let is_of_status = !["header", "grpc_status", "is\""].iter().any(asks)
                && (counts_if.starts_with('{') || counts_if.contains("failure"));
            let is_slots = rule.quota().algorithm() == AlgorithmKind::Concurrent;
            let why = if let Some(by) = by.iter().find(|by| !has(by)) {
                format!("no line has what it counts by, {by}")
            } else if is_slots && !format.has_durations() {
                "it has slots, and no line says how long its request took".to_owned()
            } else if !is_of_status {
                "its count_if asks for more of a response than the status".to_owned()
            } else {
                continue;
            };
            left_out.insert(rule.name().to_owned(), why);
        }
        left_out
    }
}
