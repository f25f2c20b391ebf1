//! Rules: named quotas, and how they are meant.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    error::{RuleError, RuleErrorKind},
    quota::{MAX_UNITS, Quota},
};

/// What a rule does with its verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Denies what does not fit.
    #[default]
    Enforce,
    /// The rule is not there: nothing is counted or reported.
    Off,
    /// Decides and counts on a state of its own as if it were alone, reports, and denies nothing.
    Shadow {
        /// Counts as if this rule were absent and the shadow enforced in its place.
        instead_of: Option<Arc<str>>,
    },
    /// A second limit that is read on the state of the rule with this name, and never written.
    Mark {
        /// The rule whose state is read.
        of: Arc<str>,
    },
}

/// How exactly the processes that share a store count together.
///
/// In memory there is one process, and everything is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// Every take is decided by the store.
    #[default]
    Exact,
    /// Processes take blocks of units in advance; never above the limit.
    Leased {
        /// How much of the quota may be out on lease, in thousandths.
        reserve_permille: u16,
    },
    /// Processes count alone and report; above the limit by at most the stated bound.
    Eventual {
        /// How often a process reports.
        interval: Duration,
        /// How many units a process may admit before it has reported them.
        max_unreported: u64,
    },
}

/// What a rule answers when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreError {
    /// Counts in this process against its share of the quota: 1/N, with N the number of instances given to the
    /// [`Limiter`](crate::Limiter).
    #[default]
    LocalShare,
    /// Counts in this process against this quota.
    Cap(Quota),
    /// Lets the request pass.
    Allow,
    /// Denies the request: 503, or UNAVAILABLE for gRPC.
    Deny,
    /// Lets the request pass and marks it as degraded, for the handler to see.
    Degraded,
}

/// A named quota, with its mode and its answer to a store failure. Plain data.
///
/// ```
/// use tollgate_core::{MINUTE, OnStoreError, Quota, Rule};
///
/// let rule = Rule::new("search-per-key", Quota::gcra(600, MINUTE).burst(50))
///     .plan("gold", Quota::gcra(6_000, MINUTE).burst(500))
///     .on_store_error(OnStoreError::Deny);
/// assert_eq!(rule.name(), "search-per-key");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    name: Arc<str>,
    quota: Quota,
    plans: Vec<(Arc<str>, Quota)>,
    marks: Vec<(Arc<str>, Quota)>,
    cost: u64,
    mode: Mode,
    consistency: Consistency,
    on_store_error: OnStoreError,
}

