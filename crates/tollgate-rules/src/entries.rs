//! What a document says, and what its rules are at a time.

use std::{collections::HashMap, ops::Range, sync::Arc};

use jiff::Timestamp;
use tollgate::{Key, RequestRule, key::KeyBuf};
use tollgate_core::{Quota, Tick};

use crate::{
    bindings::{HashKey, Side},
    clock,
    condition::Condition,
    denial_audit::DenialAudit,
    format::Format,
    list_file::ListFile,
    node::{Node, Value, hash_of},
    operator_entries::OperatorEntries,
    operator_entry::{EntryKind, OperatorEntry},
    override_entry::{Client, Override},
    problems::Problems,
    reader::Reader,
    rule_entry::{Mode, RuleEntry},
    shed_entry::ShedEntry,
    switch_entry::{Effect, Switch, scaled},
};

/// The entries of a document, which refer to each other by index.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    pub(crate) rules: Vec<RuleEntry>,
    /// By rule, the more specific ones of its groups.
    pub(crate) behind: Vec<Vec<usize>>,
    /// In the order of their rules, once they are sorted.
    pub(crate) overrides: Vec<Override>,
    /// By rule.
    pub(crate) of_rule: Vec<OverridesOfRule>,
    pub(crate) switches: Vec<Switch>,
    /// For the overrides that name the hash of a key.
    pub(crate) hash_key: Option<Arc<HashKey>>,
    pub(crate) denials: Arc<DenialAudit>,
    /// How the document says that addresses are found.
    pub(crate) client_ip: Option<String>,
    /// What it says of lists, and the files that it names, which are followed for as long as it is there.
    pub(crate) said_of_lists: Option<String>,
    pub(crate) lists: Vec<Arc<ListFile>>,
    /// How load is shed.
    pub(crate) shed: Option<ShedEntry>,
    /// What operators set that does not go with the document, and why.
    pub(crate) unfit: Vec<(Arc<OperatorEntry>, String)>,
}

/// An entry that goes with a document.
pub(crate) enum FittingEntry {
    Override(Override),
    Switch(Switch),
}

/// Which overrides are those of a rule.
#[derive(Clone)]
pub(crate) struct OverridesOfRule {
    range: Range<usize>,
    /// A hash of what they say.
    content: u64,
}

impl Entries {
    /// Puts the overrides of each rule together.
    pub(crate) fn sorted(mut self) -> Self {
        self.overrides.sort_by_key(|entry| entry.rule);
        let mut begin = 0;
        let of_rule = (0..self.rules.len()).map(|rule| {
            let of_rule = self.overrides[begin..].iter();
            let of_rule = of_rule.take_while(|entry| entry.rule == rule);
            let range = begin..begin + of_rule.clone().count();
            begin = range.end;
            OverridesOfRule {
                range,
                content: content_of(of_rule),
            }
        });
        self.of_rule = of_rule.collect();
        self
    }

    /// With what operators set beside the document. What does not go with it is kept apart.
    pub(crate) fn beside(mut self, set: &OperatorEntries) -> Self {
        if set.all.is_empty() {
            return self;
        }
        let by_name = self.by_name();
        let read = set
            .all
            .iter()
            .map(|entry| (entry, self.read(&by_name, entry, false)));
        let read: Vec<_> = read.collect();
        for (entry, read) in read {
            match read {
                Ok(FittingEntry::Override(entry)) => self.overrides.push(entry),
                Ok(FittingEntry::Switch(entry)) => self.switches.push(entry),
                Err(problem) => self.unfit.push((Arc::clone(entry), problem)),
            }
        }
        self.sorted()
    }

    /// The indices of the rules.
    pub(crate) fn by_name(&self) -> HashMap<&str, usize> {
        let rules = self.rules.iter().enumerate();
        rules
            .map(|(index, rule)| (&*rule.name.value, index))
            .collect()
    }

