//! Rule sets: the rules in force, with their thresholds.

use std::{collections::HashMap, fmt, iter, sync::Arc};

use crate::{
    check::Check,
    check_policy::OnStoreError,
    decision::{Decision, Outcome, Verdict},
    error::{RuleError, RuleErrorKind},
    quota::Quota,
    rule::{Mode, Rule},
    rule_validation::{validate, validate_name},
    variable_quota::next_serial,
};

/// The rules in force: an immutable snapshot.
///
/// Thresholds follow the rules as rules of their own, so that a verdict's [`rule`](crate::Verdict::rule) finds either.
pub struct RuleSet {
    version: u64,
    rules: Box<[Rule]>,
    /// How many of `rules` were given; the rest are thresholds.
    given: usize,
    /// For each threshold, the index of its rule.
    refers_to: Box<[u16]>,
    all_enforced: bool,
    has_slots: bool,
    has_waits: bool,
    has_credits: bool,
    has_blocks: bool,
    /// The indices of rules by name. `None`: there are so few that looking at each is faster.
    names: Option<HashMap<Arc<str>, u16>>,
}

/// The most rules that are looked at one after the other.
const FEW: usize = 8;

impl RuleSet {
    /// A snapshot of these rules, with the next version number of this process.
    ///
    /// # Errors
    ///
    /// A rule that cannot be used: see [`RuleErrorKind`].
    pub fn new(rules: impl IntoIterator<Item: Into<Rule>>) -> Result<Self, RuleError> {
        let mut rules: Vec<Rule> = rules.into_iter().map(Into::into).collect();
        let given = rules.len();
        if given == 0 {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                "there is no rule; give at least one",
            ));
        }
        let mut refers_to = Vec::new();
        for index in 0..given {
            validate(&rules[index])?;
            if matches!(rules[index].mode(), Mode::Threshold { .. }) {
                return Err(rules[index].error(
                    RuleErrorKind::Mode,
                    "a threshold is added to the rule it reads: Rule::threshold",
                ));
            }
            let rule = rules[index].clone();
            for (name, quota) in &rule.settings.thresholds {
                rules.push(rule.threshold_rule(name, *quota)?);
                // More than 65 535 rules are refused.
                refers_to.push(index as u16);
            }
        }
        if rules.len() > usize::from(u16::MAX) {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                format!("{} rules are above {}", rules.len(), u16::MAX),
            ));
        }
        let mut names = HashMap::with_capacity(rules.len());
        for (index, rule) in rules.iter().enumerate() {
            let before = names.insert(Arc::clone(rule.shared_name()), index as u16);
            if before.is_some() {
                return Err(rule.error(
                    RuleErrorKind::RuleSet,
                    "there are two rules of this name in one rule set; give each a name of its own",
                ));
            }
        }
        Ok(Self {
            version: next_serial(),
            refers_to: refers_to.into(),
            all_enforced: rules.iter().all(Rule::is_enforced),
            has_slots: rules.iter().any(Rule::has_slots),
            has_waits: rules.iter().any(|rule| rule.at_most_wait().is_some()),
            has_credits: rules.iter().any(Rule::has_credits),
            has_blocks: rules.iter().any(|rule| rule.block_setting().is_some()),
            names: (rules.len() > FEW).then_some(names),
            rules: rules.into(),
            given,
        })
    }

    /// The version: a later snapshot of this process has a higher one.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The rules as they were given, then the thresholds.
    #[inline]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that were given, without the thresholds.
    pub fn given(&self) -> &[Rule] {
        &self.rules[..self.given]
    }

    /// The rule that a check is of, if it is of one here.
    #[must_use]
    pub fn rule_of(&self, check: &Check) -> Option<&Rule> {
        self.rules.get(usize::from(check.rule()))
    }

    /// The index of the rule or threshold with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        match &self.names {
            None => self.rules.iter().position(|rule| rule.name() == name),
            Some(names) => names.get(name).copied().map(usize::from),
        }
    }

    /// The index of the rule with this name that was given: no threshold.
    pub(crate) fn given_position(&self, name: &str) -> Option<usize> {
        self.position(name).filter(|index| *index < self.given)
    }

    /// Whether the rule at this index denies.
    #[inline]
    pub fn enforces(&self, rule: usize) -> bool {
        self.all_enforced || self.rules.get(rule).is_some_and(Rule::is_enforced)
    }

    /// The verdicts that deny a request.
    pub(crate) fn denials<'a>(&self, decision: &'a Decision) -> impl Iterator<Item = &'a Verdict> {
        let denies = |it: &&Verdict| it.outcome() == Outcome::Deny && self.enforces(it.rule());
        decision.verdicts().iter().filter(denies)
    }

    /// The indices of the thresholds that read the rule at this index.
    pub fn thresholds_of(&self, rule: usize) -> impl Iterator<Item = usize> {
        // Thresholds follow in the order of their rules.
        let rules = &self.refers_to;
        let until = |n: usize| rules.partition_point(|of| usize::from(*of) < n);
        self.given + until(rule)..self.given + until(rule + 1)
    }

    /// Whether any rule has a threshold.
    #[must_use]
    pub fn has_thresholds(&self) -> bool {
        self.given < self.rules.len()
    }

    /// For a threshold, the index of the rule it reads.
    pub fn refers_to(&self, rule: usize) -> Option<usize> {
        let threshold = rule.checked_sub(self.given)?;
        self.refers_to.get(threshold).copied().map(usize::from)
    }

    /// Whether requests hold slots of any rule.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.has_slots
    }

    /// Whether requests wait for any rule.
    #[must_use]
    pub fn has_waits(&self) -> bool {
        self.has_waits
    }

    /// Whether any rule takes [credits](Rule::credits).
    #[must_use]
    pub fn has_credits(&self) -> bool {
        self.has_credits
    }

    /// Whether any rule [blocks](Rule::block) keys.
    #[must_use]
    pub fn has_blocks(&self) -> bool {
        self.has_blocks
    }

    /// Whether a denied attempt leaves something, so that it is not to be repeated: a shadow counts each, and a block each denial.
    #[must_use]
    pub fn counts_attempts(&self) -> bool {
        !self.all_enforced || self.has_blocks
    }

    /// Whether every rule is enforced: there is no shadow and no threshold.
    #[must_use]
    pub fn all_enforced(&self) -> bool {
        self.all_enforced
    }
}

