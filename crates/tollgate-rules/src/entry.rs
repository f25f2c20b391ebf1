//! What changes the rules of a document for a time: a client's own limit, by its key, and what is switched for some or all rules.

use std::{fmt, sync::Arc};

use tollgate_core::{Quota, RuleSet, Tick};

use crate::{
    node::Value,
    operator_entries::OperatorEntry,
    reader::Item,
    rule_entry::{Client, Override, RuleEntry},
    rule_settings::Mode,
    term::{Term, time},
};

/// The most of a rule's own limit that an override may be, in percent.
const MOST_PERCENT: u64 = 100_000;

impl Override {
    /// A limit of none ends with the entry.
    pub(crate) fn limit(&self, quota: Quota) -> Quota {
        match quota.is_none() && self.term.until < Tick::MAX {
            true => quota.until(time(self.term.until)),
            false => quota,
        }
    }

    /// Reads an override of one of these rules, which `named` finds. `has_secret`: keys may be named by their hash.
    pub(crate) fn read(
        item: Item<'_>,
        rules: &[RuleEntry],
        has_secret: bool,
        named: impl FnOnce(Item<'_>) -> Option<usize>,
    ) -> Option<Self> {
        let fields = item.fields("an override", "override")?;
        let rule = fields.read("rule", named);
        let term = fields.term();
        let rule = rule?;
        let entry = &rules[rule];
        if entry.key.is_of_handler() {
            return item.refuse(format!(
                "rule {:?} is for handlers, which check without plans; a client's own limit is theirs to choose",
                entry.name
            ));
        }
        let client = fields.read("key", |key| match key.value() {
            Value::Table(_) => hash(key, has_secret).map(Client::Hash),
            _ => entry.key.of_text(key, &entry.name).map(Client::Key),
        });
        let quota = fields.read("limit", |limit| match limit.value() {
            Value::Text(text) if text.trim_end().ends_with('%') => part(limit, entry),
            _ => limit.quota(Some(&entry.limit)),
        });
        let (client, quota, term) = (client?, quota?, term?);
        if let Some(message) = mistake(entry, quota) {
            fields.wrong("limit", message);
            return None;
        }
        Some(Self {
            content: item.node.content(),
            rule,
            client,
            quota,
            term,
            set: None,
        })
    }
}

/// A part of the rule's own limit, as `200%`, and rounded up.
fn part(item: Item<'_>, rule: &RuleEntry) -> Option<Quota> {
    let own = rule.limit;
    let permille = item.permille("0.1", MOST_PERCENT)?;
    if permille == 0 {
        return item.refuse("0 % of a limit would deny all; to block, write \"none\"");
    }
    let wrong = || format!("so much of {own} cannot be counted; write a limit, as \"500/s\"");
    let quota = own.scaled(permille, rule.least_limit());
    item.or_refuse(quota.ok_or_else(wrong))
}

/// The hash of a key: `{ hash = "9f86d081884c7d659a2feaa0c55ad015" }`.
fn hash(item: Item<'_>, has_secret: bool) -> Option<u128> {
    let mut fields = item.node.fields().iter();
    if let Some((name, _)) = fields.find(|(name, _)| name.text != "hash") {
        // It may be the key, so the message does not repeat it.
        let message = "a key is a text, a list of texts, or a table with hash";
        return item.reader.refuse(&name.span, message);
    }
    let fields = item.fields("a key", "key_hash")?;
    let digits = fields.text("hash", "the hash of a key as text")?;
    let number = u128::from_str_radix(digits, 16)
        .ok()
        .filter(|_| digits.len() == 32 && !digits.starts_with('+'));
    if number.is_none() {
        let message =
            "this is not the hash of a key; it has 32 hexadecimal digits, and is that of all parts";
        fields.wrong("hash", message);
    } else if !has_secret {
        let message = "keys are found by their hash with the secret that made it, and there is none; write the key itself, or give \
                       the secret by Bindings::secret";
        fields.wrong("hash", message);
    }
    number
}

/// Why a client of a rule cannot have this limit: an override is a plan, and shares the state with the rule's other quotas.
fn mistake(rule: &RuleEntry, quota: Quota) -> Option<String> {
    // A cost is within it, and neither a wait nor a debt is too long behind it.
    let is_like_own = quota.limit() >= rule.least_limit() && !rule.waits_or_owes();
    if quota.reads_state_of(&rule.limit) && is_like_own {
        return None;
    }
    let with_plan = rule.numbers(1_000).plan("override", quota);
    let wrong = RuleSet::new([with_plan]).err()?;
    let message = wrong.message();
    Some(message.replace("plan \"override\" ", "the override "))
}

/// What is switched for some or all rules.
#[derive(Clone)]
pub(crate) struct Switch {
    /// By rule, whether it is named.
    pub(crate) rules: Vec<bool>,
    /// Whether it is for all rules: for limits of none only where their rule is named.
    pub(crate) is_for_all: bool,
    pub(crate) effect: Effect,
    pub(crate) term: Term,
    /// `None`: it is part of the document.
    pub(crate) set: Option<Arc<OperatorEntry>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    Mode(Mode),
    /// Thousandths of all limits.
    Permille(u64),
}

impl Switch {
    /// Whether it is for the rule at this index, which has this limit.
    pub(crate) fn is_for(&self, rule: usize, limit: &Quota) -> bool {
        self.rules[rule] || self.is_for_all && !limit.is_none()
    }

