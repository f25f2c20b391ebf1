//! A document: rules, groups, overrides and switches.

use std::{collections::HashMap, fmt, ops::Range, sync::Arc};

use tollgate::{Key, RequestRule};
use tollgate_core::{Quota, RuleSet, Tick};

use crate::{
    bindings::Bindings,
    condition::Condition,
    document_error::DocumentError,
    format::Format,
    node::{Node, Value},
    path_pattern::Segment,
    problems::Problems,
    reader::{At, Fields, Reader},
    rule_entry::{Mode, RuleEntry, limit, without_name},
    toml_tree, yaml_tree,
};

const FIELDS: &[&str] = &["version", "rules", "groups", "overrides", "switches"];

/// The most bytes of a document.
const MOST_BYTES: usize = 64 << 20;

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
#[derive(Clone)]
pub struct RuleDocument {
    rules: Vec<RuleEntry>,
    /// By rule, the more specific ones of its groups.
    behind: Vec<Vec<usize>>,
    overrides: Vec<Override>,
    switches: Vec<Switch>,
}

/// A client's own limit.
#[derive(Clone)]
struct Override {
    rule: usize,
    key: Key,
    quota: Quota,
    until: Tick,
}

/// What is switched for some or all rules.
#[derive(Clone)]
struct Switch {
    /// By rule.
    rules: Vec<bool>,
    effect: Effect,
    until: Tick,
}

#[derive(Clone, Copy)]
enum Effect {
    Mode(Mode),
    /// Of all limits, so many thousandths.
    Permille(u64),
}

/// One text of a document, with what is wrong with it.
pub(crate) struct Part<'a> {
    pub(crate) origin: &'a str,
    pub(crate) text: &'a str,
    pub(crate) format: Format,
}

/// The tables of a text, before they are put together.
struct Tables {
    root: Node,
    problems: Problems,
}

impl RuleDocument {
    /// Reads a document.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with lines, columns and what would be right.
    pub fn parse(text: &str, format: Format, bindings: &Bindings) -> Result<Self, DocumentError> {
        let origin = format!("<{format}>");
        Self::named(&origin, text, format, bindings)
    }

