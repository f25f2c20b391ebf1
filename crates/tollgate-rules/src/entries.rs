//! What a document says, and what its rules are at a time.

use std::{collections::HashMap, ops::Range, sync::Arc};

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
    made_rules::{Made, MadeRule, MadeRules},
    node::hash_of,
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
    /// In the order of their rules.
    overrides: Vec<Override>,
    /// By rule.
    of_rule: Vec<OverridesOfRule>,
    /// By rule, its recipe while no switch is in force and no override has expired.
    recipes: Vec<u64>,
    pub(crate) switches: Vec<Switch>,
    /// For the overrides that name the hash of a key.
    pub(crate) hash_key: Option<Arc<HashKey>>,
    denials: Arc<DenialAudit>,
}

/// Which overrides are those of a rule.
#[derive(Clone)]
struct OverridesOfRule {
    range: Range<usize>,
    /// A hash of what they say.
    content: u64,
    /// When the first of them expires.
    until: Tick,
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
    /// Rules with the more specific ones of their groups, and what is said of rules.
    pub(crate) fn new(
        (rules, behind): (Vec<RuleEntry>, Vec<Vec<usize>>),
        mut overrides: Vec<Override>,
        switches: Vec<Switch>,
        hash_key: Option<Arc<HashKey>>,
        denials: Arc<DenialAudit>,
    ) -> Self {
        overrides.sort_by_key(|entry| entry.rule);
        let mut begin = 0;
        let of_rule = (0..rules.len()).map(|rule| {
            let of_rule = overrides[begin..].iter();
            let of_rule = of_rule.take_while(|entry| entry.rule == rule);
            let range = begin..begin + of_rule.clone().count();
            begin = range.end;
            OverridesOfRule {
                range,
                content: content_of(of_rule.clone()),
                until: of_rule
                    .map(|entry| entry.term.until)
                    .min()
                    .unwrap_or(Tick::MAX),
            }
        });
        let mut entries = Self {
            of_rule: of_rule.collect(),
            rules,
            behind,
            overrides,
            recipes: Vec::new(),
            switches: Vec::new(),
            hash_key,
            denials,
        };
        let recipes = (0..entries.rules.len()).map(|index| entries.recipe(index, 0));
        entries.recipes = recipes.collect();
        entries.switches = switches;
        entries
    }

