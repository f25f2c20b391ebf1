//! Rule sets in the encoding of the script.
//!
//! The constant parts, the names of the rules and the bytes of their quotas, are encoded once. A
//! [`ScriptCall`](crate::script::call::ScriptCall) is then filled with requests.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Check, KeyBuf, PartKind, RuleError, RuleErrorKind, RuleSet, Tick, store::Fingerprint,
};
use tollgate_prefilter::{Places, SlotKey};

use crate::{
    keys::{
        hash_slot::hash_tag_in,
        keys::Name,
        keyspace::{Bytes, Keyspace, Partition},
    },
    script::rule_args::{BALANCES, ENFORCED, IDENTITY, RuleArgs, THRESHOLD},
};

/// The longest wait that is passed to the script, and longer than any rule has.
const LONGEST_WAIT: Tick = 1 << 52;

/// A rule set in the encoding of the script.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) keyspace: Keyspace,
    rules: Box<[RuleArgs]>,
    /// The rule whose client decides about the hash slot of a request.
    with: Option<u16>,
    /// Whether requests wait for units of any rule.
    has_waits: bool,
    /// Whether a rule is durable.
    pub(crate) has_durable: bool,
    /// Whether a quota may be one of a calendar.
    pub(crate) has_calendars: bool,
    /// Whether any rule takes credits.
    has_credits: bool,
}

impl Encoder {
    /// Prepares a rule set.
    ///
    /// # Errors
    ///
    /// A partition by a rule that there is not, or that is not enforced.
    pub(crate) fn new(rules: &RuleSet, keyspace: Keyspace) -> Result<Self, RuleError> {
        let with = match &keyspace.partition {
            Partition::ByRule(name) => Some(rule_that_partitions(rules, name)?),
            _ => None,
        };
        let lines = (0..rules.rules().len()).map(|place| RuleArgs::new(rules, place));
        let lines: Box<[_]> = lines.collect();
        let has_durable = lines.iter().any(|rule| rule.durable);
        if has_durable && keyspace.partition != Partition::One {
            // It is slow the first time, and a request must not wait for it.
            let _ = hash_tag_in(0);
        }
        Ok(Self {
            keyspace,
            has_waits: lines.iter().any(|rule| rule.wait.is_some()),
            has_durable,
            has_calendars: lines.iter().any(|rule| rule.may_have_calendar),
            has_credits: rules.has_credits(),
            rules: lines,
            with,
        })
    }

    /// The same with a cap on the new states of the rule with this name: a check that must not make one is decided
    /// against one bucket of the rule that all such share. See [`ScriptCall::acquire_slots`](crate::script::call::ScriptCall::acquire_slots).
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or it is a threshold, which has no state of its own.
    pub(crate) fn with_overflow(mut self, rule: &str) -> Result<Self, RuleError> {
        let place = self
            .rules
            .iter()
            .position(|rule_args| rule_args.role != THRESHOLD && *rule_args.name == *rule)
            .ok_or_else(|| {
                RuleError::new(
                    RuleErrorKind::Store,
                    rule,
                    "a cap on new keys needs a rule of this name that has states of its own",
                )
            })?;
        // A part of its own, so that it is not the bucket of requests without a key.
        let mut key = KeyBuf::new();
        key.push(PartKind::SHARED, b"overflow");
        if self.keyspace.partition != Partition::One {
            // It is slow the first time, and a request must not wait for it.
            let _ = hash_tag_in(0);
        }
        // A rule set has fewer than 65 536 rules.
        self.rules[place].overflow = Some(self.fingerprint(place as u16, &key));
        Ok(self)
    }

    /// The same with another term of slots.
    pub(crate) fn with_slot_term(mut self, term: Duration) -> Self {
        self.rules.iter_mut().for_each(|rule| rule.set_term(term));
        self
    }

