//! What a document says, and what its rules are at a time.

use std::{collections::HashMap, sync::Arc};

use http::request::Parts;
use tollgate::{
    KeyBuf, RequestRule,
    key::{Extracted, KeyExtractor},
};
use tollgate_core::{Quota, Tick};

use crate::{
    bindings::HashKey,
    clock::now,
    condition::Condition,
    denial_audit::DenialAudit,
    override_entry::{Client, Override},
    rule_entry::{Mode, RuleEntry},
    switch_entry::{Effect, Switch, scaled},
};

/// The entries of a document, which refer to each other by index.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    pub(crate) rules: Vec<RuleEntry>,
    /// By rule, the more specific ones of its groups.
    pub(crate) behind: Vec<Vec<usize>>,
    pub(crate) overrides: Vec<Override>,
    pub(crate) switches: Vec<Switch>,
    /// For the overrides that name the hash of a key.
    pub(crate) hash_key: Option<Arc<HashKey>>,
    pub(crate) denials: Arc<DenialAudit>,
}

/// The plans of the clients of a rule that are known by a hash of their key.
struct PlansByHash {
    rule: Box<str>,
    plans: HashMap<u128, Arc<str>>,
    hash_key: Arc<HashKey>,
}

impl PlansByHash {
    fn find(&self, key: &KeyBuf) -> Option<Arc<str>> {
        let hash = (self.hash_key)(&self.rule, key);
        self.plans.get(&hash).cloned()
    }
}

/// A rule whose denials are recorded.
struct AuditedRule {
    rule: Box<str>,
    extractor: Arc<dyn KeyExtractor>,
    hash_key: Option<Arc<HashKey>>,
    denials: Arc<DenialAudit>,
}

impl AuditedRule {
    fn record(&self, head: &Parts) {
        self.denials.denied(&self.rule, now(), || {
            let mut key = KeyBuf::new();
            let hash_key = self.hash_key.as_ref()?;
            match self.extractor.extract(head, &mut key) {
                // The start of the hash: enough to tell clients apart, and to find one with the secret.
                Extracted::Key => Some(format!("{:08x}", hash_key(&self.rule, &key) >> 96)),
                _ => None,
            }
        });
    }
}

impl Entries {
    /// The rules for a limiter, without what needs a request.
    pub(crate) fn limiter_rules_at(&self, now: Tick) -> Vec<tollgate_core::Rule> {
        let rules = self.rules.iter().enumerate();
        rules
            .map(|(index, rule)| {
                let (mode, permille) = self.switched(index, rule.mode, now);
                mode.of(rule.numbers(&|quota| scaled(quota, permille)))
            })
            .collect()
    }

    /// The rules at a time in microseconds since the Unix epoch.
    pub(crate) fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
        let mut overrides: HashMap<usize, Vec<&Override>> = HashMap::new();
        for entry in self.overrides.iter().filter(|entry| entry.term.until > now) {
            overrides.entry(entry.rule).or_default().push(entry);
        }
        let rules = self.rules.iter().enumerate();
        let rules = rules.flat_map(|(index, rule)| {
            let (mode, permille) = self.switched(index, rule.mode, now);
            let mut numbers = rule.numbers(&|quota| scaled(quota, permille));
            let mut plans: HashMap<Quota, Arc<str>> = HashMap::new();
            let of_rule = overrides.get(&index).map_or(&[][..], |all| all);
            let (mut keys, mut hashes) = (Vec::with_capacity(of_rule.len()), HashMap::new());
            for entry in of_rule {
                let quota = scaled(entry.quota, permille);
                let next = plans.len() + 1;
                let plan = plans
                    .entry(quota)
                    .or_insert_with(|| format!("override {next}").into());
                let plan = Arc::clone(plan);
                if plans.len() == next {
                    numbers = numbers.plan(Arc::clone(&plan), quota);
                }
                match &entry.client {
                    Client::Key(key) => keys.push((key.clone(), plan)),
                    Client::Hash(hash) => {
                        hashes.insert(*hash, plan);
                    }
                }
            }
            let by_hash = self.hash_key.clone().filter(|_| !hashes.is_empty());
            let by_hash = by_hash.map(|hash_key| PlansByHash {
                rule: rule.name.value.as_str().into(),
                plans: hashes,
                hash_key,
            });
            let by_hash = by_hash.map(Arc::new);
            let denied = rule.audit.then(|| {
                Arc::new(AuditedRule {
                    rule: rule.name.value.as_str().into(),
                    extractor: rule.key.extractor(),
                    hash_key: self.hash_key.clone(),
                    denials: Arc::clone(&self.denials),
                })
            });
            let applies = self.group_condition(index, now);
            let scaled = move |quota| scaled(quota, permille);
            let made = rule.request_rules(&numbers, scaled, mode, applies.as_ref());
            made.into_iter().map(move |rule| {
                let keys = keys.iter().cloned();
                let rule = keys.fold(rule, |rule, (key, plan)| rule.plan_for_key(key, plan));
                let rule = match by_hash.clone() {
                    Some(by_hash) => rule.plan_by_key(move |key| by_hash.find(key)),
                    None => rule,
                };
                match denied.clone() {
                    Some(denied) => rule.on_denied(move |head| denied.record(head)),
                    None => rule,
                }
            })
        });
        rules.collect()
    }

    /// When an override or a switch expires next, in microseconds since the Unix epoch: the rules differ from then on.
    pub(crate) fn expires_after(&self, now: Tick) -> Option<Tick> {
        let overrides = self.overrides.iter().map(|entry| entry.term.until);
        let all = overrides.chain(self.switches.iter().map(|switch| switch.term.until));
        all.filter(|until| *until > now && *until < Tick::MAX).min()
    }

    /// The mode and the part of its limits that a rule has at a time.
    pub(crate) fn switched(&self, rule: usize, mode: Mode, now: Tick) -> (Mode, u64) {
        let (mut mode, mut permille) = (mode, 1_000);
        let in_force = self
            .switches
            .iter()
            .filter(|switch| switch.term.until > now);
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
