//! What a replay has shown: tables, JSON, a picture.

use std::{
    collections::BTreeSet,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;
use tollgate::Key;
use tollgate_core::Tick;

use crate::{
    replay::{
        reading::{LogFile, Reading},
        trial::{RuleResult, Trial, TrialResult},
    },
    report::{self, Exit, Report, Table},
};

/// What a report is made from.
pub(crate) struct Reporting<'a> {
    /// How many clients are listed.
    pub(crate) most: usize,
    pub(crate) files: &'a [LogFile],
    /// Those of the results, without those of lower limits.
    pub(crate) trials: &'a [Trial],
    pub(crate) read: &'a Reading,
    /// What lines do not have.
    pub(crate) lacks: Vec<String>,
}

impl Reporting<'_> {
    /// The report, which says no if anybody is denied, and yes only of whole logs.
    pub(crate) fn report(&self, results: &[TrialResult], lower: &[TrialResult]) -> Report {
        let (read, result) = (self.read, &results[0]);
        let lines: u64 = self.files.iter().map(|file| file.lines).sum();
        let (from, to) = (time(read.from.unwrap_or_default()), time(read.to));
        let notes = self.notes();
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
            "broken": read.broken,
            "late": read.late,
            "notes": notes,
            "denied": denied,
        });
        let mut tables = vec![
            ("rules", self.rule_table(results)),
            ("clients", self.client_table(results)),
        ];
        if !lower.is_empty() {
            tables.push(("lower", lower_table(result, lower)));
        }
        for (name, table) in tables {
            text += &format!("\n{}", table.text());
            json[name] = table.json();
        }
        let is_harmless = denied.iter().all(|denied| *denied == 0);
        let mut report = Report::new(text, json, is_harmless);
        // Whom the rest of the log denies is not known.
        if is_harmless && self.files.iter().any(|file| file.broke_off.is_some()) {
            report.exit = Exit::Failed;
        }
        report
    }

    /// Each rule, by the documents that it is in, one below the other.
    fn rule_table(&self, results: &[TrialResult]) -> Table {
        let mut table = Table::new(
            "rule | of | limit | mode | #requests | #denied | #clients denied | #only here | first denial",
        );
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
                    self.trials[index].origin.clone(),
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
    fn notes(&self) -> Vec<String> {
        let (read, mut notes) = (self.read, self.lacks.clone());
        let counted = |number: u64, what: &str| (number > 0).then(|| format!("{number} {what}"));
        let broken = "lines were not understood; the first of them:";
        notes.extend(counted(read.broken, broken));
        for (place, why) in &read.first_broken {
            let file = &self.files[place.file].name;
            notes.push(format!("  {file}:{}: {why}", place.number));
        }
        for trial in self.trials {
            for (rule, why) in &trial.left_out {
                notes.push(format!("left out of {}: {rule}: {why}", trial.origin));
            }
        }
        for file in self.files {
            let (name, lines) = (&file.name, file.lines);
            let why = file.broke_off.iter();
            notes.extend(why.map(|why| format!("{name} breaks off after {lines} lines: {why}")));
        }
        let late = "lines came long after later ones, as when a clock was put back; their requests count when the line came";
        notes.extend(counted(read.late, late));
        let denied = "requests were answered 429 then; they count here as any other";
        notes.extend(counted(read.denied_then, denied));
        notes
    }

    /// The clients that are denied most often, each with the first line.
    fn client_table(&self, results: &[TrialResult]) -> Table {
        let mut table = Table::new("rule | of | client | #denied | first | line");
        for (index, result) in results.iter().enumerate() {
            let mut clients: Vec<_> = result.clients.iter().collect();
            clients.sort_by_key(|(_, client)| (u64::MAX - client.times, client.first));
            for ((rule, _), client) in clients.into_iter().take(self.most) {
                let hash = client.hash.map(|hash| format!("{hash:032x}"));
                let file = &self.files[client.first.file].name;
                table.row([
                    rule.clone(),
                    self.trials[index].origin.clone(),
                    hash.unwrap_or_else(|| "-".to_owned()),
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
    report::time(UNIX_EPOCH + Duration::from_micros(at))
}

/// Each enforced rule, with what becomes of its requests at each step.
fn by_step<'a>(
    result: &'a TrialResult,
    lower: &'a [TrialResult],
) -> impl Iterator<Item = (&'a str, Vec<&'a RuleResult>)> {
    let enforced = result.rules.iter().filter(|rule| rule.mode == "enforced");
    enforced.map(|rule| {
        let steps = lower
            .iter()
            .flat_map(|step| &step.rules)
            .filter(|step| step.rule == rule.rule);
        (&*rule.rule, steps.collect())
    })
}

fn lower_table(result: &TrialResult, lower: &[TrialResult]) -> Table {
    let mut table = Table::new(
        "rule | denies nobody down to | the limit then | #denied at 80 % | #50 % | #20 % | #10 %",
    );
    for (rule, steps) in by_step(result, lower) {
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

/// The parts of its limits that each rule is tried with, in percent.
pub(crate) const STEPS: [u32; 10] = [100, 90, 80, 70, 60, 50, 40, 30, 20, 10];

const COLOURS: [&str; 6] = [
    "#0b6bcb", "#d1495b", "#2e8540", "#8a5cd1", "#b36b00", "#00798c",
];

/// A line for each rule: the share of its requests that is denied, by step.
pub(crate) fn picture(result: &TrialResult, lower: &[TrialResult]) -> String {
    let share = |step: &RuleResult| step.denied as f64 / step.requests.max(1) as f64;
    let shares = by_step(result, lower)
        .flat_map(|(_, steps)| steps)
        .map(share);
    // A picture of nothing has a scale as well.
    let most = shares.fold(0.01, f64::max);
    let x = |step: usize| 60 + 560 * step / (STEPS.len() - 1);
    let (mut lines, mut legend) = (String::new(), 350);
    for part in 0..=4 {
        let (y, percent) = (320 - 70 * part, most * f64::from(part) * 25.0);
        lines += &format!(
            "<path d=\"M60 {y}H620\" stroke=\"#ddd\"/><text x=\"4\" y=\"{y}\">{percent:.2} %</text>\n"
        );
    }
    for (step, percent) in STEPS.iter().enumerate() {
        let x = x(step);
        lines += &format!("<text x=\"{x}\" y=\"340\" text-anchor=\"middle\">{percent} %</text>\n");
    }
    for ((rule, steps), colour) in by_step(result, lower).zip(COLOURS.iter().cycle()) {
        let points = steps.iter().enumerate().map(|(step, it)| {
            let y = 320.0 - 280.0 * share(it) / most;
            format!("{},{y:.1} ", x(step))
        });
        let points: String = points.collect();
        let rule = rule.replace('&', "&amp;").replace('<', "&lt;");
        legend += 18;
        lines += &format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n<text x=\"60\" y=\"{legend}\" \
             fill=\"{colour}\">{rule}</text>\n"
        );
    }
    let height = legend + 20;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\" viewBox=\"0 0 660 {height}\">\n\
         <rect width=\"660\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"60\" y=\"22\" font-size=\"14\">Requests denied, by the part of \
         the limit that is left</text>\n{lines}</svg>\n"
    )
}