    /// Reads what an operator set. `is_new`: it is being set now, and a name may be misspelt.
    ///
    /// # Errors
    ///
    /// It does not go with the document.
    fn read(
        &self,
        by_name: &HashMap<&str, usize>,
        set: &Arc<OperatorEntry>,
        is_new: bool,
    ) -> Result<FittingEntry, String> {
        let problems = Problems::default();
        let reader = Reader {
            text: "",
            format: Format::Json,
            side: Side::default(),
            problems: &problems,
        };
        let named = |node: &Node| {
            let Value::Text(name) = &node.value else {
                return None;
            };
            let found = by_name.get(&**name).copied();
            match found {
                Some(_) => {}
                None if is_new => {
                    let known = self.rules.iter().map(|rule| &*rule.name.value);
                    reader.unknown(&node.span, "rule", name, known);
                }
                None => reader.wrong(&node.span, format!("there is no rule {name:?} any more")),
            }
            found
        };
        let node = &set.node;
        let read = match set.kind {
            EntryKind::Override => {
                let named = |node: &Node| named(node).map(|rule| (rule, &self.rules[rule]));
                let read = Override::read(reader, node, self.hash_key.is_some(), named);
                read.map(|entry| {
                    Self::compare_key(reader, set, &self.rules[entry.rule]);
                    let set = Some(Arc::clone(set));
                    FittingEntry::Override(Override { set, ..entry })
                })
            }
            EntryKind::Switch => {
                let read = Switch::read(reader, node, self.rules.len(), named);
                read.map(|entry| {
                    let set = Some(Arc::clone(set));
                    FittingEntry::Switch(Switch { set, ..entry })
                })
            }
        };
        let problems = problems.into_sorted().into_iter();
        let problems: Vec<_> = problems.map(|problem| problem.message).collect();
        match read {
            Some(read) if problems.is_empty() => Ok(read),
            _ => Err(problems.join("; ")),
        }
    }

    /// Reads what is to be set now.
    ///
    /// # Errors
    ///
    /// It does not go with the document, or has ended.
    pub(crate) fn read_new(
        &self,
        set: &Arc<OperatorEntry>,
        now: Tick,
    ) -> Result<FittingEntry, String> {
        let read = self.read(&self.by_name(), set, true)?;
        let until = match &read {
            FittingEntry::Override(entry) => entry.term.until,
            FittingEntry::Switch(entry) => entry.term.until,
        };
        if until > now {
            return Ok(read);
        }
        let time = |at: Tick| {
            let micros = i64::try_from(at).ok();
            micros
                .and_then(|micros| Timestamp::from_microsecond(micros).ok())
                .unwrap_or_default()
        };
        let (until, now) = (time(until), time(now));
        Err(format!(
            "it would have ended already: until {until}, and it is {now}"
        ))
    }

    /// A hash of a key of another form would never be met.
    fn compare_key(reader: Reader<'_>, set: &OperatorEntry, rule: &RuleEntry) {
        let (name, now) = (&rule.name.value, rule.key.form());
        if let Some(before) = set.counted_by.as_ref().filter(|before| **before != now) {
            let message = format!("rule {name:?} counts by {now} now, and counted by {before}");
            reader.wrong(&(0..0), message);
        }
    }

    /// Those of a rule.
    pub(crate) fn overrides_of(&self, rule: usize) -> &[Override] {
        &self.overrides[self.of_rule[rule].range.clone()]
    }

    /// Whether the overrides of a rule say what those of a rule of other entries do.
    pub(crate) fn has_overrides_of(&self, rule: usize, other: &Self, of: usize) -> bool {
        self.of_rule[rule].content == other.of_rule[of].content
    }

    /// The rules for a limiter, without what needs a request.
    pub(crate) fn limiter_rules_at(&self, now: Tick) -> Vec<tollgate_core::Rule> {
        let rules = self.rules.iter().enumerate();
        rules
            .map(|(index, rule)| {
                let (mode, permille, _) = self.switched(index, rule.mode, now);
                mode.of(rule.numbers(&|quota| scaled(quota, permille, rule.least_limit())))
            })
            .collect()
    }