    /// Reads a document whose errors begin with `origin`, such as the path of a file.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn named(
        origin: &str,
        text: &str,
        format: Format,
        bindings: &Bindings,
    ) -> Result<Self, DocumentError> {
        let part = Part {
            origin,
            text,
            format,
        };
        Self::of_parts(&[part], bindings)
    }

    /// Reads a document of several texts, such as the files of a folder.
    pub(crate) fn of_parts(parts: &[Part<'_>], bindings: &Bindings) -> Result<Self, DocumentError> {
        if let Some(long) = parts.iter().find(|part| part.text.len() > MOST_BYTES) {
            let message = format!(
                "a document of {} bytes is above {MOST_BYTES}",
                long.text.len()
            );
            return Err(DocumentError::of_whole(long.origin, message));
        }
        let tables: Vec<Tables> = parts.iter().map(Tables::parse).collect();
        let document = Assembly::new(parts, &tables, bindings).document();
        let mut wrong: Option<DocumentError> = None;
        for (part, Tables { problems, .. }) in parts.iter().zip(tables) {
            let problems = problems.into_sorted();
            if problems.is_empty() {
                continue;
            }
            let error = DocumentError::new(part.origin, part.text, &problems);
            match &mut wrong {
                None => wrong = Some(error),
                Some(wrong) => wrong.extend(error),
            }
        }
        wrong.map_or(Ok(document), Err)
    }

    /// The rules for a layer, as they are now: overrides and switches that have expired do not count.
    #[must_use]
    pub fn rules(&self) -> Vec<RequestRule> {
        self.rules_at(now())
    }

    /// The rules for a [`Limiter`](tollgate::Limiter), as they are now. Keys, conditions, costs and plans are for the caller to
    /// choose, and so are overrides and rollouts: they need a request.
    #[must_use]
    pub fn limiter_rules(&self) -> Vec<tollgate_core::Rule> {
        let now = now();
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
    #[must_use]
    pub fn rules_at(&self, now: Tick) -> Vec<RequestRule> {
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
    #[must_use]
    pub fn expires_after(&self, now: Tick) -> Option<Tick> {
        let overrides = self.overrides.iter().map(|entry| entry.until);
        let all = overrides.chain(self.switches.iter().map(|switch| switch.until));
        all.filter(|until| *until > now && *until < Tick::MAX).min()
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.name.value)
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

impl Tables {
    fn parse(part: &Part<'_>) -> Self {
        let problems = Problems::default();
        let root = match part.format {
            Format::Toml => toml_tree::parse(part.text, &problems),
            format => yaml_tree::parse(part.text, format, &problems),
        };
        Self { root, problems }
    }
}

/// Puts the tables of all texts together.
struct Assembly<'a> {
    parts: &'a [Part<'a>],
    tables: &'a [Tables],
    bindings: &'a Bindings,
    rules: Vec<RuleEntry>,
    /// By rule, the text that defines it.
    defined_in: Vec<usize>,
    by_name: HashMap<String, usize>,
    /// Rules that are wrong, which may be named all the same.
    wrong_names: Vec<String>,
    /// Whether a rule has no name that can be read: it could be any.
    has_nameless: bool,
}

impl<'a> Assembly<'a> {
    fn new(parts: &'a [Part<'a>], tables: &'a [Tables], bindings: &'a Bindings) -> Self {
        Self {
            parts,
            tables,
            bindings,
            rules: Vec::new(),
            defined_in: Vec::new(),
            by_name: HashMap::new(),
            wrong_names: Vec::new(),
            has_nameless: false,
        }
    }

    fn reader(&self, part: usize) -> Reader<'a> {
        Reader {
            text: self.parts[part].text,
            problems: &self.tables[part].problems,
        }
    }

    fn document(mut self) -> RuleDocument {
        let mut all = Vec::new();
        for part in 0..self.parts.len() {
            let reader = self.reader(part);
            let tables = self.tables;
            if !tables[part].problems.is_empty() {
                // What could be read of a text with wrong syntax says nothing of the rest.
                self.has_nameless = true;
                continue;
            }
            let Some(fields) = reader.fields(&tables[part].root, "a document", FIELDS) else {
                continue;
            };
            if let Some(version) = fields.get("version") {
                if let Some(version) = reader.number(version, "a version", 1, u64::MAX)
                    && version != 1
                {
                    let message =
                        format!("there is no version {version} of the format; write version = 1");
                    let span = fields.get("version").map_or(0..0, |node| node.span.clone());
                    reader.wrong(&span, message);
                }
            } else {
                reader.wrong(
                    &(0..0),
                    "the version of the format is missing; begin with version = 1",
                );
            }
            let nodes = |name: &str| {
                let node = fields.get(name)?;
                reader.list(node, name)
            };
            for node in nodes("rules").unwrap_or_default() {
                self.add_rule(part, node);
            }
            all.push((part, ["groups", "overrides", "switches"].map(nodes)));
        }
        let is_fine = self.tables.iter().all(|tables| tables.problems.is_empty());
        if self.rules.is_empty() && is_fine {
            let reader = self.reader(0);
            reader.wrong(&(0..0), "there is no rule; add one with name, limit and by");
        }
        let mut behind = vec![Vec::new(); self.rules.len()];
        let (mut overrides, mut switches) = (Vec::new(), Vec::new());
        let mut group_of = HashMap::new();
        for (part, [groups, of_keys, switched]) in all {
            for node in groups.unwrap_or_default() {
                self.add_group(part, node, &mut behind, &mut group_of);
            }
            let of_keys = of_keys.unwrap_or_default().iter();
            overrides.extend(of_keys.filter_map(|node| self.read_override(part, node)));
            let switched = switched.unwrap_or_default().iter();
            switches.extend(switched.filter_map(|node| self.read_switch(part, node)));
        }
        RuleDocument {
            rules: self.rules,
            behind,
            overrides: overrides.into_iter().map(|(_, entry)| entry).collect(),
            switches,
        }
    }

    fn add_rule(&mut self, part: usize, node: &'a Node) {
        let reader = self.reader(part);
        let Some(rule) = RuleEntry::read(reader, node, self.bindings) else {
            match name_of(node) {
                Some(name) => self.wrong_names.push(name.to_owned()),
                None => self.has_nameless = true,
            }
            return;
        };
        if let Some(other) = self.by_name.get(&rule.name.value) {
            let origin = self.parts[self.defined_in[*other]].origin;
            let before = &self.rules[*other].name.span;
            let text = self.parts[self.defined_in[*other]].text;
            let line = text[..before.start]
                .bytes()
                .filter(|byte| *byte == b'\n')
                .count()
                + 1;
            let message = format!(
                "there is a rule {:?} already, in {origin}:{line}; give each a name of its own",
                rule.name.value
            );
            reader.wrong(&rule.name.span, message);
            return;
        }
        self.by_name
            .insert(rule.name.value.clone(), self.rules.len());
        self.rules.push(rule);
        self.defined_in.push(part);
    }

    /// The index of the rule that a node names.
    fn named(&self, reader: Reader<'_>, node: &Node) -> Option<usize> {
        let name = reader.text(node, "the name of a rule")?;
        let found = self.by_name.get(name.value).copied();
        let is_wrong = self.wrong_names.iter().any(|wrong| wrong == name.value);
        if found.is_none() && !is_wrong && !self.has_nameless {
            let known = self.rules.iter().map(|rule| &*rule.name.value);
            reader.unknown(&name.span, "rule", name.value, known);
        }
        found
    }

    fn add_group(
        &self,
        part: usize,
        node: &'a Node,
        behind: &mut [Vec<usize>],
        group_of: &mut HashMap<usize, String>,
    ) {
        let reader = self.reader(part);
        let Some(fields) = reader.fields(node, "a group", &["name", "rules", "description"]) else {
            return;
        };
        let name = fields.required(reader, "a group", "name", "\"api\"");
        let name = name.and_then(|node| reader.text(node, "the name of the group"));
        let nodes = fields.required(reader, "a group", "rules", "[\"export\", \"everything\"]");
        let nodes = nodes.map(|node| reader.list_or_one(node));
        let (Some(name), Some(nodes)) = (name, nodes) else {
            return;
        };
        let mut members: Vec<(usize, Range<usize>)> = Vec::new();
        for node in nodes {
            let Some(rule) = self.named(reader, node) else {
                continue;
            };
            match group_of.insert(rule, name.value.to_owned()) {
                None => members.push((rule, node.span.clone())),
                Some(other) => {
                    let message =
                        format!("this rule is in group {other:?} already; a rule is in one group");
                    reader.wrong(&node.span, message);
                }
            }
        }
        // The most specific first; of equals, one that names methods.
        let rank = |rule: usize| {
            let condition = &self.rules[rule].condition;
            let path = condition.path.as_ref().map(|path| path.value.specificity());
            (path, !condition.methods.is_empty())
        };
        members.sort_by(|(one, _), (other, _)| compare(&rank(*other), &rank(*one)));
        for (index, (rule, span)) in members.iter().enumerate() {
            let before = &members[..index];
            if let Some((tied, _)) = before.iter().find(|(other, _)| self.is_tied(*rule, *other)) {
                let message = format!(
                    "it is not more or less specific than {:?}, so that either could count a request; give them other paths \
                     or methods",
                    self.rules[*tied].name.value
                );
                reader.wrong(span, message);
            }
            behind[*rule] = before.iter().map(|(other, _)| *other).collect();
        }
    }

    /// Whether two rules match one request, and neither is more specific.
    fn is_tied(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|rule| &self.rules[rule].condition);
        let shape = |condition: &Condition| condition.path.as_ref().map(|path| path.value.shape());
        let shares_method = match (&one.methods[..], &other.methods[..]) {
            ([], []) => true,
            ([], _) | (_, []) => false,
            (one, other) => one.iter().any(|method| other.contains(method)),
        };
        shape(one) == shape(other) && shares_method
    }

    fn read_override(&self, part: usize, node: &'a Node) -> Option<(Range<usize>, Override)> {
        let reader = self.reader(part);
        let known = ["rule", "key", "limit", "until", "reason"];
        let fields = reader.fields(node, "an override", &known)?;
        let rule = fields.required(reader, "an override", "rule", "\"search-per-key\"");
        let rule = rule.and_then(|node| self.named(reader, node));
        let until = self.until(reader, &fields);
        let key = fields.required(reader, "an override", "key", "\"acme-key-1\"");
        let quota = fields.required(reader, "an override", "limit", "\"500/s\"");
        let rule = rule?;
        let entry = &self.rules[rule];
        let key = key.and_then(|node| entry.key.of_text(reader, node, &entry.name.value));
        let quota = quota.and_then(|node| limit(reader, node, Some(&entry.limit.value)));
        let (key, quota, until) = (key?, quota?, until?);
        self.refuse_override(reader, entry, &quota)?;
        let made = Override {
            rule,
            key,
            quota: quota.value,
            until,
        };
        Some((fields.span, made))
    }

    /// An override is a plan: it shares the state with the rule's other quotas.
    fn refuse_override(
        &self,
        reader: Reader<'_>,
        rule: &RuleEntry,
        quota: &At<Quota>,
    ) -> Option<()> {
        let own = &rule.limit.value;
        if quota.value.reads_state_of(own) {
            return Some(());
        }
        let with_plan = rule.numbers(&|quota| quota).plan("override", quota.value);
        match RuleSet::new([with_plan]) {
            Ok(_) => Some(()),
            Err(wrong) => {
                let message = without_name(&wrong.to_string());
                let message = message.replace("plan \"override\" ", "the override ");
                reader.wrong(&quota.span, message);
                None
            }
        }
    }

    fn read_switch(&self, part: usize, node: &'a Node) -> Option<Switch> {
        let reader = self.reader(part);
        let fields = reader.fields(node, "a switch", &["rules", "limit", "until", "reason"])?;
        let nodes = fields.required(reader, "a switch", "rules", "\"*\"");
        let limit = fields.required(reader, "a switch", "limit", "\"50%\"");
        let effect = limit.and_then(|node| effect(reader, node));
        let until = self.until(reader, &fields);
        let mut rules = vec![false; self.rules.len()];
        for node in reader.list_or_one(nodes?) {
            if matches!(&node.value, Value::Text(all) if all == "*") {
                rules.fill(true);
            } else if let Some(rule) = self.named(reader, node) {
                rules[rule] = true;
            }
        }
        Some(Switch {
            rules,
            effect: effect?,
            until: until?,
        })
    }

    /// Until when an entry is in force; for ever where it does not say.
    fn until(&self, reader: Reader<'_>, fields: &Fields<'_>) -> Option<Tick> {
        if let Some(node) = fields.get("reason") {
            reader.text(node, "the reason as text");
        }
        match fields.get("until") {
            None => Some(Tick::MAX),
            // Before 1970 it has expired.
            Some(node) => {
                let time = reader.time(node)?;
                Some(Tick::try_from(time.as_microsecond()).unwrap_or(0))
            }
        }
    }
}

