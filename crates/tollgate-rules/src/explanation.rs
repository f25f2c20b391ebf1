//! What the rules of a document do with a request, and why.

use std::{fmt, time::SystemTime};

use http::StatusCode;
use tollgate::{
    Head, Key, Missing,
    key::{Extracted, KeyBuf, NoKey},
};
use tollgate_core::{Quota, RuleError, Tick, wall_clock};

use crate::{
    condition::Subject,
    document_error::DocumentError,
    node::{Node, Value},
    reader::read_alone,
    rule_document::{RuleDocument, Switched},
    rule_entry::{Client, RuleEntry},
    rule_settings::{Cost, Mode},
    term::Term,
};

/// What one rule does with a request, and why. Made by [`RuleDocument::explain`](crate::RuleDocument::explain).
///
/// Its `Debug` shows no key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The rule's name in the document.
    pub rule: String,
    /// What it counts by, as the document says: `header:x-api-key`.
    pub by: Vec<String>,
    /// The rule for a limiter, with all quotas that the request may have. Its name is that of its state: a rollout's shadow has one
    /// of its own.
    pub limiter_rule: tollgate_core::Rule,
    /// The plan of that rule by which the request counts; `None`: its own quota.
    pub plan: Option<String>,
    /// What it does with the request.
    pub outcome: Explained,
    /// The units that the request takes.
    pub units: u64,
    /// The key that the request counts against; `None` if it does not get so far.
    pub key: Option<Key>,
    /// The key's hash with the secret of the [bindings](crate::Bindings), as overrides name it; its beginning is in the audit;
    /// `None` without a secret.
    pub key_hash: Option<u128>,
    /// The quota of the request, with switches applied.
    pub quota: Quota,
    /// Where that quota comes from.
    pub origin: QuotaOrigin,
    /// Which responses count, as the document says in `count_if`; `None`: all.
    pub counts_if: Option<String>,
    /// The switches that apply to the rule, in words.
    pub switches: Vec<String>,
}

/// What a rule does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Explained {
    /// It decides the request.
    Enforces,
    /// It decides and counts, and denies nothing.
    Shadows,
    /// It is off.
    Off,
    /// Its `at` says that it applies on the other side of a proxy.
    Elsewhere,
    /// Its `when` does not hold.
    ConditionFails,
    /// A more specific rule of its group, with this name, counts the request in its place.
    Displaced(String),
    /// Its `unless` holds.
    Exempt,
    /// Its limit is `none`, and of a client alone it is not known whether its `when` and `unless` let it apply.
    DependsOnRequest,
    /// The client is not in its rollout.
    NotInRollout,
    /// The client's quota is unlimited.
    Unlimited,
    /// A handler checks it, if and for whom it likes.
    LeftToHandler,
    /// The request has no key, and the rule skips such requests.
    SkipsMissingKey,
    /// The request has no key, and the rule rejects such requests with this status.
    Rejects(StatusCode),
}

/// Where the quota of a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaOrigin {
    /// The rule's own `limit`.
    Rule,
    /// One of the rule's `plans`, with this name.
    Plan(String),
    /// What `quota_by` has computed.
    Computed,
    /// The `[[overrides]]` entry of the key.
    #[non_exhaustive]
    Override {
        /// Until when it is in force; `None`: for ever.
        until: Option<SystemTime>,
        /// Why, as the document says.
        reason: Option<String>,
    },
}

impl Explanation {
    /// Whether it counts the request: it enforces its quota, or is a shadow.
    #[must_use]
    pub fn counts(&self) -> bool {
        matches!(self.outcome, Explained::Enforces | Explained::Shadows)
    }

