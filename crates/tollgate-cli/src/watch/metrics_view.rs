//! What rules do at present, from two looks at a page of metrics.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::{table::Table, watch::metrics_page::Sample};

const REQUESTS: &str = "tollgate_requests_total";

/// What one rule has decided since the look before.
#[derive(Clone, Debug, Default, PartialEq)]
struct Decided {
    /// By decision, per second.
    rates: BTreeMap<String, f64>,
    /// Denied requests, by reason.
    reasons: BTreeMap<String, f64>,
}

impl Decided {
    fn of(&self, decision: &str) -> f64 {
        self.rates.get(decision).copied().unwrap_or(0.0)
    }

    fn all(&self) -> f64 {
        self.rates.values().sum()
    }

    /// The reasons of denials, the commonest first.
    fn why(&self) -> String {
        let mut reasons: Vec<_> = self
            .reasons
            .iter()
            .filter(|(_, rate)| **rate > 0.0)
            .collect();
        reasons.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let names: Vec<_> = reasons.iter().map(|(reason, _)| reason.as_str()).collect();
        names.join(", ")
    }
}

/// Tables for people and programs: the rules that deny most first.
pub(crate) fn view(
    before: &[Sample],
    after: &[Sample],
    over: Duration,
    most: usize,
) -> (String, Value) {
    let rules = decided(before, after, over);
    let mut sorted: Vec<_> = rules.iter().collect();
    sorted.sort_by(|(one_name, one), (other_name, other)| {
        let key = |decided: &Decided| (decided.of("denied"), decided.all());
        let (one, other) = (key(one), key(other));
        other
            .0
            .total_cmp(&one.0)
            .then(other.1.total_cmp(&one.1))
            .then(one_name.cmp(other_name))
    });
    sorted.truncate(most);
    let mut table = Table::new([
        "rule",
        "#requests/s",
        "#denied/s",
        "#denied",
        "#degraded/s",
        "#shadow denied/s",
        "why",
    ]);
    let mut json = Vec::new();
    for (name, decided) in &sorted {
        let (all, denied) = (decided.all(), decided.of("denied"));
        let share = if all > 0.0 { denied / all } else { 0.0 };
        table.row([
            (*name).clone(),
            format!("{all:.1}"),
            format!("{denied:.1}"),
            format!("{:.1} %", share * 100.0),
            format!("{:.1}", decided.of("degraded")),
            format!("{:.1}", decided.of("shadow_denied")),
            decided.why(),
        ]);
        json.push(json!({
            "rule": name,
            "per_second": decided.rates,
            "denied_per_second_by_reason": decided.reasons,
        }));
    }
    let text = match rules.is_empty() {
        true => format!(
            "there is no {REQUESTS} on this page: is the feature `metrics` of tollgate on, and has a request come?\n"
        ),
        false => table.text(),
    };
    (
        text,
        json!({ "seconds": over.as_secs_f64(), "rules": json }),
    )
}

fn decided(before: &[Sample], after: &[Sample], over: Duration) -> BTreeMap<String, Decided> {
    let mut rules: BTreeMap<String, Decided> = BTreeMap::new();
    let (before, after) = (counts(before), counts(after));
    for ((rule, decision, reason), count) in after {
        let key = (rule.clone(), decision.clone(), reason.clone());
        let earlier = before.get(&key).copied().unwrap_or(0.0);
        // A process that was started anew counts from 0.
        let grown = if count >= earlier {
            count - earlier
        } else {
            count
        };
        let rate = grown / over.as_secs_f64().max(f64::MIN_POSITIVE);
        let decided = rules.entry(rule).or_default();
        if decision == "denied" && !reason.is_empty() {
            *decided.reasons.entry(reason).or_insert(0.0) += rate;
        }
        *decided.rates.entry(decision).or_insert(0.0) += rate;
    }
    rules
}

/// Requests by rule, decision and reason, whatever other labels there are.
fn counts(samples: &[Sample]) -> BTreeMap<(String, String, String), f64> {
    let mut counts = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.name == REQUESTS) {
        let label = |name: &str| sample.labels.get(name).cloned().unwrap_or_default();
        if sample.value.is_finite() {
            let key = (label("rule"), label("decision"), label("reason"));
            *counts.entry(key).or_insert(0.0) += sample.value;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics_page::samples;

    #[test]
    fn the_rule_that_denies_most_is_first_and_other_labels_are_added_up() {
        let page = |denied: u32| {
            samples(&format!(
                "tollgate_requests_total{{rule=\"a\",decision=\"allowed\"}} 100\n\
                 tollgate_requests_total{{rule=\"b\",decision=\"denied\",plan=\"x\",reason=\"quota\"}} {denied}\n\
                 tollgate_requests_total{{rule=\"b\",decision=\"denied\",plan=\"y\",reason=\"never\"}} {denied}\n\
                 tollgate_requests_total{{rule=\"b\",decision=\"degraded\"}} 4\n\
                 other_total{{rule=\"c\"}} 7\n"
            ))
        };
        let second = Duration::from_secs(2);
        let (text, json) = view(&page(10), &page(20), second, 10);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[1].starts_with("b ") && lines[2].starts_with("a "),
            "{text}"
        );
        assert!(
            lines[1].contains("10.0") && lines[1].contains("100.0 %"),
            "{text}"
        );
        assert_eq!(lines.len(), 3);
        assert_eq!(json["rules"][0]["per_second"]["denied"], 10.0);
        // A restart: what is there now has come since.
        let (_, json) = view(&page(20), &page(3), second, 1);
        assert_eq!(json["rules"][0]["per_second"]["denied"], 3.0);
        let (text, _) = view(&[], &[], second, 1);
        assert!(text.contains("feature `metrics`"), "{text}");
    }

    #[test]
    fn why_a_rule_denies_is_said_with_the_commonest_reason_first() {
        let page = |often: u32| {
            samples(&format!(
                "tollgate_requests_total{{rule=\"a\",decision=\"denied\",reason=\"never\"}} {often}\n\
                 tollgate_requests_total{{rule=\"a\",decision=\"denied\",reason=\"quota\"}} {}\n\
                 tollgate_requests_total{{rule=\"a\",decision=\"denied\",reason=\"slots\"}} 7\n\
                 tollgate_requests_total{{rule=\"a\",decision=\"allowed\",reason=\"other\"}} {often}\n\
                 tollgate_requests_total{{rule=\"a\",decision=\"denied\"}} {often}\n",
                often * 2
            ))
        };
        let (text, _) = view(&page(1), &page(2), Duration::from_secs(1), 1);
        let line = text.lines().nth(1).expect("a rule");
        assert!(line.ends_with(" quota, never"), "{text}");
    }

    #[test]
    fn of_rules_that_deny_alike_the_busier_is_first() {
        let page = |quiet: u32| {
            samples(&format!(
                "tollgate_requests_total{{rule=\"a\",decision=\"allowed\"}} {quiet}\n\
                 tollgate_requests_total{{rule=\"b\",decision=\"allowed\"}} {}\n",
                quiet * 2
            ))
        };
        let (_, json) = view(&page(1), &page(2), Duration::from_secs(1), 2);
        assert_eq!(json["rules"][0]["rule"], "b");
        assert_eq!(json["rules"][1]["rule"], "a");
    }
}