/// The name of a rule that cannot be used for another reason.
fn name_of(rule: &Node) -> Option<&str> {
    let Value::Table(fields) = &rule.value else {
        return None;
    };
    let (_, node) = fields.iter().find(|(name, _)| name.text == "name")?;
    match &node.value {
        Value::Text(name) => Some(name),
        _ => None,
    }
}

/// Rules without a path are the least specific.
fn compare(
    one: &(Option<Vec<Segment>>, bool),
    other: &(Option<Vec<Segment>>, bool),
) -> std::cmp::Ordering {
    one.cmp(other)
}

fn effect(reader: Reader<'_>, node: &Node) -> Option<Effect> {
    match &node.value {
        Value::Text(text) if !text.trim().ends_with('%') => {
            let words = [("off", Mode::Off), ("shadow", Mode::Shadow)];
            if words.iter().any(|(word, _)| word == text) {
                return reader.word(node, "switch", &words).map(Effect::Mode);
            }
            reader.unknown(&node.span, "switch", text, ["off", "shadow", "50%"]);
            None
        }
        _ => {
            let permille = reader.permille(node, 100)?;
            if permille == 0 {
                reader.wrong(&node.span, "0 % of a limit is none; to deny all, take a limit of 1 a day; to count nothing, \"off\"");
                return None;
            }
            Some(Effect::Permille(permille))
        }
    }
}

