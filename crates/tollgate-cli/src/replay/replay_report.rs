//! What a replay has shown: tables, JSON, a picture.

use std::{
    collections::BTreeSet,
    fs,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;
use tollgate_core::Tick;

use crate::{
    exit::Exit,
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

/// How many clients are listed.
const LISTED: usize = 20;

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
        let [from, to] = [read.from.unwrap_or_default(), read.to].map(time);
        let notes = self.notes(result);
        let mut text = format!(
            "{lines} lines, {} requests, {from} to {to}\n{}",
            result.requests,
            notes.join("\n")
        );
        let mut json = json!({ "lines": lines, "requests": result.requests, "from": from, "to": to, "notes": notes });
        json["late"] = read.late.into();
        json["broken"] = (read.broken.lines + result.broken.lines).into();
        let paths = [self.args.rules.rules.as_ref(), self.args.against.as_ref()];
        for (index, (result, path)) in results.iter().zip(paths.into_iter().flatten()).enumerate() {
            let (rules, clients) = (
                rule_table(result),
                self.client_table(index, result, usize::MAX),
            );
            text += &format!(
                "\n\n{}: {} requests are denied\n{}",
                path.display(),
                result.denied,
                rules.text()
            );
            for (rule, why) in &self.trials[index].left_out {
                text += &format!("left out: {rule}: {why}\n");
            }
            if !result.clients.is_empty() {
                text += &format!("\n{}", self.client_table(index, result, LISTED).text());
            }
            let left_out = &self.trials[index].left_out;
            let tried = json!({ "denied": result.denied, "rules": rules.json(), "clients": clients.json(), "left_out": left_out });
            json[["tried", "against"][index]] = tried;
        }
        if let [before, after] = results {
            text += &format!("\nside by side\n{}", side_by_side(before, after).text());
        }
        if self.args.lower {
            let table = lower_table(result, lower);
            text += &format!("\n{}", table.text());
            json["lower"] = table.json();
        }
        if let Some(path) = &self.args.svg {
            let share = |step: &RuleResult| step.denied as f64 / step.requests.max(1) as f64;
            let lines =
                by_step(result, lower).map(|(rule, steps)| (rule, steps.map(share).collect()));
            let failed = |wrong| Failure::failed(format!("--svg {}: {wrong}", path.display()));
            fs::write(path, svg::picture(lines)).map_err(failed)?;
        }
        let nobody = results.iter().all(|result| result.denied == 0);
        Ok(Report::new(text, json, Exit::of(nobody)))
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
        for (rule, _) in self.trials[0].document.keyed_rules() {
            if let (Some(wait), false) = (
                rule.at_most_wait(),
                self.trials[0].left_out.contains_key(rule.name()),
            ) {
                let wait = time_text::duration(wait);
                notes.push(format!(
                    "{}: what would wait for up to {wait} counts as denied",
                    rule.name()
                ));
            }
        }
        notes
    }

    /// The clients that are denied most often, each with the first line.
    fn client_table(&self, trial: usize, result: &TrialResult, most: usize) -> Table {
        let mut table = Table::new(["rule", "client", "#denied", "first", "line"]);
        let mut clients: Vec<_> = result.clients.iter().collect();
        clients.sort_by_key(|(_, client)| (u64::MAX - client.times, client.first));
        for ((rule, key), client) in clients.into_iter().take(most) {
            let document = &self.trials[trial].document;
            let clear = self
                .args
                .show_keys
                .then(|| document.key_text(rule, key.as_ref()));
            let hash = client.hash.map(|hash| format!("{hash:032x}"));
            table.row([
                rule.clone(),
                clear.flatten().or(hash).unwrap_or_else(|| "-".to_owned()),
                client.times.to_string(),
                time(client.first.at),
                format!(
                    "{}:{}",
                    self.files[client.first.file].name, client.first.number
                ),
            ]);
        }
        table
    }
}

fn time(at: Tick) -> String {
    time_text::time(UNIX_EPOCH + Duration::from_micros(at))
}

fn rule_table(result: &TrialResult) -> Table {
    let titles = [
        "rule",
        "limit",
        "mode",
        "#requests",
        "#denied",
        "#clients denied",
        "first denial",
    ];
    let mut table = Table::new(titles);
    for rule in &result.rules {
        let clients = result
            .clients
            .iter()
            .filter(|((name, _), _)| *name == rule.rule);
        let first = clients.clone().map(|(_, client)| client.first).min();
        table.row([
            rule.rule.clone(),
            rule.limit.clone(),
            rule.mode.to_owned(),
            rule.requests.to_string(),
            rule.denied.to_string(),
            clients.count().to_string(),
            first.map_or_else(String::new, |first| time(first.at)),
        ]);
    }
    table
}

/// Two sets of rules, rule by rule.
fn side_by_side(before: &TrialResult, after: &TrialResult) -> Table {
    let titles = [
        "rule",
        "limit",
        "limit against",
        "#denied",
        "#denied against",
        "#clients newly denied",
        "#no longer",
    ];
    let mut table = Table::new(titles);
    let rules = before
        .rules
        .iter()
        .chain(&after.rules)
        .map(|rule| &rule.rule);
    for name in rules.collect::<BTreeSet<_>>() {
        let numbers = [before, after].map(|result| {
            let rule = result.rules.iter().find(|rule| rule.rule == *name);
            rule.map_or_else(Default::default, |rule| {
                (rule.limit.clone(), rule.denied.to_string())
            })
        });
        let only = |one: &TrialResult, other: &TrialResult| {
            let of_rule = one.clients.keys().filter(|(rule, _)| rule == name);
            of_rule
                .filter(|client| !other.clients.contains_key(*client))
                .count()
                .to_string()
        };
        let [(limit, denied), (other_limit, other_denied)] = numbers;
        let (newly, no_longer) = (only(after, before), only(before, after));
        table.row([
            name.clone(),
            limit,
            other_limit,
            denied,
            other_denied,
            newly,
            no_longer,
        ]);
    }
    table
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
    let titles = [
        "rule",
        "denies nobody down to",
        "the limit then",
        "#denied at 80 %",
        "#50 %",
        "#20 %",
        "#10 %",
    ];
    let mut table = Table::new(titles);
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