    /// Whether it counts against the bucket that all requests without a key share.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.key.as_ref() == Some(&Key::shared())
    }

    /// What else there is to know of it, in words: whose bucket it is, which responses count, and what is switched.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.counts() && self.is_shared() {
            let whose = "the request has no key, and counts against the bucket that all such requests share";
            notes.push(whose.to_owned());
        }
        if let Some(condition) = self.counts_if.as_ref().filter(|_| self.counts()) {
            notes.push(format!(
                "gives the units back unless the response is {condition}"
            ));
        }
        let switched = self.switches.iter();
        notes.extend(switched.map(|switch| format!("switched, {switch}")));
        notes
    }

    /// Counts by a quota that gets a plan of its own.
    fn count_by(&mut self, name: &str, quota: Quota, origin: QuotaOrigin) {
        let mut names = (1_u32..).map(|number| format!("{name} {number}"));
        let is_free = |name: &String| self.limiter_rule.plan_number(name).is_none();
        // There are more numbers than plans.
        let plan = names.find(is_free).unwrap_or_default();
        self.limiter_rule = self.limiter_rule.clone().plan(&*plan, quota);
        (self.plan, self.quota, self.origin) = (Some(plan), quota, origin);
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforces => f.write_str("enforced"),
            Self::Shadows => f.write_str("shadow"),
            Self::Off => f.write_str("off"),
            Self::Elsewhere => f.write_str("its `at` is the other side"),
            Self::ConditionFails => f.write_str("its `when` does not hold"),
            Self::Displaced(by) => write!(f, "{by:?} is more specific"),
            Self::Exempt => f.write_str("its `unless` holds"),
            Self::DependsOnRequest => f.write_str("depends on the request"),
            Self::NotInRollout => f.write_str("the client is not in its rollout"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::LeftToHandler => f.write_str("its handler checks it"),
            Self::SkipsMissingKey => f.write_str("no key, so it skips the request"),
            Self::Rejects(status) => write!(f, "no key, so it rejects with {}", status.as_u16()),
        }
    }
}

impl fmt::Display for QuotaOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule => f.write_str("the rule's limit"),
            Self::Plan(plan) => write!(f, "plan {plan:?}"),
            Self::Computed => f.write_str("computed by the service"),
            Self::Override { until, reason } => {
                let until = until.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
                let term = Term {
                    until: until.map_or(Tick::MAX, |until| until.as_micros() as Tick),
                    reason: reason.as_deref().map(Into::into),
                };
                write!(f, "an override{term}")
            }
        }
    }
}

