//! What is wrong, in words: the worst first.

use std::fmt::Display;

use serde_json::{Value, json};
use tollgate_core::sync::lock;
use tollgate_rules::RulesStatus;

use crate::{
    console::Shared,
    samples::{DEGRADED, FALLBACK, Samples, Tally, add, share_denied, share_shadowed},
};

/// How many rules are named.
const NAMED: usize = 10;
/// From how many denials on, and from which share of a rule's checks on, a rule is named.
const DENIALS: u64 = 10;
const PERCENT: u64 = 5;

/// What is wrong: `bad`, to be watched (`warn`), or worth a `note`.
fn problem(level: &str, text: impl Display) -> Value {
    json!({ "level": level, "text": text.to_string() })
}

pub(crate) fn problems(shared: &Shared) -> Vec<Value> {
    let mut found = Vec::new();
    #[cfg(feature = "redis")]
    if let Some(store) = &shared.parts.store
        && let Some(trouble) = store.connection_error()
    {
        let text = "Redis does not decide, and each rule answers as it does when its store fails";
        found.push(problem("bad", format!("{text}: {trouble}")));
    }
    if let Some(rules) = &shared.parts.rules {
        found.extend(of_rules(&rules.status()));
    }
    let samples = lock(&shared.samples);
    let (mut all, mut denying, mut shadows) = (Tally::default(), Vec::new(), Vec::new());
    for (number, (_, layer)) in shared.parts.layers.iter().enumerate() {
        for rule in layer.limiter().rules().rules() {
            let recent = samples.recent(number, rule.name(), 1);
            add(&mut all, &recent);
            for ((denied, decided), list) in [
                (share_denied(&recent), &mut denying),
                (share_shadowed(&recent), &mut shadows),
            ] {
                if denied >= DENIALS && denied * 100 >= decided * PERCENT {
                    list.push((denied, decided, number, rule.name().to_owned()));
                }
            }
        }
    }
    drop(samples);
    if all[FALLBACK] > 0 {
        let (checks, passed) = (all[FALLBACK], all[DEGRADED]);
        found.push(problem("bad", format!(
            "The store fails: {checks} checks of the last two minutes were decided without it, {passed} of them let through uncounted"
        )));
    }
    let misses = lock(&shared.scrapes).deadline_misses();
    if misses > 0.0 {
        let text = "calls to Redis had no reply within the deadline in the last ten seconds";
        found.push(problem("warn", format!("{misses:.0} {text}")));
    }
    denying.sort_by(|one, other| other.cmp(one));
    for (denied, decided, layer, rule) in denying.iter().take(NAMED) {
        let share = share(*denied, *decided);
        let mut text = format!("{rule} denies {share} in the last two minutes");
        if let Some(client) = mostly_one(shared, *layer, rule) {
            text.push_str(&format!("; most denials are of one client, {client}"));
        }
        found.push(problem("warn", text));
    }
    if denying.len() > NAMED {
        let others = denying.len() - NAMED;
        let text = format!("{others} other rules deny more than {PERCENT} %");
        found.push(problem("warn", text));
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

fn of_rules(status: &RulesStatus) -> Vec<Value> {
    let mut found = Vec::new();
    if let Some(rejection) = &status.last_rejection {
        let revision = status.revision;
        let text = format!("The latest rules are rejected, and revision {revision} stays in force");
        found.push(problem("bad", format!("{text}:\n{rejection}")));
    }
    if let Some(error) = &status.source_error {
        let text = format!("The source of the rules has none at present: {error}");
        found.push(problem("bad", text));
    }
    let wrong = status.wrong_lists.iter().chain(&status.lost);
    found.extend(wrong.map(|wrong| problem("bad", wrong)));
    let Some(fleet) = &status.fleet else {
        return found;
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
        let (ahead, processes) = (fleet.ahead, fleet.processes);
        let text =
            format!("{ahead} of {processes} processes have newer rules than Redis: push again");
        found.push(problem("bad", text));
    }
    found
}

/// The client that has more than half of a rule's denials, as the log shows it.
fn mostly_one(shared: &Shared, layer: usize, rule: &str) -> Option<String> {
    let limiter = shared.parts.layers.get(layer)?.1.limiter();
    let keys = limiter.top_keys(rule, usize::MAX).ok()?;
    let all: u64 = keys.iter().map(|key| key.denials).sum();
    let most = keys.iter().max_by_key(|key| key.denials)?;
    let name = || most.label.clone().unwrap_or_else(|| most.key.to_string());
    (all >= DENIALS && most.denials * 2 > all).then(name)
}

/// What the last sample has of each rule that was used: its number, and its counts.
pub(crate) fn used(shared: &Shared, samples: &Samples) -> Vec<Value> {
    let (mut used, mut number) = (Vec::new(), 0);
    for (layer, (_, it)) in shared.parts.layers.iter().enumerate() {
        for rule in it.limiter().rules().rules() {
            let last = samples.last(layer, rule.name());
            if last.iter().any(|count| *count > 0) {
                used.push(json!([number, last]));
            }
            number += 1;
        }
    }
    used
}