    /// What stands for a key, for the rule at a place.
    ///
    /// The rule's name is part of the hash, so that the names in Redis do not show which clients of two rules are the same.
    /// The exception is a client that determines the hash slot, which all rules of a request share.
    pub(crate) fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        let rule_args = self.rules.get(usize::from(rule));
        let domain = match (&self.keyspace.partition, rule_args) {
            (Partition::Key, _) | (_, None) => &b""[..],
            (_, Some(rule_args)) => rule_args.name.as_bytes(),
        };
        self.keyspace.keys.fingerprint(domain, key)
    }

    /// What stands for the id of a check in its state, as the name of the state stands for its key; and how its rule takes ids.
    pub(crate) fn id_of(&self, rule_args: &RuleArgs, check: &Check) -> Option<([u8; 8], [u8; 9])> {
        let (terms, id) = rule_args.ids.zip(check.id()).filter(|_| check.cost() > 0)?;
        match self
            .keyspace
            .keys
            .names(Fingerprint::from_bits(id.get().into()))
            .0
        {
            Name::Hash(id) => Some(((id.bits() as u64).to_le_bytes(), terms)),
            // None was made of a text.
            Name::Text(_) => None,
        }
    }

    /// Refuses what a cluster cannot do in one step.
    ///
    /// # Errors
    ///
    /// A change of secrets, with states in several hash slots.
    pub(crate) fn fits_a_cluster(&self) -> Result<(), RuleError> {
        if self.keyspace.partition != Partition::One && self.keyspace.keys.is_rotating() {
            return Err(RuleError::general(
                RuleErrorKind::Store,
                "a change of secrets moves states to other hash slots, which a cluster cannot do in one step; \
                 take `Partition::One`, or change to the new secret alone and let all budgets begin anew",
            ));
        }
        Ok(())
    }

    /// Whether a state of the rule at a place is found by its client alone, as a reset has to.
    pub(crate) fn is_found_alone(&self, rule: u16) -> bool {
        self.with.is_none_or(|with| with == rule)
    }

    /// The rule whose client determines the hash slot of these checks, if it is not among them.
    pub(crate) fn lies_with_another(&self, checks: &[Check]) -> Option<&str> {
        let with = self
            .with
            .filter(|with| checks.iter().all(|check| check.rule() != *with))?;
        self.rules
            .get(usize::from(with))
            .map(|rule_args| &*rule_args.name)
    }

    /// The client that decides about the hash slot of these checks, if it is another than each one's own.
    pub(crate) fn with(&self, mut checks: impl Iterator<Item = Check>) -> Option<Fingerprint> {
        let with = self.with?;
        checks
            .find(|check| check.rule() == with)
            .map(|check| check.key())
    }

    /// Where the states of requests lie, in a cluster or on one server.
    pub(crate) fn places(&self, is_cluster: bool) -> Places {
        Places {
            are_several: is_cluster && self.keyspace.partition != Partition::One,
            with: self.with,
        }
    }

    /// The names of the balance of a check: of two secrets that by the newer, then that by the older.
    pub(crate) fn balance_names(&self, check: &Check) -> Vec<Vec<u8>> {
        let Some(rule) = self.state_name(check.rule()) else {
            return Vec::new();
        };
        let (newer, older) = self.keyspace.keys.names(check.key());
        let write = |name: Name| {
            let mut bytes = Bytes::new();
            (self.keyspace).write_name(&mut bytes, rule, BALANCES, &name, None);
            bytes.to_vec()
        };
        [Some(newer), older]
            .into_iter()
            .flatten()
            .map(write)
            .collect()
    }

    /// Whether the client of this rule determines the hash slot.
    pub(crate) fn is_with(&self, rule: u16) -> bool {
        self.with == Some(rule)
    }

    /// A check's rule and quota, if it has to be sent.
    pub(crate) fn args_of(&self, check: &Check) -> Option<(&RuleArgs, [u8; IDENTITY])> {
        let rule_args = self.rules.get(usize::from(check.rule()))?;
        if rule_args.off {
            return None;
        }
        let plan = match rule_args.plans.get(usize::from(check.plan())) {
            Some(plan) => *plan,
            None => rule_args.brought(check.plan()),
        };
        Some((rule_args, plan?))
    }

    /// For how long a request with these checks waits at most, in µs: as long as the least patient of its rules lets it, and as
    /// it has `patience` itself.
    pub(crate) fn patience(&self, checks: &[Check], patience: Tick) -> Tick {
        if !self.has_waits {
            return 0;
        }
        let waits = checks.iter().filter(|check| check.cost() > 0);
        let waits = waits.filter_map(|check| {
            let (rule_args, _) = self.args_of(check)?;
            rule_args.wait.filter(|_| rule_args.role == ENFORCED)
        });
        waits.fold(patience.min(LONGEST_WAIT), u64::min)
    }

    /// As many checks without a balance as have the keys of so many with one, which has two names more.
    pub(crate) fn most_places(&self, checks: usize) -> usize {
        match self.has_credits {
            true => checks + checks.div_ceil(2),
            false => checks,
        }
    }

    /// Whether a rule is about slots.
    pub(crate) fn is_of_slots(&self, rule: u16) -> bool {
        let rule_args = self.rules.get(usize::from(rule));
        rule_args.is_some_and(RuleArgs::is_of_slots)
    }

    /// The name of a rule in the names of its states.
    pub(crate) fn state_name(&self, rule: u16) -> Option<&str> {
        let rule_args = self.rules.get(usize::from(rule))?;
        Some(&rule_args.name)
    }

    /// The state that has the slots of a check, which lies where `with` does.
    pub(crate) fn slot_key(&self, check: &Check, with: Option<Fingerprint>) -> Option<SlotKey> {
        let rule_args = self.rules.get(usize::from(check.rule()))?;
        Some(SlotKey {
            key: check.key(),
            rule: Arc::clone(&rule_args.name),
            place: with,
        })
    }

    /// Whether one rule and key is checked under two plans that have a limit.
    pub(crate) fn has_two_plans(&self, checks: &[Check]) -> bool {
        checks.iter().enumerate().any(|(place, check)| {
            let mut before = checks[..place].iter();
            before.any(|other| {
                other.rule() == check.rule()
                    && other.key() == check.key()
                    && other.plan() != check.plan()
                    && self.args_of(other).is_some()
                    && self.args_of(check).is_some()
            })
        })
    }

    /// The rule at a place and one of its quotas, if any has a limit.
    pub(crate) fn any_args(&self, rule: u16) -> Option<(&RuleArgs, &[u8; IDENTITY])> {
        let rule_args = self.rules.get(usize::from(rule))?;
        Some((rule_args, rule_args.plans.iter().flatten().next()?))
    }
}

/// The place of the rule that a partition names.
fn rule_that_partitions(rules: &RuleSet, name: &str) -> Result<u16, RuleError> {
    let place = rules.position(name).filter(|place| rules.enforces(*place));
    // A rule set has fewer than 65 536 rules.
    place.map(|place| place as u16).ok_or_else(|| {
        RuleError::new(
            RuleErrorKind::Store,
            name,
            "a partition needs an enforced rule of this name; name one that every request has, or take `Partition::One`",
        )
    })
}