impl RuleDocument {
    /// What each rule does with a request as it is now, and why: for operators who ask which limit a client has met. Nothing is
    /// decided, and nothing is taken.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleDocument, operators::Explained};
    ///
    /// let text = r#"
    ///     version = 1
    ///     [[rules]]
    ///     name = "search-per-key"
    ///     limit = "20/s"
    ///     by = "header:x-api-key"
    ///     when = { path = "/search" }
    /// "#;
    /// let document = RuleDocument::parse(text, Format::Toml, &Bindings::new())?;
    /// let request = http::Request::get("/items").body(())?;
    /// let explained = document.explain(&request.into_parts().0);
    /// assert_eq!(explained[0].outcome, Explained::ConditionFails);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn explain<'h>(&self, head: impl Into<Head<'h>>) -> Vec<Explanation> {
        let (head, now) = (head.into(), wall_clock());
        let rules = 0..self.rules.len();
        rules
            .map(|rule| self.explain_rule(rule, &head, now))
            .collect()
    }

    /// What the rule with this name does with a client, as it is now: from the texts that an override of it would have, one for
    /// each part that the rule counts by. Costs and plans that need a request are left out, and so are conditions, unless the limit is
    /// `none` and they decide whom it blocks.
    ///
    /// ```
    /// use tollgate_rules::{Bindings, Format, RuleDocument};
    ///
    /// let text = r#"{ "version": 1, "rules": [{ "name": "per-ip", "limit": "20/s", "by": "client_ip" }] }"#;
    /// let document = RuleDocument::parse(text, Format::Json, &Bindings::new())?;
    /// assert!(document.explain_key("per-ip", &["192.0.2.7"])?.counts());
    /// let error = document.explain_key("per-ip", &["acme"]).unwrap_err();
    /// assert!(error.to_string().contains("write an address"), "{error}");
    /// # Ok::<(), tollgate_rules::DocumentError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// There is no such rule, or its keys are not of this form.
    pub fn explain_key(&self, rule: &str, texts: &[&str]) -> Result<Explanation, DocumentError> {
        let Some(index) = self.names().position(|name| name == rule) else {
            let unknown = RuleError::unknown("rule", rule, self.names());
            return Err(DocumentError::of_whole(rule, unknown.to_string()));
        };
        let nodes = texts
            .iter()
            .map(|text| Node::new(Value::Text((*text).to_owned())));
        let node = Node::new(Value::List(nodes.collect()));
        let of_rule = &self.rules[index].key;
        let key = read_alone(&node, |item| of_rule.of_text(item, rule))
            .map_err(|wrong| DocumentError::of_whole(rule, wrong))?;
        let client: Vec<_> = of_rule.named().zip(texts.iter().copied()).collect();
        let explaining = Explaining::new(self, index, wall_clock());
        let why_not = explaining.why_not(&Subject::Client(&client));
        let mut explained = explaining.counted(key.as_ref());
        // What is used is of interest whichever requests use it; of a limit of none nothing is.
        let is_blocked = explained.quota.is_none() && explained.origin == QuotaOrigin::Rule;
        match why_not {
            Some(Explained::DependsOnRequest) if !is_blocked => {}
            Some(why_not) if explained.counts() => explained.outcome = why_not,
            _ => {}
        }
        Ok(explained)
    }

    /// What a rule does with a request at a time.
    pub(crate) fn explain_rule(&self, index: usize, head: &Head<'_>, now: Tick) -> Explanation {
        let mut explaining = Explaining::new(self, index, now);
        let rule = explaining.rule;
        if let Cost::Computed(cost) | Cost::Header(cost, _) = &rule.cost {
            explaining.explanation.units = cost(head);
        }
        if let Some(why_not) = explaining.why_not(&Subject::Request(head)) {
            return explaining.ends(why_not);
        }
        if rule.key.is_of_handler() {
            return explaining.ends(Explained::LeftToHandler);
        }
        let explanation = &mut explaining.explanation;
        if let Some(quota) = rule.quota.as_ref().and_then(|quota| quota(head)) {
            let quota = rule.scaled(quota, explaining.switched.permille);
            // One that the rule cannot take leaves the rule's own.
            if explanation.limiter_rule.quota_for(quota).is_ok() {
                explanation.count_by("computed", quota, QuotaOrigin::Computed);
            }
        } else if let Some(plan) = rule.plan.as_ref().and_then(|plan| plan(head))
            && let Some(number) = explanation.limiter_rule.plan_number(&plan)
        {
            explanation.quota = *explanation.limiter_rule.quota_of(number);
            explanation.plan = Some(plan.to_string());
            explanation.origin = QuotaOrigin::Plan(plan.to_string());
        }
        let is_unlimited = explanation.quota.is_unlimited();
        // A single client may have a limit.
        if is_unlimited && rule.overrides.is_empty() {
            return explaining.ends(Explained::Unlimited);
        }
        let mut key = KeyBuf::new();
        let why = match rule.key.extractor().extract(head, &mut key) {
            Extracted::Key => return explaining.counted(&key),
            _ if is_unlimited => return explaining.ends(Explained::Unlimited),
            Extracted::Nothing(why) => why,
            // It is looked up by the service only.
            _ => NoKey::LookUpFailed,
        };
        explaining.keep_block();
        match rule.missing {
            Missing::Skip if why == NoKey::Absent => explaining.ends(Explained::SkipsMissingKey),
            Missing::Reject(_) if explaining.switched.mode != Mode::Enforce => {
                explaining.ends(Explained::SkipsMissingKey)
            }
            Missing::Reject(status) => explaining.ends(Explained::Rejects(status)),
            _ => explaining.counted(Key::shared().as_ref()),
        }
    }
}

/// A rule that is being explained.
struct Explaining<'a> {
    document: &'a RuleDocument,
    rule: &'a RuleEntry,
    now: Tick,
    switched: Switched,
    explanation: Explanation,
}

