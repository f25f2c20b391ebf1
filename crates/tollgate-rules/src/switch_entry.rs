//! What is switched for some or all rules: off, shadow, or a part of their limits.

use std::{fmt, sync::Arc};

use tollgate_core::Quota;

use crate::{
    node::{Node, Value},
    operator_entry::OperatorEntry,
    reader::{Reader, Term},
    rule_entry::RuleEntry,
    rule_settings::Mode,
};

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
        reader: Reader<'_>,
        node: &Node,
        all: usize,
        named: impl Fn(&Node) -> Option<usize>,
    ) -> Option<Self> {
        let fields = reader.fields(node, "a switch", "switch")?;
        let effect = fields.read("limit", |node| effect(reader, node));
        let term = reader.term(&fields);
        let (mut rules, mut is_for_all) = (vec![false; all], false);
        for node in fields.list("rules") {
            if matches!(&node.value, Value::Text(all) if all == "*") {
                is_for_all = true;
            } else if let Some(rule) = named(node) {
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
            Self::Mode(Mode::Enforce) => f.write_str("enforced"),
            Self::Mode(Mode::Shadow) => f.write_str("shadow"),
            Self::Mode(Mode::Off) => f.write_str("off"),
            Self::Permille(part) if part % 10 == 0 => write!(f, "{} % of each limit", part / 10),
            Self::Permille(part) => write!(f, "{}.{} % of each limit", part / 10, part % 10),
        }
    }
}

fn effect(reader: Reader<'_>, node: &Node) -> Option<Effect> {
    match &node.value {
        Value::Text(text) if text == "off" => Some(Effect::Mode(Mode::Off)),
        Value::Text(text) if text == "shadow" => Some(Effect::Mode(Mode::Shadow)),
        Value::Text(text) if !text.trim().ends_with('%') => {
            reader.unknown(node, "switch", text, ["off", "shadow", "50%"])
        }
        _ => match reader.permille(node, 100)? {
            0 => reader.refuse(
                &node.span,
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
            assert_eq!(whole.scaled(500, 1), half);
            assert_eq!(whole.scaled(1_000, 1), whole);
            // Rounded up.
            assert_eq!(whole.scaled(401, 1), half);
            // Never less than what passes at once.
            assert_eq!(whole.scaled(500, 7).limit(), 7);
        }
        assert_eq!(Quota::unlimited().scaled(500, 1), Quota::unlimited());
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
        assert_eq!(slots(5).scaled(500, 1), slots(3));
        assert_eq!(slots(5).scaled(500, 4), slots(4));
        assert_eq!(slots(5).scaled(500, 9), slots(5));
        assert_eq!(Quota::concurrent(1).scaled(1, 1), Quota::concurrent(1));
    }
}
