//! What is wrong, in words: the worst first.

use serde_json::{Value, json};
use tollgate_rules::RulesStatus;

use crate::{
    console::{Shared, lock},
    samples::{DEGRADED, FALLBACK, Samples, Tally, add, share_denied, share_shadowed},
};

/// How many rules are named.
const NAMED: usize = 10;
/// From how many denials on, and from which share of a rule's checks on, a rule is named.
const DENIALS: u64 = 10;
const PERCENT: u64 = 5;

/// `level` is `bad`, `warn` or `note`.
fn problem(level: &str, text: impl Into<String>) -> Value {
    json!({ "level": level, "text": text.into() })
}

pub(crate) fn problems(shared: &Shared) -> Vec<Value> {
    let mut found = Vec::new();
    #[cfg(feature = "redis")]
    if let Some(trouble) = shared
        .parts
        .store
        .as_ref()
        .and_then(|store| store.connection_error())
    {
        let text = format!(
            "Redis does not decide, and each rule answers as it does when its store fails: {trouble}"
        );
        found.push(problem("bad", text));
    }
    if let Some(rules) = &shared.parts.rules {
        of_rules(&rules.status(), &mut found);
    }
    let samples = lock(&shared.samples);
    let (mut all, mut denying, mut shadows) = (Tally::default(), Vec::new(), Vec::new());
    for (source, (_, layer)) in shared.parts.sources.iter().enumerate() {
        let limiter = layer.limiter();
        for rule in limiter.rules().rules() {
            let recent = samples.recent(source, rule.name(), 1);
            add(&mut all, &recent);
            for (share, list) in [
                (share_denied(&recent), &mut denying),
                (share_shadowed(&recent), &mut shadows),
            ] {
                let (denied, decided) = share;
                if denied >= DENIALS && denied * 100 >= decided * PERCENT {
                    list.push((denied, decided, source, rule.name().to_owned()));
                }
            }
        }
    }
    drop(samples);
    if all[FALLBACK] > 0 {
        let (checks, passed) = (all[FALLBACK], all[DEGRADED]);
        let text = format!(
            "The store fails: {checks} checks of the last two minutes were decided without it, {passed} of them let through uncounted"
        );
        found.push(problem("bad", text));
    }
    let misses = lock(&shared.scrapes).deadline_misses();
    if misses > 0.0 {
        let text = format!(
            "{misses:.0} calls to Redis had no reply within the deadline in the last ten seconds"
        );
        found.push(problem("warn", text));
    }
    denying.sort_by(|one, other| other.cmp(one));
    for (denied, decided, source, rule) in denying.iter().take(NAMED) {
        let share = share(*denied, *decided);
        let mut text = format!("{rule} denies {share} in the last two minutes");
        if let Some(client) = mostly_one(shared, *source, rule) {
            text.push_str(&format!("; most denials are of one client, {client}"));
        }
        found.push(problem("warn", text));
    }
    if denying.len() > NAMED {
        found.push(problem(
            "warn",
            format!(
                "{} other rules deny more than {PERCENT} %",
                denying.len() - NAMED
            ),
        ));
    }
    shadows.sort_by(|one, other| other.cmp(one));
    for (denied, decided, _, rule) in shadows.iter().take(NAMED) {
        let share = share(*denied, *decided);
        let text = format!("{rule} is a shadow and would deny {share}");
        found.push(problem("note", text));
    }
    found
}

/// `15 %: 1,403 of 8,815 checks`.
fn share(denied: u64, decided: u64) -> String {
    let percent = denied * 100 / decided.max(1);
    format!(
        "{percent} %: {} of {} checks",
        grouped(denied),
        grouped(decided)
    )
}

/// A number as the page writes it, with a comma after thousands.
fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1_000),
    }
}

fn of_rules(status: &RulesStatus, found: &mut Vec<Value>) {
    if let Some(rejection) = &status.last_rejection {
        let text = format!(
            "The latest rules are rejected, and revision {} stays in force:\n{rejection}",
            status.revision
        );
        found.push(problem("bad", text));
    }
    if let Some(error) = &status.source_error {
        found.push(problem(
            "bad",
            format!("The source of the rules has none at present: {error}"),
        ));
    }
    for wrong in status.wrong_lists.iter().chain(&status.lost) {
        found.push(problem("bad", wrong));
    }
    let Some(fleet) = &status.fleet else {
        return;
    };
    for process in &fleet.lagging_processes {
        let mut text = format!(
            "Process {} has revision {} in force, behind revision {} for {} s",
            process.name,
            process.revision,
            fleet.revision,
            process.lagging_for.as_secs()
        );
        if let Some(rejection) = &process.rejection {
            text.push_str(&format!(": {rejection}"));
        }
        found.push(problem("warn", text));
    }
    if fleet.ahead > 0 {
        let text = format!(
            "{} of {} processes have newer rules than Redis: push again",
            fleet.ahead, fleet.processes
        );
        found.push(problem("bad", text));
    }
}

/// The client that has more than half of a rule's denials, as the log shows it.
fn mostly_one(shared: &Shared, source: usize, rule: &str) -> Option<String> {
    let limiter = shared.parts.sources.get(source)?.1.limiter();
    let keys = limiter.top_keys(rule, usize::MAX).ok()?;
    let all: u64 = keys.iter().map(|key| key.denials).sum();
    let most = keys.iter().max_by_key(|key| key.denials)?;
    let name = || most.label.clone().unwrap_or_else(|| most.key.to_string());
    (all >= DENIALS && most.denials * 2 > all).then(name)
}

/// What the last sample has of each rule that was used: its number, and its counts.
pub(crate) fn used(shared: &Shared, samples: &Samples) -> Vec<Value> {
    let (mut used, mut number) = (Vec::new(), 0);
    for (source, (_, layer)) in shared.parts.sources.iter().enumerate() {
        for rule in layer.limiter().rules().rules() {
            let last = samples.last(source, rule.name());
            if last.iter().any(|count| *count > 0) {
                used.push(json!([number, last]));
            }
            number += 1;
        }
    }
    used
}
