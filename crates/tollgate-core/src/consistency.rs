//! How exactly processes count together.

use std::{fmt, time::Duration};

/// How exactly the processes that share a store count together.
///
/// The memory store has one process, and is always exact. With a shared store, a process may answer some requests on its
/// own. That saves calls to the store, at a price:
///
/// | | above the limit by at most | the price |
/// | --- | --- | --- |
/// | [`Exact`](Self::Exact) | 0 | one call to the store for each admitted request |
/// | [`Leased`](Self::Leased) | 0 | up to `share · limit` units may sit unused in some processes while another rejects requests |
/// | [`Eventual`](Self::Eventual) | `N · max_unreported` for N processes | the excess |
///
/// Under every consistency, a process caches denials for up to a second, and repeats them without a call.
///
/// A rule whose quota does not support its consistency is exact; the store logs that when it binds the rule. The page
/// `guide::consistency` of `tollgate-redis` helps to choose.
///
/// ```
/// use std::time::Duration;
///
/// use tollgate_core::{Consistency, LeaseShare, MINUTE, Quota, Rule, SECOND};
///
/// let rules = [
///     // Five log-ins are five.
///     Rule::new("log-in", Quota::sliding_log(5, MINUTE)),
///     // Never above 6 000 a minute. Up to 600 of them may sit unused in processes with few clients.
///     Rule::new("per-key", Quota::gcra(6_000, MINUTE))
///         .consistency(Consistency::Leased { share: LeaseShare::percent(10) }),
///     // Keeps a backend from being overrun: with ten processes at most 1 000 above 50 000.
///     Rule::new("everybody", Quota::fixed_window(50_000, SECOND)).consistency(Consistency::Eventual {
///         interval: Duration::from_millis(50),
///         max_unreported: 100,
///     }),
/// ];
/// assert_eq!(rules[0].consistency_of(), Consistency::Exact);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// The store decides every take.
    #[default]
    Exact,
    /// Processes lease units in advance and spend them without calling the store. The limit is never exceeded.
    ///
    /// Leased units are taken from the quota when they are granted. Once the rest of the quota is used up, requests may be
    /// denied while other processes still hold unused units: at most the share. The units that a crashed process holds are
    /// lost until time gives them back.
    ///
    /// Worthwhile for keys that one process sees several times a second. Buckets, fixed windows and sliding windows of two
    /// counters can be leased, with limits of 20 and above.
    Leased {
        /// How much of a key's limit or burst all processes together may hold on lease. 10 % is usual. More saves more
        /// calls, and more may sit unused.
        share: LeaseShare,
    },
    /// Processes count locally and report to the store. Each may exceed the limit by at most `max_unreported` units.
    ///
    /// Processes do not see each other's unreported units. N processes together therefore exceed the limit by at most
    /// `N · max_unreported`, and by at most the units requested within `interval` plus one call to the store. The excess
    /// counts: it has to refill before the store admits anything again. A process that crashes loses its unreported units:
    /// up to `max_unreported` more for each crash.
    ///
    /// All algorithms except the log support it.
    Eventual {
        /// How often a process reports the units that it admitted; more than 0. 50 to 500 ms is usual: a shorter interval costs
        /// more calls, a longer one allows more units above the limit.
        interval: Duration,
        /// How many unreported units of one key a process may admit. With 0 the rule is exact, and so is a plan whose limit is
        /// smaller. Above the largest limit of the rule and its plans it is an error.
        max_unreported: u64,
    },
}

/// A part of a quota: how much of it may be on lease at once. From 0.1 % to 50 %.
///
/// ```
/// use tollgate_core::{Consistency, LeaseShare};
///
/// let leased = Consistency::Leased { share: LeaseShare::percent(10) };
/// assert_eq!(leased, Consistency::Leased { share: LeaseShare::permille(100) });
/// assert_eq!(LeaseShare::permille(125).to_string(), "12.5 %");
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseShare {
    permille: u16,
}

impl LeaseShare {
    /// Hundredths of the quota: 1 to 50. It is checked when the rule becomes part of a rule set.
    pub const fn percent(percent: u16) -> Self {
        Self::permille(percent.saturating_mul(10))
    }

    /// Thousandths of the quota: 1 to 500. It is checked when the rule becomes part of a rule set.
    pub const fn permille(permille: u16) -> Self {
        Self { permille }
    }

    /// The share in thousandths.
    #[must_use]
    pub const fn as_permille(self) -> u16 {
        self.permille
    }
}

impl fmt::Display for LeaseShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.permille / 10, self.permille % 10) {
            (percent, 0) => write!(f, "{percent} %"),
            (percent, tenths) => write!(f, "{percent}.{tenths} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MINUTE, Quota, Rule, RuleSet};

    #[test]
    fn what_a_process_may_not_report_is_part_of_the_largest_limit() {
        let is_right = |rule: Rule, interval, max_unreported| {
            let consistency = Consistency::Eventual {
                interval,
                max_unreported,
            };
            RuleSet::new([rule.consistency(consistency)]).is_ok()
        };
        let rule = || Rule::new("api", Quota::gcra(1_000, MINUTE).burst(100));
        let often = Duration::from_millis(50);
        assert!(is_right(rule(), often, 0));
        assert!(is_right(rule(), often, 100));
        assert!(!is_right(rule(), often, 101));
        assert!(!is_right(rule(), Duration::ZERO, 1));
        let with_plan = || rule().plan("gold", Quota::gcra(1_000, MINUTE).burst(200));
        assert!(is_right(with_plan(), often, 200));
        assert!(!is_right(with_plan(), often, 201));
        // A plan without a limit is none of them.
        let internal = || rule().plan("internal", Quota::unlimited());
        assert!(!is_right(internal(), often, 101));
    }
}
