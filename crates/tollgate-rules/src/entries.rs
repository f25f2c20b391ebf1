//! What a document says, and what its rules are at a time.

use std::{collections::HashMap, sync::Arc};

use tollgate::RequestRule;
use tollgate_core::{Quota, Tick};

use crate::{
    condition::Condition,
    override_entry::Override,
    rule_entry::{Mode, RuleEntry},
    switch_entry::{Effect, Switch, scaled},
};

/// The entries of a document, which refer to each other by index.
#[derive(Clone)]
pub(crate) struct Entries {
    pub(crate) rules: Vec<RuleEntry>,
    /// By rule, the more specific ones of its groups.
    pub(crate) behind: Vec<Vec<usize>>,
    pub(crate) overrides: Vec<Override>,
    pub(crate) switches: Vec<Switch>,
}

impl Entries {
    /// The rules for a limiter, without what needs a request.
    pub(crate) fn limiter_rules_at(&self, now: Tick) -> Vec<tollgate_core::Rule> {
        let rules = self.rules.iter().enumerate();
        rules
            .map(|(index, rule)| {
                let (mode, permille) = self.switched(index, rule.mode, now);
                let numbers = rule.numbers(&|quota| scaled(quota, permille));
                match mode {
                    Mode::Enforce => numbers,
                    Mode::Shadow => numbers.shadow(),
                    Mode::Off => numbers.off(),
                }
            })
            .collect()
    }

    /// The rules at a time in microseconds since the Unix epoch.
    pub(crate) fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
        let mut overrides: HashMap<usize, Vec<&Override>> = HashMap::new();
        for entry in self.overrides.iter().filter(|entry| entry.until > now) {
            overrides.entry(entry.rule).or_default().push(entry);
        }
        let rules = self.rules.iter().enumerate();
        let rules = rules.flat_map(|(index, rule)| {
            let (mode, permille) = self.switched(index, rule.mode, now);
            let mut numbers = rule.numbers(&|quota| scaled(quota, permille));
            let mut plans: HashMap<Quota, String> = HashMap::new();
            let of_rule = overrides.get(&index).map_or(&[][..], |all| all);
            let mut keys = Vec::with_capacity(of_rule.len());
            for entry in of_rule {
                let quota = scaled(entry.quota, permille);
                let next = format!("override {}", plans.len() + 1);
                let plan = plans.entry(quota).or_insert_with(|| {
                    numbers = numbers.clone().plan(next.clone(), quota);
                    next
                });
                keys.push((entry.key.clone(), Arc::<str>::from(&**plan)));
            }
            let applies = self.group_condition(index, now);
            let made = rule.request_rules(&numbers, mode, applies.as_ref());
            made.into_iter().map(move |rule| {
                let keys = keys.iter().cloned();
                keys.fold(rule, |rule, (key, plan)| rule.plan_for_key(key, plan))
            })
        });
        rules.collect()
    }

    /// When an override or a switch expires next, in microseconds since the Unix epoch: the rules differ from then on.
    pub(crate) fn expires_after(&self, now: Tick) -> Option<Tick> {
        let overrides = self.overrides.iter().map(|entry| entry.until);
        let all = overrides.chain(self.switches.iter().map(|switch| switch.until));
        all.filter(|until| *until > now && *until < Tick::MAX).min()
    }

    /// The mode and the part of its limits that a rule has at a time.
    fn switched(&self, rule: usize, mode: Mode, now: Tick) -> (Mode, u64) {
        let (mut mode, mut permille) = (mode, 1_000);
        let in_force = self.switches.iter().filter(|switch| switch.until > now);
        for switch in in_force.filter(|switch| switch.rules[rule]) {
            match switch.effect {
                // What is off stays off.
                Effect::Mode(_) if mode == Mode::Off => {}
                Effect::Mode(switched) => mode = switched,
                Effect::Permille(part) => permille = permille.min(part),
            }
        }
        (mode, permille)
    }

    /// The condition of a rule of a group: its own, and none of a more specific rule.
    fn group_condition(&self, rule: usize, now: Tick) -> Option<Condition> {
        let behind = self.behind[rule].iter();
        let others: Vec<_> = behind
            .filter(|other| self.switched(**other, self.rules[**other].mode, now).0 != Mode::Off)
            .map(|other| self.rules[*other].condition.predicate())
            .collect();
        if others.is_empty() {
            return None;
        }
        let own = &self.rules[rule].condition;
        Some(own.and(move |head| !others.iter().any(|holds| holds(head))))
    }
}