    /// Reads a switch. `named` finds the indices of its rules.
    pub(crate) fn read(
        item: Item<'_>,
        all: usize,
        named: impl Fn(Item<'_>) -> Option<usize>,
    ) -> Option<Self> {
        let fields = item.fields("a switch", "switch")?;
        let (effect, term) = (fields.read("limit", effect), fields.term());
        let (mut rules, mut is_for_all) = (vec![false; all], false);
        for rule in fields.list("rules") {
            if matches!(rule.value(), Value::Text(all) if all == "*") {
                is_for_all = true;
            } else if let Some(rule) = named(rule) {
                rules[rule] = true;
            }
        }
        Some(Self {
            rules,
            is_for_all,
            effect: effect?,
            term: term?,
            set: None,
        })
    }
}

/// The names of the rules that a switch is for.
pub(crate) fn names(switch: &Switch, rules: &[RuleEntry]) -> String {
    if switch.is_for_all || switch.rules.iter().all(|is_switched| *is_switched) {
        return "all rules".to_owned();
    }
    let rules = rules.iter().zip(&switch.rules);
    let names = rules.filter(|(_, is_switched)| **is_switched);
    let names: Vec<_> = names.map(|(rule, _)| &*rule.name).collect();
    names.join(", ")
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode(Mode::Off) => f.write_str("off"),
            Self::Mode(_) => f.write_str("shadow"),
            Self::Permille(part) if part % 10 == 0 => write!(f, "{} % of each limit", part / 10),
            Self::Permille(part) => write!(f, "{}.{} % of each limit", part / 10, part % 10),
        }
    }
}

fn effect(item: Item<'_>) -> Option<Effect> {
    match item.value() {
        Value::Text(text) if text == "off" => Some(Effect::Mode(Mode::Off)),
        Value::Text(text) if text == "shadow" => Some(Effect::Mode(Mode::Shadow)),
        Value::Text(text) if !text.trim().ends_with('%') => {
            item.unknown("switch", text, ["off", "shadow", "50%"])
        }
        _ => match item.permille("0.1", 100)? {
            0 => item.refuse(
                "0 % of a limit would deny all; to block, make \"none\" the limit of the rule, or of a client by an override; to count \
                 nothing, \"off\"",
            ),
            permille => Some(Effect::Permille(permille)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn half_of_a_limit_is_of_its_algorithm_and_period() {
        let hour = Duration::from_secs(3_600);
        let quotas = |units: u64| {
            [
                Quota::gcra(units, hour).burst(units),
                Quota::token_bucket(units).refill(units, hour),
                Quota::leaky_bucket(units).leak(units, hour),
                Quota::fixed_window(units, hour),
                Quota::sliding_window(units, hour),
                Quota::sliding_buckets(units, hour).buckets(7),
                Quota::sliding_log(units, hour),
            ]
        };
        for (whole, half) in quotas(10).into_iter().zip(quotas(5)) {
            assert_eq!(whole.scaled(500, 1), Some(half));
            assert_eq!(whole.scaled(1_000, 1), Some(whole));
            // Rounded up.
            assert_eq!(whole.scaled(401, 1), Some(half));
            // Never less than what passes at once.
            assert_eq!(whole.scaled(500, 7).map(|it| it.limit()), Some(7));
        }
        assert_eq!(Quota::unlimited().scaled(500, 1), None);
    }

    #[test]
    fn a_share_is_said_with_its_tenths() {
        for (part, said) in [(500, "50"), (125, "12.5"), (1, "0.1")] {
            let said = format!("{said} % of each limit");
            assert_eq!(Effect::Permille(part).to_string(), said);
        }
    }

    #[test]
    fn slots_are_scaled_as_units_are() {
        let slots = |slots| Quota::concurrent(slots).typically(Duration::from_secs(5));
        assert_eq!(slots(5).scaled(500, 1), Some(slots(3)));
        assert_eq!(slots(5).scaled(500, 4), Some(slots(4)));
        assert_eq!(slots(5).scaled(500, 9), Some(slots(5)));
        assert_eq!(
            Quota::concurrent(1).scaled(1, 1),
            Some(Quota::concurrent(1))
        );
    }
}
