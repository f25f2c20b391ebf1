//! What differs between two rule sets.

use std::fmt;

use crate::{
    algorithm_kind::AlgorithmKind,
    quota::Quota,
    rule::{Mode, Rule},
    rule_set::RuleSet,
};

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
pub enum RuleChange {
    /// The rule is new.
    Added(Rule),
    /// The rule is gone.
    Removed(Rule),
    /// The rule differs.
    #[non_exhaustive]
    Changed {
        /// As it was.
        before: Box<Rule>,
        /// As it is.
        after: Box<Rule>,
    },
}

impl RuleChange {
    /// The name of the rule.
    #[must_use]
    pub fn rule(&self) -> &str {
        match self {
            Self::Added(rule) | Self::Removed(rule) => rule.name(),
            Self::Changed { after, .. } => after.name(),
        }
    }
}

impl RuleSet {
    /// What differs from the rule set `before`: changed and added rules in the order of this one, then those that are gone.
    #[must_use]
    pub fn changes_from(&self, before: &Self) -> Vec<RuleChange> {
        let here = self
            .given()
            .iter()
            .filter_map(|after| match before.given_as(after.name()) {
                Some(before) if before == after => None,
                Some(before) => Some(RuleChange::Changed {
                    before: Box::new(before.clone()),
                    after: Box::new(after.clone()),
                }),
                None => Some(RuleChange::Added(after.clone())),
            });
        let gone = before.given().iter();
        let gone = gone.filter(|rule| self.given_as(rule.name()).is_none());
        here.chain(gone.cloned().map(RuleChange::Removed)).collect()
    }
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(rule) => write!(f, "{}: added, {}", rule.name(), Numbers(rule)),
            Self::Removed(rule) => write!(f, "{}: removed, {}", rule.name(), Numbers(rule)),
            Self::Changed { before, after } => write_change(f, before, after),
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
    f.write_str(match (state_machine(before), state_machine(after)) {
        (None, _) | (_, None) => "",
        (old, new) if old == new => ", used units are kept",
        // A slot is of a request that runs, and nothing else becomes one.
        (Some(AlgorithmKind::Concurrent), _) | (_, Some(AlgorithmKind::Concurrent)) => {
            ", all begin anew"
        }
        // On Redis a state is found by its state machine.
        _ => ", used units are kept in memory; on Redis all begin anew",
    })
}

/// The algorithm whose states a rule has: buckets have those of GCRA. `None`: it has none.
fn state_machine(rule: &Rule) -> Option<AlgorithmKind> {
    let (_, quota) = quotas(rule).find(|(_, quota)| quota.has_state())?;
    Some(match quota.algorithm() {
        AlgorithmKind::TokenBucket | AlgorithmKind::LeakyBucket => AlgorithmKind::Gcra,
        algorithm => algorithm,
    })
}

fn quotas(rule: &Rule) -> impl Iterator<Item = (Option<&str>, &Quota)> {
    (0..rule.quotas()).map(|plan| (rule.plan_name(plan), rule.quota_of(plan)))
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
    use super::*;
    use crate::time::{MINUTE, SECOND};

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
            [
                "api: gcra 60/min → sliding_log 60/min, used units are kept in memory; on Redis all begin anew"
            ]
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