impl Rule {
    /// A rule with this name and quota: enforced, one unit a request.
    ///
    /// The name is the identity of the budget: the same name on one store is one budget, wherever it is used. It goes
    /// into headers, metrics and logs. Letters, digits and `_ . : / * -`, the first a letter or `*`, at most 64.
    ///
    /// Name and numbers are checked when the rule becomes part of a rule set.
    pub fn new(name: impl Into<Arc<str>>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quota,
            plans: Vec::new(),
            marks: Vec::new(),
            cost: 1,
            mode: Mode::Enforce,
            consistency: Consistency::Exact,
            on_store_error: OnStoreError::LocalShare,
        }
    }

    /// Adds a plan: another quota under the same name, chosen per request. It has to be of the same algorithm, or
    /// [`unlimited`](Quota::unlimited).
    ///
    /// A caller that changes plans keeps what it has used.
    #[must_use]
    pub fn plan(mut self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.plans.push((name.into(), quota));
        self
    }

    /// Adds a mark: a second limit read on this rule's state. It is reported under its own name, and denies nothing.
    #[must_use]
    pub fn mark(mut self, name: impl Into<Arc<str>>, quota: Quota) -> Self {
        self.marks.push((name.into(), quota));
        self
    }

    /// The units that a request costs where nothing computes them. 0 asks without taking.
    #[must_use]
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    /// Decides and counts as if alone, reports, and denies nothing.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        self.mode = Mode::Shadow { instead_of: None };
        self
    }

    /// A shadow that counts as if the rule with this name were absent: what would be if it took that rule's place.
    #[must_use]
    pub fn shadow_instead_of(mut self, rule: impl Into<Arc<str>>) -> Self {
        self.mode = Mode::Shadow {
            instead_of: Some(rule.into()),
        };
        self
    }

    /// Switches the rule off.
    #[must_use]
    pub fn off(mut self) -> Self {
        self.mode = Mode::Off;
        self
    }

    /// How exactly processes count together; for stores that are shared.
    #[must_use]
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }

    /// What to answer when the store fails.
    #[must_use]
    pub fn on_store_error(mut self, answer: OnStoreError) -> Self {
        self.on_store_error = answer;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name, shared.
    #[must_use]
    pub fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// The quota of requests that choose no plan.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The quota of plan number `plan`; 0, and any number there is no plan for, is the rule's own.
    #[must_use]
    pub fn quota_of(&self, plan: usize) -> &Quota {
        plan.checked_sub(1)
            .and_then(|plan| self.plans.get(plan))
            .map_or(&self.quota, |(_, quota)| quota)
    }

    /// The name of plan number `plan`, `None` for the rule's own quota.
    #[must_use]
    pub fn plan_name(&self, plan: usize) -> Option<&str> {
        self.plans
            .get(plan.checked_sub(1)?)
            .map(|(name, _)| &**name)
    }

    /// The number of the plan with this name, counted from 1.
    #[must_use]
    pub fn plan_number(&self, name: &str) -> Option<usize> {
        self.plans
            .iter()
            .position(|(plan, _)| **plan == *name)
            .map(|place| place + 1)
    }

    /// The number of quotas: the rule's own and its plans.
    #[must_use]
    pub fn quotas(&self) -> usize {
        self.plans.len() + 1
    }

    /// The names of the plans.
    pub fn plan_names(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(|(name, _)| &**name)
    }

    /// The units of a request where nothing computes them.
    #[must_use]
    pub fn fixed_cost(&self) -> u64 {
        self.cost
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Whether the rule's denials deny.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// How exactly processes count together.
    #[must_use]
    pub fn consistency_of(&self) -> Consistency {
        self.consistency
    }

    /// The answer to a store failure.
    #[must_use]
    pub fn store_error_answer(&self) -> OnStoreError {
        self.on_store_error
    }

    fn error(&self, kind: RuleErrorKind, message: impl Into<String>) -> RuleError {
        RuleError::new(kind, &*self.name, message)
    }

    fn validate(&self) -> Result<(), RuleError> {
        validate_name(&self.name)?;
        let quota = |quota: &Quota, of: &dyn fmt::Display| {
            quota
                .validate()
                .map_err(|error| self.error(RuleErrorKind::Quota, format!("{of}{error}")))
        };
        quota(&self.quota, &"")?;
        for (place, (name, plan)) in self.plans.iter().enumerate() {
            quota(plan, &format_args!("plan {name:?}: "))?;
            let limited = std::iter::once(&self.quota)
                .chain(self.plans[..place].iter().map(|(_, plan)| plan))
                .find(|quota| !quota.is_unlimited());
            if let Some(other) = limited
                && !plan.is_unlimited()
                && plan.algorithm() != other.algorithm()
            {
                return Err(self.error(
                    RuleErrorKind::Plan,
                    format!(
                        "plan {name:?} is a {} and the rule a {}; plans share one state, so take one algorithm",
                        plan.algorithm(),
                        other.algorithm()
                    ),
                ));
            }
            if self.plans[..place].iter().any(|(other, _)| other == name) {
                return Err(self.error(
                    RuleErrorKind::Plan,
                    format!("there are two plans {name:?}; give each a name of its own"),
                ));
            }
        }
        if self.plans.len() >= usize::from(u16::MAX) {
            return Err(self.error(RuleErrorKind::Plan, "more than 65 534 plans"));
        }
        if let OnStoreError::Cap(cap) = &self.on_store_error {
            quota(cap, &"cap for store failures: ")?;
        }
        self.validate_cost()?;
        if let Consistency::Leased { reserve_permille } = self.consistency
            && !(1..=500).contains(&reserve_permille)
        {
            return Err(self.error(
                RuleErrorKind::Mode,
                format!(
                    "a reserve of {reserve_permille} ‰ is not between 1 and 500; 100 is a tenth"
                ),
            ));
        }
        Ok(())
    }

    fn validate_cost(&self) -> Result<(), RuleError> {
        if self.cost > MAX_UNITS {
            return Err(self.error(
                RuleErrorKind::Cost,
                format!("a cost of {} units is above {MAX_UNITS}", self.cost),
            ));
        }
        let quotas = std::iter::once(&self.quota).chain(self.plans.iter().map(|(_, plan)| plan));
        for quota in quotas {
            if !quota.is_unlimited() && self.cost > quota.limit() {
                return Err(self.error(
                    RuleErrorKind::Cost,
                    format!(
                        "a request costs {} units, and {quota:?} never lets more than {} pass at once; \
                         take a limit or burst of at least {}",
                        self.cost,
                        quota.limit(),
                        self.cost
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Checks the name of a rule or a mark: what is valid both as a quoted string and as a token of a structured field.
fn validate_name(name: &str) -> Result<(), RuleError> {
    let error = |message: String| Err(RuleError::new(RuleErrorKind::Name, name, message));
    let first = name.bytes().next();
    if !first.is_some_and(|first| first.is_ascii_alphabetic() || first == b'*') {
        return error("a name begins with a letter or '*'".into());
    }
    if let Some(wrong) = name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "_.:/*-".contains(*c)))
    {
        return error(format!(
            "{wrong:?} cannot be in a name, which goes into header fields; take letters, digits and _ . : / * -"
        ));
    }
    if name.len() > 64 {
        return error(format!("a name of {} characters is above 64", name.len()));
    }
    Ok(())
}

/// The rules in force: an immutable snapshot.
///
/// Marks follow the rules as rules of their own, so that a verdict's [`rule`](crate::Verdict::rule) finds either.
pub struct RuleSet {
    version: u64,
    rules: Box<[Rule]>,
    /// How many of `rules` were given; the rest are marks.
    given: usize,
    /// For a mark, the place of its rule; for a shadow with `instead_of`, the place of the rule it replaces.
    refers_to: Box<[Option<u16>]>,
    all_enforced: bool,
}

impl RuleSet {
    /// A snapshot of these rules, with the next version number of this process.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used: see [`RuleErrorKind`].
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleError> {
        static VERSION: AtomicU64 = AtomicU64::new(1);
        let mut rules: Vec<_> = rules.into_iter().collect();
        let given = rules.len();
        if given == 0 {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                "there is no rule; give at least one",
            ));
        }
        for place in 0..given {
            rules[place].validate()?;
            if rules[place].is_mark() {
                return Err(rules[place].error(
                    RuleErrorKind::Mode,
                    "a mark is added to the rule it reads: Rule::mark",
                ));
            }
            let marks = std::mem::take(&mut rules[place].marks);
            for (name, quota) in &marks {
                let mark = rules[place].mark_rule(name, *quota)?;
                rules.push(mark);
            }
            rules[place].marks = marks;
        }
        if rules.len() > usize::from(u16::MAX) {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                format!("{} rules are above {}", rules.len(), u16::MAX),
            ));
        }
        for (place, rule) in rules.iter().enumerate() {
            if rules[..place].iter().any(|other| other.name == rule.name) {
                return Err(rule.error(
                    RuleErrorKind::RuleSet,
                    "there are two rules of this name in one rule set; give each a name of its own",
                ));
            }
        }
        let refers_to = rules
            .iter()
            .map(|rule| rule.reference(&rules))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            version: VERSION.fetch_add(1, Ordering::Relaxed),
            all_enforced: rules.iter().all(Rule::is_enforced),
            rules: rules.into(),
            given,
            refers_to,
        })
    }

    /// The version: a later snapshot of this process has a higher one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The rules as they were given, then the marks.
    #[inline]
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that were given, without the marks.
    #[must_use]
    pub fn given(&self) -> &[Rule] {
        &self.rules[..self.given]
    }

    /// The place of the rule or mark with this name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.name() == name)
    }

    /// Whether the rule at this place denies.
    #[inline]
    #[must_use]
    pub fn enforces(&self, rule: usize) -> bool {
        self.all_enforced || self.rules.get(rule).is_some_and(Rule::is_enforced)
    }

    /// The places of the marks that read the rule at this place.
    pub fn marks_of(&self, rule: usize) -> impl Iterator<Item = usize> {
        (self.given..self.rules.len())
            .filter(move |mark| self.refers_to[*mark].map(usize::from) == Some(rule))
    }

    /// Whether any rule has a mark.
    #[inline]
    #[must_use]
    pub fn has_marks(&self) -> bool {
        self.given < self.rules.len()
    }

    /// For a mark, the place of the rule it reads; for a shadow, of the rule it would replace.
    #[inline]
    #[must_use]
    pub fn refers_to(&self, rule: usize) -> Option<usize> {
        self.refers_to.get(rule).copied().flatten().map(usize::from)
    }

    /// Whether every rule is enforced: there is no shadow and no mark.
    #[inline]
    #[must_use]
    pub fn all_enforced(&self) -> bool {
        self.all_enforced
    }
}

