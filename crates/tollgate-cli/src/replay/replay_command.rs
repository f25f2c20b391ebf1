//! The command: logs in, a report out.

use std::{
    fs,
    sync::{Arc, mpsc},
    thread,
};

use indicatif::ProgressBar;
use serde_json::json;
use tollgate_rules::{Bindings, Format, RuleDocument, RuleText};

use crate::{
    replay::{
        line_format::LineFormat,
        reading::{LogFile, Reading, read},
        replay_args::ReplayArgs,
        replay_report::{Reporting, STEPS, picture},
        trial::{Trial, TrialResult},
    },
    report::{Failure, Report},
    rule_args,
};

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
    let format = args.format(&sample)?;
    let trials = documents.into_iter().map(|(path, document)| Trial {
        origin: path.display().to_string(),
        left_out: args.left_out(&document, &format),
        document: Arc::new(document),
    });
    let trials: Vec<Trial> = trials.collect();
    let is_empty = |trial: &&Trial| trial.left_out.len() == trial.document.names().count();
    if let Some(trial) = trials.iter().find(is_empty) {
        let reasons = trial
            .left_out
            .iter()
            .map(|(rule, why)| format!("\n{rule}: {why}"));
        let reasons: String = reasons.collect();
        return Err(Failure::usage(format!(
            "no rule can be tried on this log{reasons}"
        )));
    }
    let (read, mut results) = replay(&mut files, &format, &trials)?;
    bar.finish_and_clear();
    if results[0].requests == 0 {
        let first = read.first_broken.first();
        let why = first.map_or_else(String::new, |(_, why)| format!(": {why}"));
        return Err(Failure::failed(format!(
            "no line is a request{why}; is it of another --format?"
        )));
    }
    let lower = results.split_off(tried);
    if let Some(path) = &args.svg {
        let failed = |wrong| Failure::failed(format!("--svg {}: {wrong}", path.display()));
        fs::write(path, picture(&results[0], &lower)).map_err(failed)?;
    }
    let reporting = Reporting {
        args,
        files: &files,
        trials: &trials[..tried],
        read: &read,
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