crate::debug_fields!(RuleSet, it => version: it.version, rules: it.rules);

impl Rule {
    /// A rule that reads the state of this one: a threshold of it.
    fn threshold_rule(&self, name: &Arc<str>, quota: Quota) -> Result<Self, RuleError> {
        validate_name(name)?;
        let error = |message: String| {
            self.error(
                RuleErrorKind::Mode,
                format!("threshold {name:?}: {message}"),
            )
        };
        quota.validate().map_err(|wrong| error(wrong.to_string()))?;
        if !quota.reads_state_of(self.quota()) {
            return Err(error(format!(
                "{quota:?} cannot be read on the state of {:?}; take the same algorithm with the same window or rate, \
                 and another limit or burst",
                self.quota()
            )));
        }
        let threshold = Self::new(Arc::clone(name), quota).on_store_error(OnStoreError::Allow);
        Ok(threshold.with(|settings| {
            let of = Arc::clone(self.shared_name());
            settings.mode = Mode::Threshold { of };
            settings.unit.clone_from(&self.settings.unit);
        }))
    }
}

// What differs between two rule sets.

/// A rule that differs between a rule set and the one in its place. Displayed in words, for logs:
/// `search-per-key: gcra 20/s → gcra 500/s burst 1000, used units are kept`.
///
/// ```
/// use tollgate_core::{MINUTE, Quota, Rule, RuleSet};
///
/// let before = RuleSet::new([Rule::new("api", Quota::gcra(60, MINUTE))])?;
/// let after = RuleSet::new([Rule::new("api", Quota::gcra(90, MINUTE)), Rule::new("log-in", Quota::sliding_log(5, MINUTE))])?;
/// let changes: Vec<String> = after.changes_from(&before).iter().map(ToString::to_string).collect();
/// assert_eq!(changes, [
///     "api: gcra 60/min → gcra 90/min, used units are kept",
///     "log-in: added, sliding_log 5/min",
/// ]);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleChange {
    /// As it was; `None`: the rule is new.
    pub before: Option<Rule>,
    /// As it is; `None`: the rule is gone.
    pub after: Option<Rule>,
}