impl<'a> Explaining<'a> {
    fn new(document: &'a RuleDocument, index: usize, now: Tick) -> Self {
        let rule = &document.rules[index];
        let switched = document.switched(index, now);
        let numbers = rule.numbers(switched.permille);
        let switches = document
            .switches
            .iter()
            .filter(|it| it.term.until > now && it.is_for(index, &rule.limit));
        Self {
            document,
            rule,
            now,
            switched,
            explanation: Explanation {
                rule: rule.name.clone(),
                by: rule.key.names().map(str::to_owned).collect(),
                outcome: Explained::Off,
                units: numbers.fixed_cost(),
                key: None,
                key_hash: None,
                plan: None,
                quota: *numbers.quota(),
                origin: QuotaOrigin::Rule,
                counts_if: rule.counts_if.clone(),
                switches: switches
                    .map(|switch| format!("{}{}", switch.effect, switch.term))
                    .collect(),
                limiter_rule: numbers,
            },
        }
    }

    fn ends(mut self, outcome: Explained) -> Explanation {
        self.explanation.outcome = match self.switched.mode {
            Mode::Off if self.rule.is_here => Explained::Off,
            Mode::Off => Explained::Elsewhere,
            _ => outcome,
        };
        self.explanation
    }

    /// Why the rule does not look at the request's key.
    fn why_not(&self, subject: &Subject<'_>) -> Option<Explained> {
        let applies = self.rule.condition.holds(subject);
        if applies == Some(false) {
            return Some(Explained::ConditionFails);
        }
        let mut is_known = applies.is_some();
        let behind = self.rule.behind.iter();
        for other in behind.filter(|it| self.document.switched(**it, self.now).mode != Mode::Off) {
            let other = &self.document.rules[*other];
            match other.condition.holds(subject) {
                Some(true) => return Some(Explained::Displaced(other.name.clone())),
                Some(false) => {}
                None => is_known = false,
            }
        }
        let unless = self.rule.unless.as_ref();
        match unless.map_or(Some(false), |unless| unless.holds(subject)) {
            Some(true) => Some(Explained::Exempt),
            _ if matches!(subject, Subject::Request(_)) => None,
            Some(false) if is_known => None,
            _ => Some(Explained::DependsOnRequest),
        }
    }

    fn counted(mut self, key: &KeyBuf) -> Explanation {
        let rule = self.rule;
        let hash_key = self.document.hash_key.as_ref();
        self.explanation.key_hash = hash_key.map(|hash_key| hash_key(&rule.name, key));
        self.explanation.key = Some(key.clone().into());
        if let Some((rollout, others)) = rule.rollout
            && !rollout.has(key)
        {
            if [others, self.switched.mode].contains(&Mode::Off) {
                return self.ends(Explained::NotInRollout);
            }
            // The others have a state of their own.
            self.explanation.limiter_rule = rule.shadow(&self.explanation.limiter_rule);
            (self.switched.mode, self.switched.blocks) = (Mode::Shadow, false);
        }
        // The limit of a single client: the last entry that is in force.
        let mut overrides = rule.overrides.iter().rev();
        let found = overrides.find(|entry| {
            let is_of_client = match &entry.client {
                Client::Key(other) => other.as_ref() == key,
                Client::Hash(other) => Some(*other) == self.explanation.key_hash,
            };
            is_of_client && entry.term.until > self.now
        });
        if let Some(entry) = found {
            let quota = entry.limit(rule.scaled(entry.quota, self.switched.permille));
            let origin = QuotaOrigin::Override {
                until: entry.term.end(),
                reason: entry.term.reason.as_deref().map(str::to_owned),
            };
            self.explanation.count_by("override", quota, origin);
        }
        self.keep_block();
        let mode = self.switched.mode;
        self.explanation.limiter_rule = mode.of(self.explanation.limiter_rule.clone());
        let outcome = match mode {
            _ if self.explanation.quota.is_unlimited() => Explained::Unlimited,
            Mode::Shadow => Explained::Shadows,
            _ => Explained::Enforces,
        };
        self.ends(outcome)
    }

    /// A switch for all rules leaves whom they block blocked.
    fn keep_block(&mut self) {
        if self.switched.blocks && self.explanation.quota.is_none() {
            self.switched.mode = Mode::Enforce;
        }
    }
}
