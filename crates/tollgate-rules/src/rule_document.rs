//! A document: rules, groups, overrides and switches.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use tollgate::{
    RequestRule,
    key::KeyBuf,
    shed::{Capacity, ShedLayer},
};
use tollgate_core::{Quota, Tick, wall_clock};

use crate::{
    bindings::HashKey,
    document_tables::read_shed,
    entry::{Effect, Switch},
    list_file::ListFile,
    node::Node,
    operator_entries::{EntryKind, OperatorEntries, OperatorEntry},
    reader::{Item, read_alone},
    rule_entry::{Client, Override, RuleEntry, only_none},
    rule_settings::Mode,
};

/// The rules of a document, checked as a whole.
///
/// ```
/// use tollgate::{MemoryStore, RateLimitLayer};
/// use tollgate_rules::{Bindings, Format, RuleDocument};
///
/// let text = r#"
///     version = 1
///
///     [[rules]]
///     name = "search-per-key"
///     limit = "20/s burst 50"
///     by = "header:x-api-key"
///     when = { path = "/search/{*rest}", methods = ["GET"] }
/// "#;
/// let document = RuleDocument::parse(text, Format::Toml, &Bindings::new())?;
/// let layer = RateLimitLayer::new(MemoryStore::new(), document.rules())?;
///
/// let error = RuleDocument::parse(&text.replace("20/s", "20/sce"), Format::Toml, &Bindings::new()).unwrap_err();
/// assert!(error.to_string().contains("did you mean \"sec\"?"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct RuleDocument {
    pub(crate) rules: Vec<RuleEntry>,
    pub(crate) switches: Vec<Switch>,
    /// For the overrides that name the hash of a key.
    pub(crate) hash_key: Option<Arc<HashKey>>,
    /// What the document says of the whole: how addresses are found, of lists, how load is shed, which rules are a group.
    pub(crate) said: BTreeMap<String, String>,
    /// The files of lists that it names, which are followed for as long as it is there.
    pub(crate) lists: Vec<Arc<ListFile>>,
    /// Its table `shed`, which was read once.
    pub(crate) shed: Option<Node>,
    /// What operators set that does not go with the document, and why.
    pub(crate) unfit: Vec<(Arc<OperatorEntry>, String)>,
}

/// An entry that goes with a document.
pub(crate) enum FittingEntry {
    Override(Override),
    Switch(Switch),
}

/// What switches make of a rule at a time.
pub(crate) struct Switched {
    pub(crate) mode: Mode,
    /// The part of its limits that is left, in thousandths.
    pub(crate) permille: u64,
    /// Whether its limits of none stay enforced: no switch that names the rule has changed its mode.
    pub(crate) blocks: bool,
}

/// A document, and the tree of each of its texts.
pub(crate) type ReadText = (RuleDocument, Vec<Node>);

impl RuleDocument {
    /// The rules for a layer, as they are now: overrides and switches that have expired do not count.
    #[must_use]
    pub fn rules(&self) -> Vec<RequestRule> {
        self.rules_at(wall_clock())
    }

    /// The rules for a [`Limiter`](tollgate::Limiter), as they are now. Keys, conditions, costs and plans are for the caller to
    /// choose, and so are overrides and rollouts: they need a request.
    #[must_use]
    pub fn limiter_rules(&self) -> Vec<tollgate_core::Rule> {
        let (rules, now) = (self.rules.iter().enumerate(), wall_clock());
        let rules = rules.map(|(index, rule)| {
            let Switched { mode, permille, .. } = self.switched(index, now);
            mode.of(rule.numbers(permille))
        });
        rules.collect()
    }

