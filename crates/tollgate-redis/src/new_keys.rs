//! A cap on new keys: how many states a process may make for a rule whose keys anybody can invent.
//!
//! Clients that send a new API key, or come from a new network, with each request would fill a server with states. A
//! process has leave for a number of them each second; when it has none, a client that is not known yet is counted
//! together with all others that came too late. Who is known is not touched.
//!
//! Leave is taken before a check is sent, and comes back when it made no key. Processes share the cap: each has the part of one
//! of as many as Redis has counted.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Tick;

const SECOND: u64 = 1_000_000_000;

/// The most of a rate or a burst; with it no product leaves 64 bits.
const MOST: u32 = 1_000_000;

/// How many keys a process may make for a rule.
#[derive(Debug)]
pub(crate) struct NewKeys {
    /// Until when leave is used up, in ns.
    until: AtomicU64,
    /// For how long one lasts in a process that is alone, in ns.
    each: u64,
    burst: u64,
    /// How many processes share the cap.
    instances: AtomicU64,
}

impl NewKeys {
    /// As many a second, and as many at once: 1 to 1 000 000. What is outside is the nearest of these.
    #[must_use]
    pub(crate) fn per_second(rate: u32) -> Self {
        let rate = rate.clamp(1, MOST);
        Self {
            until: AtomicU64::new(0),
            // Rounded against the rate.
            each: SECOND.div_ceil(u64::from(rate)),
            burst: u64::from(rate),
            instances: AtomicU64::new(1),
        }
    }

    /// From now on so many processes share the cap. What is under way when that changes may come back as more or less than it
    /// was.
    pub(crate) fn share_among(&self, instances: u32) {
        let instances = u64::from(instances.clamp(1, MOST));
        self.instances.store(instances, Ordering::Relaxed);
    }

    /// For how long one lasts here, and how many may be taken at once: one at least.
    fn part(&self) -> (u64, u64) {
        let instances = self.instances.load(Ordering::Relaxed);
        (self.each * instances, (self.burst / instances).max(1))
    }

    /// Takes leave for one new key, if there is any at `now`, in µs since the epoch.
    ///
    /// Since the first one, at most as many are taken and not given back as the rate allows for the time, and the burst.
    /// In a shorter span there may be a few more: those that were given back late.
    pub(crate) fn take(&self, now: Tick) -> bool {
        let now = now.saturating_mul(1_000);
        let (each, burst) = self.part();
        let latest = now.saturating_add(each.saturating_mul(burst));
        let taken = self
            .until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| {
                let next = until.max(now).checked_add(each)?;
                (next <= latest).then_some(next)
            });
        taken.is_ok()
    }

    /// Gives back what was taken for a check that made no key.
    pub(crate) fn give_back(&self) {
        let (each, _) = self.part();
        // Not below zero, whoever gives back too much; then it never fails.
        let _ = self
            .until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| {
                Some(until.saturating_sub(each))
            });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn never_more_than_the_rate_allows_and_as_many_at_once(
            rate in 1_u32..2_000,
            steps in prop::collection::vec((0_u64..20_000, any::<bool>()), 1..800),
        ) {
            let keys = NewKeys::per_second(rate);
            let start = 1_700_000_000_000_000;
            let (mut now, mut made) = (start, 0);
            for (passed, makes) in steps {
                now += passed;
                if keys.take(now) {
                    if makes {
                        made += 1;
                    } else {
                        keys.give_back();
                    }
                }
                let allowed = u64::from(rate) * 1_000_000 + (now - start) * u64::from(rate);
                prop_assert!(made * 1_000_000 <= allowed);
            }
        }
    }

    proptest! {
        #[test]
        fn processes_that_share_a_cap_make_no_more_together_but_one_each(
            rate in 1_u32..2_000,
            instances in 1_u32..40,
            steps in prop::collection::vec(0_u64..20_000, 1..400),
        ) {
            let caps: Vec<_> = (0..instances).map(|_| NewKeys::per_second(rate)).collect();
            caps.iter().for_each(|cap| cap.share_among(instances));
            let start = 1_700_000_000_000_000;
            let (mut now, mut made) = (start, 0);
            for passed in steps {
                now += passed;
                made += caps.iter().map(|cap| u64::from(cap.take(now))).sum::<u64>();
            }
            let at_once = u64::from(rate.max(instances)) * 1_000_000;
            prop_assert!(made * 1_000_000 <= at_once + (now - start) * u64::from(rate));
        }
    }

    #[test]
    fn a_clock_that_goes_back_gives_no_leave() {
        let keys = NewKeys::per_second(1);
        assert!(keys.take(5_000_000));
        assert!(!keys.take(4_000_000));
        assert!(keys.take(6_000_000));
    }

    #[test]
    fn what_is_outside_is_the_nearest() {
        assert!(NewKeys::per_second(0).take(0));
        let most = NewKeys::per_second(u32::MAX);
        assert!((0..1_000_000).all(|_| most.take(1 << 52)));
        assert!(!most.take(1 << 52));
    }
}
