//! A cap on new keys: how many states the processes of a namespace may create for a rule whose keys anybody can invent.
//!
//! Clients that send a new API key, or come from a new network, with each request would fill a server with states. A
//! process has permits for a number of them each second. Without a permit, a client that has no state yet is counted in
//! the overflow bucket, together with all others like it. Clients with a state are not affected.
//!
//! A permit is taken before a check is sent, and returned when it created no key. The processes share the cap: each has
//! the part of one of as many as Redis has counted, and a sixteenth before it was counted itself.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Tick;

const SECOND: u64 = 1_000_000_000;

/// The largest rate and burst; with it no product leaves 64 bits.
const MOST: u32 = 1_000_000;

/// A process that was not counted has the share of one of this many.
const UNCOUNTED: u64 = 16;

/// How many keys a process may create for a rule.
#[derive(Debug)]
pub(crate) struct NewKeyCap {
    /// Until when the permits are used up, in ns.
    until: AtomicU64,
    /// For how long one permit lasts in a process that is alone, in ns.
    each: u64,
    burst: u64,
    /// How many processes share the cap.
    instances: AtomicU64,
}

impl NewKeyCap {
    /// That rate and burst of all processes: 1 to 1 000 000. What is outside is the nearest of these.
    pub(crate) fn per_second(rate: u32) -> Self {
        let rate = rate.clamp(1, MOST);
        Self {
            until: AtomicU64::new(0),
            // Rounded against the rate.
            each: SECOND.div_ceil(u64::from(rate)),
            burst: u64::from(rate),
            instances: AtomicU64::new(UNCOUNTED),
        }
    }

    /// From `now` on this many processes share the cap. The permits in use stay as many.
    pub(crate) fn share_among(&self, instances: u32, now: Tick) {
        let instances = u64::from(instances.clamp(1, MOST));
        let before = self.instances.swap(instances, Ordering::Relaxed);
        if before == instances {
            return;
        }
        let now = now.saturating_mul(1_000);
        // It never fails. A permit that is returned at the same moment may come back as more or less than it was.
        let _ = self
            .until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| {
                let used = u128::from(until.saturating_sub(now));
                let used = (used * u128::from(instances)).div_ceil(u128::from(before));
                let used = u64::try_from(used).unwrap_or(u64::MAX);
                Some(until.min(now).saturating_add(used))
            });
    }

    /// For how long a permit lasts here, and how many may be taken at once: one at least.
    fn part(&self) -> (u64, u64) {
        let instances = self.instances.load(Ordering::Relaxed);
        (self.each * instances, (self.burst / instances).max(1))
    }

    /// Takes a permit for one new key, if there is one at `now`, in µs since the epoch.
    ///
    /// Since the first one, at most as many are taken and not returned as the rate allows for the time, and the burst.
    /// In a shorter span there may be a few more: those that were returned late.
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

    /// Returns the permit of a check that created no key.
    pub(crate) fn give_back(&self) {
        let (each, _) = self.part();
        // Not below zero, even if too much is returned; then it never fails.
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

    const START: u64 = 1_700_000_000_000_000;

    fn alone(rate: u32) -> NewKeyCap {
        let cap = NewKeyCap::per_second(rate);
        cap.share_among(1, START);
        cap
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_allows_and_as_many_at_once(
            rate in 1_u32..2_000,
            steps in prop::collection::vec((0_u64..20_000, any::<bool>()), 1..800),
        ) {
            let cap = alone(rate);
            let (mut now, mut created) = (START, 0);
            for (passed, creates) in steps {
                now += passed;
                if cap.take(now) {
                    if creates {
                        created += 1;
                    } else {
                        cap.give_back();
                    }
                }
                let allowed = u64::from(rate) * 1_000_000 + (now - START) * u64::from(rate);
                prop_assert!(created * 1_000_000 <= allowed);
            }
        }

        #[test]
        fn processes_that_share_a_cap_create_no_more_together_but_one_each(
            rate in 1_u32..2_000,
            instances in 1_u32..40,
            steps in prop::collection::vec(0_u64..20_000, 1..400),
        ) {
            let caps: Vec<_> = (0..instances).map(|_| NewKeyCap::per_second(rate)).collect();
            caps.iter().for_each(|cap| cap.share_among(instances, START));
            let (mut now, mut created) = (START, 0);
            for passed in steps {
                now += passed;
                created += caps.iter().map(|cap| u64::from(cap.take(now))).sum::<u64>();
            }
            let at_once = u64::from(rate.max(instances)) * 1_000_000;
            prop_assert!(created * 1_000_000 <= at_once + (now - START) * u64::from(rate));
        }

        #[test]
        fn the_permits_in_use_stay_as_many_when_processes_come_and_go(
            rate in 1_u32..2_000,
            counts in prop::collection::vec(1_u32..40, 1..20),
        ) {
            let cap = alone(rate);
            while cap.take(START) {}
            for count in counts {
                cap.share_among(count, START);
                prop_assert!(!cap.take(START));
                cap.share_among(1, START);
                prop_assert!(!cap.take(START));
            }
            prop_assert!(cap.take(START + 1_000_001_u64.div_ceil(u64::from(rate))));
        }
    }

    #[test]
    fn a_process_that_is_counted_has_its_whole_part_at_once() {
        let cap = NewKeyCap::per_second(320);
        while cap.take(START) {}
        cap.share_among(1, START);
        assert_eq!((0..1_000).filter(|_| cap.take(START)).count(), 300);
    }

    #[test]
    fn a_permit_that_is_returned_may_be_taken_again_and_no_more_than_there_are() {
        let cap = alone(10);
        assert!((0..10).all(|_| cap.take(START)) && !cap.take(START));
        cap.give_back();
        assert!(cap.take(START) && !cap.take(START));
        for _ in 0..20 {
            cap.give_back();
        }
        assert!((0..10).all(|_| cap.take(START)) && !cap.take(START));
    }

    #[test]
    fn what_is_outside_is_the_nearest() {
        for cap in [alone(0), alone(1)] {
            assert!(cap.take(START) && !cap.take(START));
        }
        let cap = NewKeyCap::per_second(10);
        cap.share_among(0, START);
        assert!((0..10).all(|_| cap.take(START)) && !cap.take(START));
        let most = alone(u32::MAX);
        assert!((0..1_000_000).all(|_| most.take(1 << 52)));
        assert!(!most.take(1 << 52));
    }
}
