//! What a replay has shown: tables, JSON, a picture.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;
use tollgate::Key;
use tollgate_core::Tick;

use crate::{
    failure::Failure,
    replay::{
        log_file::LogFile,
        reading::Read,
        replay_args::ReplayArgs,
        svg::{self, STEPS},
        trial::{RuleResult, Trial, TrialResult},
    },
    report::Report,
    table::Table,
    time_text,
};

/// What a report is made from.
pub(crate) struct Reporting<'a> {
    pub(crate) args: &'a ReplayArgs,
    pub(crate) files: &'a [LogFile],
    pub(crate) trials: &'a [Trial<'a>],
    pub(crate) read: &'a Read,
}

impl Reporting<'_> {
    /// The report, which says no if anybody is denied.
    pub(crate) fn report(
        &self,
        results: &[TrialResult],
        lower: &[TrialResult],
    ) -> Result<Report, Failure> {
        let (read, result) = (self.read, &results[0]);
        let lines: u64 = self.files.iter().map(|file| file.lines).sum();
        let (from, to) = (time(read.from.unwrap_or_default()), time(read.to));
        let notes = self.notes(result);
        let mut text = format!(
            "{lines} lines, {} requests, {from} to {to}\n",
            result.requests
        );
        notes.iter().for_each(|note| text += &format!("{note}\n"));
        let denied: Vec<u64> = results.iter().map(|result| result.denied).collect();
        let mut json = json!({
            "lines": lines,
            "requests": result.requests,
            "from": from,
            "to": to,
            "broken": read.broken.lines + result.broken.lines,
            "late": read.late,
            "notes": notes,
            "denied": denied,
        });
        let mut tables = vec![
            ("rules", self.rule_table(results)),
            ("clients", self.client_table(results)),
        ];
        if self.args.lower {
            tables.push(("lower", lower_table(result, lower)));
        }
        for (name, table) in tables {
            text += &format!("\n{}", table.text());
            json[name] = table.json();
        }
        if let Some(path) = &self.args.svg {
            let share = |step: &RuleResult| step.denied as f64 / step.requests.max(1) as f64;
            let lines = by_step(result, lower);
            let picture =
                svg::picture(lines.map(|(rule, steps)| (rule, steps.map(share).collect())));
            let failed = |wrong| Failure::failed(format!("--svg {}: {wrong}", path.display()));
            fs::write(path, picture).map_err(failed)?;
        }
        let is_harmless = denied.iter().all(|denied| *denied == 0);
        Ok(Report::new(text, json, is_harmless))
    }

    /// Where the rules of a result are from.
    fn origin(&self, trial: usize) -> String {
        let paths = [self.args.rules.rules.as_ref(), self.args.against.as_ref()];
        paths[trial].map_or_else(String::new, |path| path.display().to_string())
    }

    /// Each rule, by the documents that it is in, one below the other.
    fn rule_table(&self, results: &[TrialResult]) -> Table {
        let mut table = Table::new([
            "rule",
            "of",
            "limit",
            "mode",
            "#requests",
            "#denied",
            "#clients denied",
            "#only here",
            "first denial",
        ]);
        let all = results.iter().flat_map(|result| &result.rules);
        for name in all.map(|rule| &rule.rule).collect::<BTreeSet<_>>() {
            for (index, result) in results.iter().enumerate() {
                let Some(rule) = result.rules.iter().find(|rule| rule.rule == *name) else {
                    continue;
                };
                let clients = result.clients.iter().filter(|((rule, _), _)| rule == name);
                let is_only_here = |client: &&(String, Key)| {
                    let mut others = results.iter().enumerate();
                    others.all(|(other, it)| other == index || !it.clients.contains_key(*client))
                };
                let first = clients.clone().map(|(_, client)| client.first).min();
                table.row([
                    name.clone(),
                    self.origin(index),
                    rule.limit.clone(),
                    rule.mode.to_owned(),
                    rule.requests.to_string(),
                    rule.denied.to_string(),
                    clients.clone().count().to_string(),
                    clients
                        .map(|(client, _)| client)
                        .filter(is_only_here)
                        .count()
                        .to_string(),
                    first.map_or_else(String::new, |first| time(first.at)),
                ]);
            }
        }
        table
    }

    /// What does not go into tables, a line each.
    fn notes(&self, result: &TrialResult) -> Vec<String> {
        let (read, mut notes) = (self.read, Vec::new());
        let broken = [&read.broken, &result.broken];
        let lines: u64 = broken.iter().map(|broken| broken.lines).sum();
        if lines > 0 {
            notes.push(format!(
                "{lines} lines were not understood; the first of them:"
            ));
            for (file, number, why) in broken.iter().flat_map(|broken| &broken.first) {
                notes.push(format!("  {}:{number}: {why}", self.files[*file].name));
            }
        }
        let trials = self.trials.iter().enumerate();
        for (index, trial) in trials.take(1 + usize::from(self.args.against.is_some())) {
            for (rule, why) in &trial.left_out {
                notes.push(format!("left out of {}: {rule}: {why}", self.origin(index)));
            }
        }
        for file in self.files {
            if let Some(why) = &file.broke_off {
                notes.push(format!(
                    "{} breaks off after {} lines: {why}",
                    file.name, file.lines
                ));
            }
        }
        if read.late > 0 {
            notes.push(format!(
                "{} lines came long after later ones, as when a clock was put back; their requests count when the line came",
                read.late
            ));
        }
        if read.denied_then > 0 {
            notes.push(format!(
                "{} requests were answered 429 then; they count here as any other",
                read.denied_then
            ));
        }
        for rule in result.rules.iter().filter(|rule| rule.requests == 0) {
            notes.push(format!(
                "{} counts no request: does its `when` ask for what no line has?",
                rule.rule
            ));
        }
        let first = &self.trials[0];
        for (rule, _) in first.document.keyed_rules() {
            let (name, wait) = (rule.name(), rule.at_most_wait());
            if let Some(wait) = wait.filter(|_| !first.left_out.contains_key(name)) {
                let wait = time_text::duration(wait);
                notes.push(format!(
                    "{name}: what would wait for up to {wait} counts as denied"
                ));
            }
        }
        notes
    }

    /// The clients that are denied most often, each with the first line.
    fn client_table(&self, results: &[TrialResult]) -> Table {
        let mut table = Table::new(["rule", "of", "client", "#denied", "first", "line"]);
        for (index, result) in results.iter().enumerate() {
            let mut clients: Vec<_> = result.clients.iter().collect();
            clients.sort_by_key(|(_, client)| (u64::MAX - client.times, client.first));
            for ((rule, key), client) in clients.into_iter().take(self.args.most) {
                let document = &self.trials[index].document;
                let clear = self
                    .args
                    .show_keys
                    .then(|| document.key_text(rule, key.as_ref()));
                let hash = client.hash.map(|hash| format!("{hash:032x}"));
                let file = &self.files[client.first.file].name;
                table.row([
                    rule.clone(),
                    self.origin(index),
                    clear.flatten().or(hash).unwrap_or_else(|| "-".to_owned()),
                    client.times.to_string(),
                    time(client.first.at),
                    format!("{file}:{}", client.first.number),
                ]);
            }
        }
        table
    }
}