impl fmt::Debug for RuleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleSet")
            .field("version", &self.version)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Rule {
    fn is_mark(&self) -> bool {
        matches!(self.mode, Mode::Mark { .. })
    }

    fn mark_rule(&self, name: &Arc<str>, quota: Quota) -> Result<Self, RuleError> {
        validate_name(name)?;
        let error =
            |message: String| self.error(RuleErrorKind::Mode, format!("mark {name:?}: {message}"));
        quota.validate().map_err(|wrong| error(wrong.to_string()))?;
        if !quota.reads_state_of(&self.quota) {
            return Err(error(format!(
                "{quota:?} cannot be read on the state of {:?}; take the same algorithm with the same window or rate, \
                 and another limit or burst",
                self.quota
            )));
        }
        let mut mark = Self::new(Arc::clone(name), quota);
        mark.mode = Mode::Mark {
            of: Arc::clone(&self.name),
        };
        mark.on_store_error = OnStoreError::Allow;
        Ok(mark)
    }

    /// The place of the rule that the mode refers to.
    fn reference(&self, rules: &[Self]) -> Result<Option<u16>, RuleError> {
        let (Mode::Mark { of: name }
        | Mode::Shadow {
            instead_of: Some(name),
        }) = &self.mode
        else {
            return Ok(None);
        };
        match rules.iter().position(|rule| rule.name == *name) {
            Some(place) if rules[place].is_enforced() || self.is_mark() => {
                Ok(u16::try_from(place).ok())
            }
            Some(_) => Err(self.error(
                RuleErrorKind::Mode,
                format!("it is a shadow instead of {name:?}, which is not enforced itself"),
            )),
            None => Err(self.error(
                RuleErrorKind::Mode,
                format!("it is a shadow instead of {name:?}, which is not in the rule set"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{MINUTE, SECOND};

    fn refused(rules: impl IntoIterator<Item = Rule>, kind: RuleErrorKind, words: &[&str]) {
        let error = RuleSet::new(rules).expect_err("it is not a rule set");
        assert_eq!(error.kind(), kind);
        let text = error.to_string();
        for word in words {
            assert!(text.contains(word), "{text:?} lacks {word:?}");
        }
    }

    #[test]
    fn a_rule_that_cannot_work_says_what_would() {
        use RuleErrorKind as K;
        let quota = Quota::gcra(10, MINUTE);
        refused([], K::RuleSet, &["no rule"]);
        refused([Rule::new("größe", quota)], K::Name, &["größe", "ö"]);
        refused([Rule::new("", quota)], K::Name, &["letter"]);
        refused([Rule::new("a\r\nb", quota)], K::Name, &["\\r"]);
        refused(
            [Rule::new("9-lives", quota)],
            K::Name,
            &["9-lives", "letter"],
        );
        refused([Rule::new("a".repeat(65), quota)], K::Name, &["65"]);
        refused(
            [Rule::new("zero", Quota::gcra(0, MINUTE))],
            K::Quota,
            &["\"zero\"", "limit of 0"],
        );
        refused(
            [Rule::new("dear", quota).cost(11)],
            K::Cost,
            &["11 units", "at least 11"],
        );
        refused(
            [Rule::new("twice", quota), Rule::new("twice", quota)],
            K::RuleSet,
            &["twice", "two rules"],
        );
        refused(
            [Rule::new("mixed", quota).plan("gold", Quota::fixed_window(10, MINUTE))],
            K::Plan,
            &["gold", "fixed_window", "gcra"],
        );
        refused(
            [Rule::new("mixed", Quota::unlimited())
                .plan("free", quota)
                .plan("gold", Quota::fixed_window(10, MINUTE))],
            K::Plan,
            &["gold", "fixed_window", "gcra"],
        );
        refused(
            [Rule::new("soft", quota).mark("warn", Quota::gcra(10, SECOND))],
            K::Mode,
            &["warn", "same window or rate"],
        );
        refused(
            [Rule::new("new", quota).shadow_instead_of("old")],
            K::Mode,
            &["old", "not in the rule set"],
        );
    }

    #[test]
    fn marks_follow_their_rules() {
        let quota = Quota::gcra(10, MINUTE);
        let rules = RuleSet::new([
            Rule::new("a", quota).mark("a-warn", Quota::gcra(10, MINUTE).burst(8)),
            Rule::new("b", quota),
        ])
        .expect("valid");
        assert_eq!(rules.position("a-warn"), Some(2));
        assert_eq!(rules.marks_of(0).collect::<Vec<_>>(), [2]);
        assert_eq!(rules.refers_to(2), Some(0));
        assert!(rules.enforces(0) && !rules.enforces(2));
    }
}