    /// All overrides, those of a rule one after the other.
    pub(crate) fn overrides(&self) -> &[Override] {
        &self.overrides
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
                let (mode, permille) = self.switched(index, rule.mode, now);
                mode.of(rule.numbers(&|quota| scaled(quota, permille, rule.least_limit())))
            })
            .collect()
    }

    /// The rules at a time in microseconds since the Unix epoch. Those for which nothing has changed are those of `before`.
    pub(crate) fn rules_at(&self, now: Tick, before: &MadeRules) -> MadeRules {
        let is_switched = self.switches.iter().any(|switch| switch.term.until > now);
        let rules = (0..self.rules.len()).map(|index| {
            let recipe = match is_switched || self.of_rule[index].until <= now {
                true => self.recipe(index, now),
                false => self.recipes[index],
            };
            // Mostly in the same place, where no name is looked at.
            let known = before.made_by(index, recipe).or_else(|| {
                let known = before.get(index, &self.rules[index].name.value);
                known.filter(|known| known.recipe == recipe)
            });
            match known {
                Some(known) => known.clone(),
                None => MadeRule {
                    recipe,
                    made: Arc::new(Made {
                        name: self.rules[index].name.value.as_str().into(),
                        rules: self.make(index, now),
                    }),
                },
            }
        });
        MadeRules::new(rules.collect())
    }

    /// A hash of all that the rules of an entry are made of at a time, but for the bindings.
    fn recipe(&self, index: usize, now: Tick) -> u64 {
        let rule = &self.rules[index];
        let (mode, permille) = self.switched(index, rule.mode, now);
        let behind = self.behind[index].iter();
        let behind: Vec<_> = behind
            .map(|other| {
                let other_rule = &self.rules[*other];
                let (mode, _) = self.switched(*other, other_rule.mode, now);
                (other_rule.content, mode)
            })
            .collect();
        let of_rule = &self.of_rule[index];
        let overrides = match of_rule.until > now {
            true => of_rule.content,
            false => content_of(in_force(self.overrides_of(index), now)),
        };
        // What was made holds it: no other is where it is.
        let hash_key = self.hash_key.as_ref();
        let hash_key = hash_key.filter(|_| rule.audit || !of_rule.range.is_empty());
        let hash_key = hash_key.map(|hash_key| Arc::as_ptr(hash_key).cast::<()>());
        hash_of((rule.content, mode, permille, behind, overrides, hash_key))
    }

    /// The rules of an entry.
    fn make(&self, index: usize, now: Tick) -> Vec<RequestRule> {
        let rule = &self.rules[index];
        let (mode, permille) = self.switched(index, rule.mode, now);
        let mut numbers = rule.numbers(&|quota| scaled(quota, permille, rule.least_limit()));
        let mut plans: HashMap<Quota, Arc<str>> = HashMap::new();
        let of_rule = self.overrides_of(index);
        let (mut keys, mut hashes) = (Vec::with_capacity(of_rule.len()), HashMap::new());
        for entry in in_force(of_rule, now) {
            let quota = scaled(entry.quota, permille, rule.least_limit());
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
        let by_hash = self.hash_key.clone().map(|hash_key| PlansByHash {
            rule: rule.name.value.as_str().into(),
            plans: hashes,
            hash_key,
        });
        let by_hash = by_hash.filter(|by_hash| !by_hash.plans.is_empty());
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
        let least = rule.least_limit();
        let scaled = move |quota| scaled(quota, permille, least);
        let made = rule.request_rules(&numbers, scaled, mode, applies.as_ref());
        let made = made.into_iter().map(|rule| {
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
        });
        made.collect()
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

fn in_force(overrides: &[Override], now: Tick) -> impl Iterator<Item = &Override> + Clone {
    overrides.iter().filter(move |entry| entry.term.until > now)
}

/// A hash of what overrides say.
fn content_of<'a>(overrides: impl Iterator<Item = &'a Override>) -> u64 {
    overrides.fold(0, |before, entry| hash_of((before, entry.content)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bindings::Bindings, format::Format, rule_document::RuleDocument};

    const RULES: [&str; 4] = [
        "[[rules]]\nname = 'plain'\nlimit = '9/h'\nby = 'constant'\n",
        "[[rules]]\nname = 'own'\nlimit = '9/h'\nby = 'header:x-key'\n",
        "[[rules]]\nname = 'exact'\nlimit = '9/h'\nby = 'constant'\nwhen = { path = '/a' }\n",
        "[[rules]]\nname = 'rest'\nlimit = '9/h'\nby = 'constant'\n",
    ];
    const OTHERS: &str = "[[groups]]\nname = 'g'\nrules = ['exact', 'rest']\n\
        [[overrides]]\nrule = 'own'\nkey = 'ann'\nlimit = '99/h'\nuntil = 2026-01-01T00:00:00Z\n\
        [[overrides]]\nrule = 'own'\nkey = 'bob'\nlimit = '99/h'\n";
    /// When the override ends.
    const ENDS: Tick = 1_767_225_600_000_000;

    fn entries(rules: &[&str], others: &str) -> Entries {
        let text = format!("version = 1\n{}{others}", rules.concat());
        let document = RuleDocument::parse(&text, Format::Toml, &Bindings::new());
        document.expect("a valid document").entries
    }

    /// The names of the rules that are made anew.
    fn made_anew(after: &Entries, now: Tick) -> Vec<String> {
        let made = entries(&RULES, OTHERS).rules_at(ENDS - 1, &MadeRules::default());
        let again = after.rules_at(now, &made);
        let all = after.rules.iter().enumerate();
        let anew = all.filter_map(|(index, rule)| {
            let name = &rule.name.value;
            let now = again.get(index, name).expect("it was made");
            let before = made.get(index, name);
            let is_kept = before.is_some_and(|before| Arc::ptr_eq(&before.made, &now.made));
            (!is_kept).then(|| name.clone())
        });
        anew.collect()
    }

    #[test]
    fn of_a_document_that_differs_only_the_rules_that_differ_are_made_anew() {
        let none: [&str; 0] = [];
        let same = entries(&RULES, OTHERS);
        assert_eq!(made_anew(&same, ENDS - 1), none);
        let moved = [RULES[3], RULES[1], RULES[0], RULES[2]];
        assert_eq!(made_anew(&entries(&moved, OTHERS), ENDS - 1), none);

        let mut rules = RULES.map(str::to_owned);
        for (index, anew) in [
            (0, &["plain"][..]),
            (1, &["own"]),
            // It displaces the rest of its group.
            (2, &["exact", "rest"]),
            (3, &["rest"]),
        ] {
            rules[index] = RULES[index].replace("9/h", "8/h");
            let changed = rules.each_ref().map(String::as_str);
            assert_eq!(made_anew(&entries(&changed, OTHERS), ENDS - 1), anew);
            rules[index] = RULES[index].to_owned();
        }
        let renamed = OTHERS.replace("'bob'", "'bea'");
        assert_eq!(made_anew(&entries(&RULES, &renamed), ENDS - 1), ["own"]);
        let without_group = OTHERS.replace("'exact', 'rest'", "'exact'");
        assert_eq!(
            made_anew(&entries(&RULES, &without_group), ENDS - 1),
            ["rest"]
        );
        let switched = |what: &str| format!("{OTHERS}[[switches]]\nrules = {what}\n");
        let half = switched("'plain'\nlimit = '50%'");
        assert_eq!(made_anew(&entries(&RULES, &half), ENDS - 1), ["plain"]);
        // What is off displaces nothing.
        let off = switched("'exact'\nlimit = 'off'");
        assert_eq!(
            made_anew(&entries(&RULES, &off), ENDS - 1),
            ["exact", "rest"]
        );
    }

    #[test]
    fn when_an_override_ends_its_rule_is_made_anew() {
        let same = entries(&RULES, OTHERS);
        assert_eq!(made_anew(&same, ENDS), ["own"]);
    }
}