fn time(at: Tick) -> String {
    time_text::time(UNIX_EPOCH + Duration::from_micros(at))
}

/// Each rule that denies, with what becomes of its requests at each step.
fn by_step<'a>(
    result: &'a TrialResult,
    lower: &'a [TrialResult],
) -> impl Iterator<Item = (&'a str, impl Iterator<Item = &'a RuleResult>)> {
    let enforced = result.rules.iter().filter(|rule| rule.mode == "enforced");
    enforced.map(|rule| {
        let steps = lower.iter().flat_map(|step| &step.rules);
        (&*rule.rule, steps.filter(|step| step.rule == rule.rule))
    })
}

fn lower_table(result: &TrialResult, lower: &[TrialResult]) -> Table {
    let mut table = Table::new([
        "rule",
        "denies nobody down to",
        "the limit then",
        "#denied at 80 %",
        "#50 %",
        "#20 %",
        "#10 %",
    ]);
    for (rule, steps) in by_step(result, lower) {
        let steps: Vec<&RuleResult> = steps.collect();
        let harmless = steps.iter().take_while(|step| step.denied == 0).count();
        let (down_to, limit) = match harmless.checked_sub(1) {
            None => ("it denies as it is".to_owned(), String::new()),
            Some(last) => (format!("{} %", STEPS[last]), steps[last].limit.clone()),
        };
        let [eighty, fifty, twenty, ten] =
            [2, 5, 8, 9].map(|step: usize| steps[step].denied.to_string());
        table.row([rule.to_owned(), down_to, limit, eighty, fifty, twenty, ten]);
    }
    table
}