impl RuleSet {
    /// What differs from the rule set `before`: changed and added rules in the order of this one, then those that are gone.
    #[must_use]
    pub fn changes_from(&self, before: &Self) -> Vec<RuleChange> {
        Self::changes(Some(before), Some(self))
    }

    /// The same of rules that there may be none of.
    #[doc(hidden)]
    pub fn changes(before: Option<&Self>, after: Option<&Self>) -> Vec<RuleChange> {
        let of = |rules: Option<&Self>, rule: &Rule| {
            let rules = rules?;
            Some(rules.rules[rules.given_position(rule.name())?].clone())
        };
        let here = after.into_iter().flat_map(Self::given);
        let before_here = before.into_iter().flat_map(Self::given);
        let gone = before_here.filter(|rule| of(after, rule).is_none());
        let changes = here.chain(gone).map(|rule| RuleChange {
            before: of(before, rule),
            after: of(after, rule),
        });
        changes.filter(|it| it.before != it.after).collect()
    }
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write_change(f, before, after),
            (None, Some(rule)) => write!(f, "{}: added, {}", rule.name(), Numbers(rule)),
            (Some(rule), None) => write!(f, "{}: removed, {}", rule.name(), Numbers(rule)),
            (None, None) => Ok(()),
        }
    }
}

fn write_change(f: &mut fmt::Formatter<'_>, before: &Rule, after: &Rule) -> fmt::Result {
    write!(f, "{}:", after.name())?;
    let (old, new) = (Numbers(before).to_string(), Numbers(after).to_string());
    if old == new {
        return f.write_str(" other settings");
    }
    write!(f, " {old} → {new}")?;
    if quotas(before).eq(quotas(after)) {
        return Ok(());
    }
    f.write_str(match (before.state_machine(), after.state_machine()) {
        (None, _) | (_, None) => "",
        (old, new) if old == new => ", used units are kept",
        // A state is found by its state machine.
        _ => ", all begin anew",
    })
}

fn quotas(rule: &Rule) -> impl Iterator<Item = (Option<&str>, &Quota)> {
    let names = iter::once(None).chain(rule.plan_names().map(Some));
    names.zip(rule.all_quotas())
}

/// The quotas of a rule, how long requests wait for them, and its mode where it is not enforced.
struct Numbers<'a>(&'a Rule);

