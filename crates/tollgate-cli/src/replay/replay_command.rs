//! The command: logs in, a report out.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use tollgate_core::AlgorithmKind;
use tollgate_rules::{Bindings, Format, RuleDocument, RuleText};

use crate::{
    args::{SecretArgs, parse_pair},
    replay::{
        line_format::{LineFormat, PATTERNS},
        reading::{LogFile, Reading, read},
        replay_report::{Reporting, STEPS, picture},
        trial::{Trial, TrialResult},
    },
    report::{Failure, Report},
    rule_args::{self, RuleArgs},
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
    logs: Vec<PathBuf>,

    #[command(flatten)]
    rules: RuleArgs,

    /// Other rules, which are tried on the same requests.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,

    /// Says how far each limit could go down before it denies anybody: by tens of percent, each rule as if it were alone.
    #[arg(long)]
    lower: bool,

    /// Draws what lower limits would deny into this file.
    #[arg(long, value_name = "FILE", requires = "lower")]
    svg: Option<PathBuf>,

    /// The format of the lines: combined (nginx, Apache), common, alb, envoy, json, or a log_format of nginx. Default: found out.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// In JSON, where a variable of nginx is: request_uri=req.url. May be given several times.
    #[arg(long = "field", value_name = "VARIABLE=NAME", value_parser = |pair: &str| parse_pair(pair, "request_uri=req.url"))]
    fields: Vec<(String, String)>,

    /// How many clients are listed, those that are denied most often.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    most: usize,

    #[command(flatten)]
    secret: SecretArgs,
}

impl ReplayArgs {
    /// How the lines of a sample are read.
    fn format(&self, sample: &[&[u8]]) -> Result<LineFormat, Failure> {
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
    fn left_out(&self, document: &RuleDocument, format: &LineFormat) -> BTreeMap<String, String> {
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

pub(crate) fn run(args: &ReplayArgs) -> Result<Report, Failure> {
    let bindings = args
        .rules
        .bound
        .bindings(args.secret.find()?.as_ref())?
        .peers_are_clients();
    let path = args.rules.path()?;
    let text = RuleText::read_path(path)?;
    let mut documents = vec![(path, text.parse(&bindings)?)];
    if let Some(other) = &args.against {
        documents.push((other, rule_args::document(other, &bindings)?));
    }
    let tried = documents.len();
    if args.lower {
        for percent in STEPS {
            documents.push((path, lowered(&text, percent, &bindings)?));
        }
    }
    // It is seen on a terminal only.
    let sizes = args
        .logs
        .iter()
        .map(|path| fs::metadata(path).map_or(0, |it| it.len()));
    let bar = ProgressBar::new(sizes.sum());
    let mut files = Vec::new();
    for path in &args.logs {
        let failed = |wrong| Failure::failed(format!("{} cannot be read: {wrong}", path.display()));
        files.push(LogFile::open(path, &bar).map_err(failed)?);
    }
    let sample: Vec<_> = files.iter().flat_map(LogFile::sample).collect();
    if sample.iter().all(|line| line.is_empty()) {
        return Err(Failure::failed(
            "the log is empty: it has no line to replay",
        ));
    }
    let format = args.format(&sample)?;
    let trials = documents.into_iter().map(|(path, document)| Trial {
        origin: path.display().to_string(),
        left_out: args.left_out(&document, &format),
        document: Arc::new(document),
    });
    let trials: Vec<Trial> = trials.collect();
    let is_empty = |trial: &&Trial| trial.left_out.len() == trial.document.names().count();
    let no_request = |why: Option<&str>| {
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        Failure::failed(format!(
            "no line is a request{why}; is it of another --format?"
        ))
    };
    if let Some(trial) = trials.iter().find(is_empty) {
        let mut wrong = sample.iter().map(|line| format.answered(line).err());
        // The rules are not to blame for a log that is not read.
        if wrong.clone().all(|why| why.is_some()) {
            return Err(no_request(wrong.next().flatten()));
        }
        let reasons = trial
            .left_out
            .iter()
            .map(|(rule, why)| format!("\n{rule}: {why}"));
        let reasons: String = reasons.collect();
        return Err(Failure::usage(format!(
            "no rule can be tried on this log{reasons}"
        )));
    }
    let lacks = format.lacks(&sample, &args.fields);
    let (read, mut results) = replay(&mut files, &format, &trials)?;
    bar.finish_and_clear();
    if results[0].requests == 0 {
        return Err(no_request(read.first_broken.first().map(|(_, why)| *why)));
    }
    let lower = results.split_off(tried);
    if let Some(path) = &args.svg {
        let failed = |wrong| Failure::failed(format!("--svg {}: {wrong}", path.display()));
        fs::write(path, picture(&results[0], &lower)).map_err(failed)?;
    }
    let reporting = Reporting {
        most: args.most,
        files: &files,
        trials: &trials[..tried],
        read: &read,
        lacks,
    };
    Ok(reporting.report(&results, &lower))
}

/// Each rule alone, in thought, with that part of its limits.
fn lowered(text: &RuleText, percent: u32, bindings: &Bindings) -> Result<RuleDocument, Failure> {
    let part = if percent == 100 {
        "shadow".to_owned()
    } else {
        format!("{percent}%")
    };
    let switches = [part.as_str(), "shadow"].map(|limit| json!({ "rules": "*", "limit": limit }));
    let switches = json!({ "version": 1, "switches": switches }).to_string();
    let text = text
        .clone()
        .and(RuleText::named("--lower", switches, Format::Json));
    Ok(text.parse(bindings)?)
}

/// Reads all files, and tries each set of rules in a thread of its own.
fn replay(
    files: &mut [LogFile],
    format: &LineFormat,
    trials: &[Trial],
) -> Result<(Reading, Vec<TrialResult>), Failure> {
    thread::scope(|scope| {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        for trial in trials {
            let (sender, lines) = mpsc::sync_channel(4);
            senders.push(sender);
            threads.push(scope.spawn(move || trial.run(&lines)));
        }
        let read = read(files, format, |lines| {
            let lines = Arc::new(lines);
            // A thread that has failed says so when it is joined.
            senders
                .iter()
                .all(|sender| sender.send(Arc::clone(&lines)).is_ok())
        });
        drop(senders);
        let results = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result.map_err(Failure::failed),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok((read, results.collect::<Result<_, _>>()?))
    })
}