/// So many thousandths of a quota, rounded up to whole units.
fn scaled(quota: Quota, permille: u64) -> Quota {
    if permille == 1_000 || quota.is_unlimited() {
        return quota;
    }
    let part = |units: u64| {
        let units = (u128::from(units) * u128::from(permille)).div_ceil(1_000);
        u64::try_from(units).unwrap_or(u64::MAX).max(1)
    };
    use tollgate_core::AlgorithmKind as A;
    let (rate, period, burst) = (part(quota.rate()), quota.period(), part(quota.limit()));
    let made = match quota.algorithm() {
        A::Gcra => Quota::gcra(rate, period).burst(burst),
        A::TokenBucket => Quota::token_bucket(burst).refill(rate, period),
        A::LeakyBucket => Quota::leaky_bucket(burst).leak(rate, period),
        A::FixedWindow => Quota::fixed_window(rate, period),
        A::SlidingWindow => Quota::sliding_window(rate, period),
        A::SlidingBuckets => Quota::sliding_buckets(rate, period).buckets(quota.bucket_count()),
        A::SlidingLog => Quota::sliding_log(rate, period),
        _ => quota,
    };
    // A rate that cannot be counted exactly stays what it was.
    if made.validate().is_ok() { made } else { quota }
}

pub(crate) fn now() -> Tick {
    tollgate::Clock::system().now()
}

impl fmt::Debug for RuleDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleDocument")
            .field("rules", &self.names().collect::<Vec<_>>())
            .field("overrides", &self.overrides.len())
            .field("switches", &self.switches.len())
            .finish()
    }
}