impl fmt::Display for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (plan, quota) in quotas(self.0) {
            match plan {
                None => write!(f, "{quota}")?,
                Some(plan) => write!(f, ", {plan} {quota}")?,
            }
        }
        if let Some(at_most) = self.0.at_most_wait() {
            write!(f, ", waits up to {at_most:?}")?;
        }
        if self.0.debt_of() > 0 {
            write!(f, ", owes up to {}", self.0.debt_of())?;
        }
        if self.0.has_credits() {
            f.write_str(", takes credits")?;
        }
        f.write_str(match self.0.mode() {
            Mode::Off => " (off)",
            Mode::Shadow => " (shadow)",
            Mode::Enforce | Mode::Threshold { .. } => "",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        algorithm_kind::AlgorithmKind,
        check_policy::OnStoreError,
        consistency::{Consistency, LeaseShare},
        quota::MAX_UNITS,
        time::{MINUTE, SECOND},
    };

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
        refused([Rule::new("a\r\nb", quota)], K::Name, &["\\r"]);
        refused([Rule::new("größe", quota)], K::Name, &["größe", "ö"]);
        refused(
            [Rule::new("dear", quota).cost(11)],
            K::Cost,
            &["11 units", "at least 11"],
        );
        refused(
            [Rule::new("free", quota).cost(0)],
            K::Cost,
            &["cost of 0", "Limiter::peek"],
        );
        refused(
            [Rule::new("plans", quota)
                .plan("gold", quota)
                .plan("gold", quota)],
            K::Plan,
            &["two plans \"gold\""],
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
        for (plan, words) in [
            (Quota::fixed_window(10, SECOND), ["1s", "60s"]),
            (
                Quota::sliding_buckets(10, MINUTE).buckets(6),
                ["6 sub-buckets", "in 60"],
            ),
        ] {
            let own = match plan.algorithm() {
                AlgorithmKind::FixedWindow => Quota::fixed_window(1_000, MINUTE),
                _ => Quota::sliding_buckets(1_000, MINUTE),
            };
            let words = [
                words[0],
                words[1],
                "write",
                "a rule of its own",
                "Rule::new",
            ];
            refused([Rule::new("api", own).plan("write", plan)], K::Plan, &words);
            // Also where the rule itself has no limit.
            let rule = Rule::new("api", Quota::unlimited()).plan("read", own);
            refused([rule.plan("write", plan)], K::Plan, &words);
        }
        for fine in [
            Rule::new("limits", Quota::sliding_log(5, MINUTE))
                .plan("more", Quota::sliding_log(50, MINUTE))
                .plan("staff", Quota::unlimited()),
            Rule::new("*", Quota::unlimited())
                .plan("staff", Quota::unlimited())
                .plan("gold", quota),
        ] {
            assert!(RuleSet::new([fine]).is_ok());
        }
        refused(
            [Rule::new("soft", quota).threshold("warn", Quota::gcra(10, SECOND))],
            K::Mode,
            &["warn", "same window or rate"],
        );
        refused(
            [Rule::new("api", quota).on_store_error(OnStoreError::Cap(Quota::gcra(0, MINUTE)))],
            K::Quota,
            &["cap for store failures", "limit of 0"],
        );
        let log = Rule::new("log", Quota::sliding_log(5, MINUTE));
        refused([log.wait(SECOND)], K::Wait, &["leaky_bucket"]);
        let eventual = |interval| {
            let eventual = Consistency::Eventual {
                interval,
                max_unreported: 10,
            };
            Rule::new("waits", quota).consistency(eventual)
        };
        refused(
            [eventual(SECOND).wait(SECOND)],
            K::Wait,
            &["Consistency::Exact"],
        );
        refused(
            [eventual(Duration::ZERO)],
            K::Mode,
            &["interval of 0", "50 to 500 ms"],
        );
    }

    #[test]
    fn the_largest_numbers_of_a_rule_set_are_taken_and_one_more_is_refused() {
        let quota = Quota::gcra(10, MINUTE);
        let most = usize::from(u16::MAX);
        let rules = |count: usize| (0..count).map(|n| Rule::new(format!("rule-{n}"), quota));
        let all = RuleSet::new(rules(most)).expect("as many as there are numbers");
        assert_eq!(all.position("rule-65534"), Some(65_534));
        refused(
            rules(most + 1),
            RuleErrorKind::RuleSet,
            &["65536", "above 65535"],
        );
        let plans = |count: usize| {
            let plan = |rule: Rule, n: usize| rule.plan(format!("plan-{n}"), quota);
            (0..count).fold(Rule::new("plans", quota), plan)
        };
        assert!(RuleSet::new([plans(most - 1)]).is_ok());
        refused([plans(most)], RuleErrorKind::Plan, &["65 534 plans"]);
        let dear = Rule::new("a".repeat(64), Quota::unlimited()).cost(MAX_UNITS);
        assert!(RuleSet::new([dear]).is_ok());
    }

    #[test]
    fn a_share_on_lease_is_from_a_thousandth_to_a_half() {
        let with = |share| {
            let leased = Consistency::Leased { share };
            let rule = Rule::new("api", Quota::gcra(100, SECOND)).consistency(leased);
            RuleSet::new([rule]).map(|_| ())
        };
        for share in [LeaseShare::permille(1), LeaseShare::percent(50)] {
            assert_eq!(with(share), Ok(()), "{share}");
        }
        for share in [0, 501].map(LeaseShare::permille) {
            let error = with(share).expect_err("out of range").to_string();
            assert!(
                error.contains(&format!("a share of {share} on lease")),
                "{error}"
            );
            assert!(error.contains("LeaseShare::percent(10)"), "{error}");
        }
    }

    #[test]
    fn thresholds_follow_their_rules() {
        let quota = Quota::gcra(10, MINUTE);
        let [warn, less] = [8, 5].map(|burst| Quota::gcra(10, MINUTE).burst(burst));
        let rules = RuleSet::new([
            Rule::new("a", quota),
            Rule::new("b", quota)
                .threshold("b-warn", warn)
                .threshold("b-less", less),
            Rule::new("c", quota).threshold("c-warn", warn),
            Rule::new("d", quota).threshold("d-warn", warn),
        ])
        .expect("valid");
        let all = (0..4).map(|n| rules.thresholds_of(n).collect());
        let all: Vec<Vec<usize>> = all.collect();
        assert_eq!(all, [vec![], vec![4, 5], vec![6], vec![7]]);
        let referred = (0..8).map(|n| rules.refers_to(n));
        let expected = [None, None, None, None, Some(1), Some(1), Some(2), Some(3)];
        assert!(referred.eq(expected));
        assert!(rules.has_thresholds());
    }

    fn changes(before: Rule, after: Rule) -> Vec<String> {
        let [before, after] = [before, after].map(|rule| RuleSet::new([rule]).expect("valid"));
        let changes = after.changes_from(&before);
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_change_is_said_in_words() {
        let rule = |quota| Rule::new("api", quota);
        let (slow, fast) = (Quota::gcra(60, MINUTE), Quota::gcra(90, MINUTE));
        assert_eq!(changes(rule(slow), rule(slow)), [""; 0]);
        assert_eq!(
            changes(rule(slow), rule(fast)),
            ["api: gcra 60/min → gcra 90/min, used units are kept"]
        );
        assert_eq!(
            changes(rule(slow), rule(slow).shadow()),
            ["api: gcra 60/min → gcra 60/min (shadow)"]
        );
        assert_eq!(
            changes(rule(slow).off(), rule(slow).plan("gold", fast)),
            ["api: gcra 60/min (off) → gcra 60/min, gold gcra 90/min, used units are kept"]
        );
        let bucket = Quota::token_bucket(60).refill(60, MINUTE);
        assert_eq!(
            changes(rule(bucket), rule(slow)),
            ["api: token_bucket 60/min → gcra 60/min, used units are kept"]
        );
        assert_eq!(
            changes(rule(slow), rule(Quota::sliding_log(60, MINUTE))),
            ["api: gcra 60/min → sliding_log 60/min, all begin anew"]
        );
        assert_eq!(
            changes(rule(slow), rule(Quota::concurrent(3))),
            ["api: gcra 60/min → concurrent 3, all begin anew"]
        );
        assert_eq!(
            changes(rule(slow), rule(slow).wait(5 * SECOND)),
            ["api: gcra 60/min → gcra 60/min, waits up to 5s"]
        );
        assert_eq!(
            changes(rule(slow), rule(slow).cost(2)),
            ["api: other settings"]
        );
        assert_eq!(
            changes(rule(slow), Rule::new("web", Quota::per_second(1))),
            ["web: added, gcra 1/s", "api: removed, gcra 60/min"]
        );
    }
}