    /// The rules at a time in microseconds since the Unix epoch.
    pub(crate) fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
        let rules = 0..self.rules.len();
        rules.flat_map(|index| self.make(index, now)).collect()
    }

    /// The rules of an entry.
    fn make(&self, index: usize, now: Tick) -> Vec<RequestRule> {
        let rule = &self.rules[index];
        let (mode, permille, blocks) = self.switched(index, rule.mode, now);
        let mut numbers = rule.numbers(&|quota| scaled(quota, permille, rule.least_limit()));
        let mut plans: HashMap<Quota, Arc<str>> = HashMap::new();
        let of_rule = self.overrides_of(index);
        let (mut keys, mut hashes) = (Vec::with_capacity(of_rule.len()), HashMap::new());
        for entry in in_force(of_rule, now) {
            let quota = entry.limit(scaled(entry.quota, permille, rule.least_limit()));
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
        // Of the clients that are known by a hash of their key.
        let hash_key = self.hash_key.clone().filter(|_| !hashes.is_empty());
        let by_hash = hash_key.map(|hash_key| {
            let name = rule.name.value.clone();
            Arc::new(move |key: &KeyBuf| hashes.get(&hash_key(&name, key)).cloned())
        });
        let denied = rule.audit.then(|| {
            let (name, hash_key) = (rule.name.value.clone(), self.hash_key.clone());
            let denials = Arc::clone(&self.denials);
            Arc::new(move |key: &Key| {
                denials.denied(&name, clock::now(), || {
                    let hash_key = hash_key.as_ref().filter(|_| *key != Key::shared())?;
                    // The start of the hash: enough to tell clients apart, and to find one with the secret.
                    Some(format!("{:08x}", hash_key(&name, key.as_ref()) >> 96))
                });
            })
        });
        let applies = self.group_condition(index, now);
        let least = rule.least_limit();
        let scaled = move |quota| scaled(quota, permille, least);
        let mut made = rule.request_rules(&numbers, scaled, mode, applies.as_ref());
        if blocks && mode != Mode::Enforce {
            made.extend(rule.blocking_rule(&numbers, applies.as_ref()));
        }
        let made = made.into_iter().map(|rule| {
            let keys = keys.iter().cloned();
            let rule = keys.fold(rule, |rule, (key, plan)| rule.plan_for_key(key, plan));
            let rule = match by_hash.clone() {
                Some(by_hash) => rule.plan_by_key(move |key| by_hash(key)),
                None => rule,
            };
            match denied.clone() {
                Some(denied) => rule.on_denied(move |_, key, _| denied(key)),
                None => rule,
            }
        });
        made.collect()
    }

    /// When an override or a switch expires next, in microseconds since the Unix epoch: the rules differ from then on.
    pub(crate) fn expires_after(&self, now: Tick) -> Option<Tick> {
        let overrides = self.overrides.iter().map(|entry| entry.term.until);
        let all = overrides.chain(self.switches.iter().map(|switch| switch.term.until));
        all.filter(|until| *until > now && *until < Tick::MAX).min()
    }

    /// The mode and the part of its limits that a rule has at a time, and whether its limits of none stay enforced: no switch that
    /// names the rule has changed its mode.
    pub(crate) fn switched(&self, rule: usize, own: Mode, now: Tick) -> (Mode, u64, bool) {
        if !self.rules[rule].is_here {
            return (Mode::Off, 1_000, false);
        }
        let (mut mode, mut permille, mut blocks) = (own, 1_000, own == Mode::Enforce);
        let in_force = self
            .switches
            .iter()
            .filter(|switch| switch.term.until > now);
        let limit = &self.rules[rule].limit.value;
        for switch in in_force.filter(|switch| switch.is_for(rule, limit)) {
            match switch.effect {
                Effect::Mode(switched) => {
                    blocks &= !switch.rules[rule];
                    // What is off stays off.
                    if mode != Mode::Off {
                        mode = switched;
                    }
                }
                Effect::Permille(part) => permille = permille.min(part),
            }
        }
        (mode, permille, blocks)
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

fn in_force(overrides: &[Override], now: Tick) -> impl Iterator<Item = &Override> + Clone {
    overrides.iter().filter(move |entry| entry.term.until > now)
}

/// A hash of what overrides say.
fn content_of<'a>(overrides: impl Iterator<Item = &'a Override>) -> u64 {
    overrides.fold(0, |before, entry| hash_of((before, entry.content)))
}