    /// The rules at a time in microseconds since the Unix epoch.
    #[must_use]
    pub fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
        self.named_rules_at(now).map(|(_, rule)| rule).collect()
    }

    /// The same, each with the name of the rule in the document: of one, a rollout and switches make several, with names of their own.
    pub fn named_rules_at(&self, now: Tick) -> impl Iterator<Item = (&str, RequestRule)> {
        let named = self.names().enumerate();
        named.flat_map(move |(index, name)| {
            let made = self.rules_of(index, now).into_iter();
            made.map(move |rule| (name, rule))
        })
    }

    /// When an override or a switch expires next, in microseconds since the Unix epoch: the rules differ from then on.
    #[must_use]
    pub fn expires_after(&self, now: Tick) -> Option<Tick> {
        let overrides = self.overrides().map(|entry| entry.term.until);
        let all = overrides.chain(self.switches.iter().map(|switch| switch.term.until));
        all.filter(|until| *until > now && *until < Tick::MAX).min()
    }

    /// The rules for a limiter as they are now, one each: as [`limiter_rules`](Self::limiter_rules), with what the document
    /// counts them by.
    pub fn keyed_rules(&self) -> impl Iterator<Item = (tollgate_core::Rule, Vec<&str>)> {
        let by = self.rules.iter().map(|rule| rule.key.names().collect());
        self.limiter_rules().into_iter().zip(by)
    }

    /// What is right in it, and probably not meant, a sentence each: a rule by `header:authorization`, whose spellings are clients of their
    /// own, `plans` without a `plan` that says which request has which, a `max` of a cost that never fits the limit, a misspelt method,
    /// and overrides that have ended.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.rules.iter().flat_map(|rule| {
            let name = &rule.name;
            let of_rule = [
                rule.unused_plans(),
                rule.denied_without_cost(),
                rule.ended_overrides(wall_clock()),
            ];
            let of_rule = of_rule.into_iter().flatten();
            let noted = rule.warnings.iter().cloned();
            let warnings = rule.key.warnings().chain(of_rule).chain(noted);
            warnings.map(move |warning| format!("{name}: {warning}"))
        })
    }

    /// A layer that sheds as it says, and nothing where it says nothing.
    pub(crate) fn shed_layer(&self) -> ShedLayer {
        let node = self.shed.as_ref();
        let made = node.and_then(|node| read_alone(node, read_shed).ok());
        made.unwrap_or_else(|| ShedLayer::new(Capacity::measured(|| 0.0)))
    }

    /// Whether another one says the same of load.
    pub(crate) fn sheds_as(&self, other: &Self) -> bool {
        self.said.get("shed") == other.said.get("shed")
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.name)
    }

    /// The rule with this name as the document says it, in JSON.
    #[must_use]
    pub fn written(&self, name: &str) -> Option<&str> {
        let rule = self.rules.iter().find(|rule| rule.name == name)?;
        Some(&rule.written)
    }

    /// Those of all rules.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = &Override> {
        self.rules.iter().flat_map(|rule| &rule.overrides)
    }

    /// With what operators set beside the document. What does not go with it is kept apart.
    pub(crate) fn beside(mut self, set: &OperatorEntries) -> Self {
        if set.all.is_empty() {
            return self;
        }
        let by_name = self.by_name();
        let read = set.all.iter();
        let read: Vec<_> = read
            .map(|entry| self.read(&by_name, entry, false))
            .collect();
        for (set, read) in set.all.iter().zip(read) {
            let set = Arc::new(set.clone());
            match read {
                Ok(entry) => self.add(entry, Some(set)),
                Err(problem) => self.unfit.push((set, problem)),
            }
        }
        self
    }

    /// Adds an entry, and what an operator set for it.
    pub(crate) fn add(&mut self, entry: FittingEntry, set: Option<Arc<OperatorEntry>>) {
        match entry {
            FittingEntry::Override(entry) => {
                let of_rule = &mut self.rules[entry.rule].overrides;
                of_rule.push(Override { set, ..entry });
            }
            FittingEntry::Switch(entry) => self.switches.push(Switch { set, ..entry }),
        }
    }

    /// Reads an override or a switch of its rules, which `named` finds.
    pub(crate) fn read_entry(
        &self,
        kind: EntryKind,
        item: Item<'_>,
        named: impl Fn(Item<'_>) -> Option<usize>,
    ) -> Option<FittingEntry> {
        let (rules, has_secret) = (&self.rules, self.hash_key.is_some());
        match kind {
            EntryKind::Override => {
                Override::read(item, rules, has_secret, named).map(FittingEntry::Override)
            }
            EntryKind::Switch => Switch::read(item, rules.len(), named).map(FittingEntry::Switch),
        }
    }

    /// The indices of the rules.
    pub(crate) fn by_name(&self) -> HashMap<&str, usize> {
        self.names().zip(0..).collect()
    }

    /// Reads what an operator set, or is to set now: then names that no rule has are compared with those of the rules.
    ///
    /// # Errors
    ///
    /// It does not go with the document.
    fn read(
        &self,
        by_name: &HashMap<&str, usize>,
        set: &OperatorEntry,
        is_new: bool,
    ) -> Result<FittingEntry, String> {
        read_alone(&set.node(), |item| {
            let named = |rule: Item<'_>| {
                let name = rule.text("the name of a rule")?;
                let found = by_name.get(name).copied();
                found.or_else(|| match is_new {
                    true => rule.unknown("rule", name, self.names()),
                    false => rule.refuse(format!("there is no rule {name:?} any more")),
                })
            };
            let entry = self.read_entry(set.kind(), item, named)?;
            if let (FittingEntry::Override(of_client), Some(before)) = (&entry, &set.counted_by) {
                let rule = &self.rules[of_client.rule];
                let (name, now) = (&rule.name, rule.key.form());
                // A hash of a key of another form would never be met.
                if now != *before {
                    return item.refuse(format!(
                        "rule {name:?} counts by {now} now, and counted by {before}"
                    ));
                }
            }
            Some(entry)
        })
    }

    /// Reads what is to be set now.
    ///
    /// # Errors
    ///
    /// It does not go with the document, or has ended.
    pub(crate) fn read_new(&self, set: &OperatorEntry, now: Tick) -> Result<FittingEntry, String> {
        let read = self.read(&self.by_name(), set, true)?;
        match set.term.until > now {
            true => Ok(read),
            false => Err(format!(
                "its end is past: it would have been in force{}",
                set.term
            )),
        }
    }

    /// The hash of the client of an override, if there is a secret to make it with.
    pub(crate) fn hash_of_client(&self, entry: &Override) -> Option<u128> {
        match &entry.client {
            Client::Hash(hash) => Some(*hash),
            Client::Key(key) => {
                let hash_key = self.hash_key.as_ref()?;
                Some(hash_key(&self.rules[entry.rule].name, key.as_ref()))
            }
        }
    }

    /// The rules for a layer that one of a document is at a time: two where a rollout leaves others to a shadow, and one more where a switch
    /// leaves who is blocked.
    pub(crate) fn rules_of(&self, index: usize, now: Tick) -> Vec<RequestRule> {
        let rule = &self.rules[index];
        let switched = self.switched(index, now);
        let (mode, permille, least) = (switched.mode, switched.permille, rule.least_limit());
        let scaled = move |quota: Quota| quota.scaled(permille, least).unwrap_or(quota);
        let (mut numbers, mut of_requests) = (rule.numbers(permille), rule.of_requests.clone());
        let mut plans: HashMap<Quota, Arc<str>> = HashMap::new();
        // Where a client is known by a hash of its key, all are found by that: the last entry counts, whatever it names the client by.
        let overrides = rule.overrides.iter().filter(|entry| entry.term.until > now);
        let is_hash = |entry: &Override| matches!(entry.client, Client::Hash(_));
        let by_hash = overrides.clone().any(is_hash);
        let mut hashes = HashMap::new();
        for entry in overrides {
            let (quota, next) = (entry.limit(scaled(entry.quota)), plans.len() + 1);
            let known = plans.entry(quota);
            let plan = Arc::clone(known.or_insert_with(|| format!("override {next}").into()));
            if plans.len() == next {
                numbers = numbers.plan(Arc::clone(&plan), quota);
            }
            if by_hash && let Some(hash) = self.hash_of_client(entry) {
                hashes.insert(hash, plan);
            } else if let Client::Key(key) = &entry.client {
                of_requests = of_requests.plan_for_key(key.clone(), plan);
            }
        }
        if let Some(hash_key) = self.hash_key.clone().filter(|_| !hashes.is_empty()) {
            let name = rule.name.clone();
            let plan = move |key: &KeyBuf| hashes.get(&hash_key(&name, key)).cloned();
            of_requests = of_requests.plan_by_key(plan);
        }
        // A rule of a group leaves to the more specific ones what they count.
        let others: Vec<_> = (rule.behind.iter())
            .filter(|other| self.switched(**other, now).mode != Mode::Off)
            .map(|other| self.rules[*other].condition.predicate())
            .collect();
        if !others.is_empty() {
            of_requests = of_requests.when(move |head| !others.iter().any(|holds| holds(head)));
        }
        if let Some(quota) = rule.quota.clone() {
            of_requests = of_requests.quota_by(move |head| quota(head).map(scaled));
        }
        let made = |numbers, mode: Mode| of_requests.clone().with_numbers(mode.of(numbers));
        let mut rules = vec![made(numbers.clone(), mode)];
        if switched.blocks
            && mode != Mode::Enforce
            && let Some(numbers) = rule.blocking(&numbers)
        {
            let blocking = made(numbers, Mode::Enforce);
            rules.push(match rule.quota.clone() {
                Some(quota) => blocking.quota_by(move |head| quota(head).map(only_none)),
                None => blocking,
            });
        }
        if let Some((rollout, others)) = rule.rollout {
            let inside = |made: RequestRule| made.when_key(move |key| rollout.has(key));
            rules = rules.into_iter().map(inside).collect();
            if others == Mode::Shadow && mode != Mode::Off {
                let shadow = made(rule.shadow(&numbers), Mode::Shadow);
                rules.insert(1, shadow.when_key(move |key| !rollout.has(key)));
            }
        }
        rules
    }

    /// What switches make of a rule at a time.
    pub(crate) fn switched(&self, index: usize, now: Tick) -> Switched {
        let rule = &self.rules[index];
        let mut switched = Switched {
            mode: rule.mode,
            permille: 1_000,
            blocks: rule.mode == Mode::Enforce,
        };
        if !rule.is_here {
            (switched.mode, switched.blocks) = (Mode::Off, false);
            return switched;
        }
        let in_force = self.switches.iter().filter(|it| it.term.until > now);
        for switch in in_force.filter(|switch| switch.is_for(index, &rule.limit)) {
            match switch.effect {
                Effect::Mode(mode) => {
                    switched.blocks &= !switch.rules[index];
                    // What is off stays off.
                    if switched.mode != Mode::Off {
                        switched.mode = mode;
                    }
                }
                Effect::Permille(part) => switched.permille = switched.permille.min(part),
            }
        }
        switched
    }
}

tollgate_core::debug_fields!(RuleDocument, it =>
    rules: it.names().collect::<Vec<_>>(), overrides: it.overrides().count(), switches: it.switches.len()
);
