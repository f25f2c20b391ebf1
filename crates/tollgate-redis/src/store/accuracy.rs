//! What the accuracy meter has seen.

use std::sync::{Arc, atomic::Ordering};

use crate::observe::RuleCounts;

/// What the [meter](crate::RedisStoreBuilder::meter) of this process has seen of one rule under one consistency, since the
/// process started. All numbers only grow. [`guide::consistency`](crate::guide::consistency#reading-the-meter) says how to
/// read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accuracy {
    rule: Arc<str>,
    consistency: &'static str,
    followed: u64,
    over_admitted: u64,
    falsely_refused: u64,
    dropped: u64,
}

impl Accuracy {
    pub(super) fn of(counts: &RuleCounts) -> Self {
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Self {
            rule: Arc::clone(counts.rule()),
            consistency: counts.consistency(),
            followed: read(&counts.followed),
            over_admitted: read(&counts.over_admitted),
            falsely_refused: read(&counts.falsely_refused),
            dropped: read(&counts.dropped),
        }
    }

    /// The rule's name.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// How the requests were counted: `exact`, `leased` or `eventual`. A rule whose plans differ is there more than once.
    #[must_use]
    pub fn consistency(&self) -> &'static str {
        self.consistency
    }

    /// Requests of sampled keys that were compared with an exact account.
    #[must_use]
    pub fn followed(&self) -> u64 {
        self.followed
    }

    /// Units of those that were let through above the limit.
    #[must_use]
    pub fn over_admitted(&self) -> u64 {
        self.over_admitted
    }

    /// Those that were refused although their units fitted.
    #[must_use]
    pub fn falsely_refused(&self) -> u64 {
        self.falsely_refused
    }

    /// Requests, settlements and resets of sampled keys that the meter did not count: Redis failed, or too many came at once.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MINUTE, Quota, Rule, RuleSet};

    use super::*;
    use crate::observe::Observer;

    #[test]
    fn each_number_is_the_one_of_its_name() {
        let observer = Observer::default();
        let rules = RuleSet::new([Rule::new("api", Quota::gcra(5, MINUTE))]);
        let counts = observer.bound(&rules.expect("a valid rule"), |_, _| None, 1);
        let counts = &counts[0][0];
        counts.followed.store(1, Ordering::Relaxed);
        counts.over_admitted.store(2, Ordering::Relaxed);
        counts.falsely_refused.store(3, Ordering::Relaxed);
        counts.dropped.store(4, Ordering::Relaxed);
        let accuracy = Accuracy::of(counts);
        assert_eq!((accuracy.rule(), accuracy.consistency()), ("api", "exact"));
        let numbers = [
            accuracy.followed(),
            accuracy.over_admitted(),
            accuracy.falsely_refused(),
            accuracy.dropped(),
        ];
        assert_eq!(numbers, [1, 2, 3, 4]);
    }
}
