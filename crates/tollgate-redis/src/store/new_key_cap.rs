//! A cap on new keys: how many states the processes of a namespace may create for a rule whose keys anybody can invent.
//!
//! Clients that send a new API key, or come from a new network, with each request would fill a server with states. A
//! process may create a number of them each second. Beyond it, a client that has no state yet is counted in
//! the overflow bucket, together with all others like it. Clients with a state are not affected.
//!
//! A key counts when Redis says that it was created: most requests create none, and how many are in flight says nothing. So those in
//! flight may create a few more, and what is above the rate counts for the time after. The processes share the cap: each has
//! the part of one of as many as Redis has counted, and a sixteenth before it was counted itself.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Tick;

const SECOND: u64 = 1_000_000_000;

/// The largest rate and burst; with it no product leaves 64 bits.
const MOST: u32 = 1_000_000;

/// What is above the rate counts for at most so many times as long as the rate takes for what may be created at once.
const MOST_DEBT: u64 = 10;

/// A process that was not counted has the share of one of this many.
const UNCOUNTED: u64 = 16;

/// How many keys a process may create for a rule.
#[derive(Debug)]
pub(crate) struct NewKeyCap {
    /// Until when what was created uses the rate up, in ns.
    until: AtomicU64,
    /// For how long one key uses it up in a process that is alone, in ns.
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

    /// From `now` on this many processes share the cap. What was created stays as much.
    pub(crate) fn share_among(&self, instances: u32, now: Tick) {
        let instances = u64::from(instances.clamp(1, MOST));
        let before = self.instances.swap(instances, Ordering::Relaxed);
        if before == instances {
            return;
        }
        let now = now.saturating_mul(1_000);
        // It never fails.
        let _ = self
            .until
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| {
                let used = u128::from(until.saturating_sub(now));
                let used = (used * u128::from(instances)).div_ceil(u128::from(before));
                let used = u64::try_from(used).unwrap_or(u64::MAX);
                Some(until.min(now).saturating_add(used))
            });
    }

    /// For how long a key uses the rate up here, and how many may be created at once: one at least.
    fn part(&self) -> (u64, u64) {
        let instances = self.instances.load(Ordering::Relaxed);
        (self.each * instances, (self.burst / instances).max(1))
    }

    /// Whether a request may create a key at `now`, in µs since the epoch.
    pub(crate) fn has_room(&self, now: Tick) -> bool {
        let now = now.saturating_mul(1_000);
        let (each, burst) = self.part();
        let until = self.until.load(Ordering::Relaxed).max(now);
        until.saturating_add(each) <= now.saturating_add(each.saturating_mul(burst))
    }

    /// A request has created a key.
    pub(crate) fn add(&self, now: Tick) {
        let now = now.saturating_mul(1_000);
        let (each, burst) = self.part();
        let most = now.saturating_add(each.saturating_mul(burst).saturating_mul(MOST_DEBT));
        let next = |until: u64| Some(until.max(now).saturating_add(each).min(most.max(until)));
        // It never fails.
        let _ = (self.until).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_700_000_000_000_000;

    /// Creates a key, if it may.
    fn creates(cap: &NewKeyCap, now: Tick) -> bool {
        let has_room = cap.has_room(now);
        if has_room {
            cap.add(now);
        }
        has_room
    }

    fn alone(rate: u32) -> NewKeyCap {
        let cap = NewKeyCap::per_second(rate);
        cap.share_among(1, START);
        cap
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_allows_and_as_many_at_once_but_for_those_in_flight(
            rate in 1_u32..2_000,
            in_flight in 1_u64..9,
            steps in prop::collection::vec(0_u64..20_000, 1..800),
        ) {
            let cap = alone(rate);
            let (mut now, mut created) = (START, 0);
            for passed in steps {
                now += passed;
                // They ask before the others have created theirs.
                let more = if cap.has_room(now) { in_flight } else { 0 };
                (0..more).for_each(|_| cap.add(now));
                created += more;
                let allowed = u64::from(rate) * 1_000_000 + (now - START) * u64::from(rate);
                prop_assert!((created + 1) * 1_000_000 <= allowed + in_flight * 1_000_000);
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
                created += caps.iter().map(|cap| u64::from(creates(cap, now))).sum::<u64>();
            }
            let at_once = u64::from(rate.max(instances)) * 1_000_000;
            prop_assert!(created * 1_000_000 <= at_once + (now - START) * u64::from(rate));
        }

        #[test]
        fn what_was_created_stays_as_much_when_processes_come_and_go(
            rate in 1_u32..2_000,
            counts in prop::collection::vec(1_u32..40, 1..20),
        ) {
            let cap = alone(rate);
            while creates(&cap, START) {}
            for count in counts {
                cap.share_among(count, START);
                prop_assert!(!creates(&cap, START));
                cap.share_among(1, START);
                prop_assert!(!creates(&cap, START));
            }
            prop_assert!(creates(&cap, START + 1_000_001_u64.div_ceil(u64::from(rate))));
        }
    }

    #[test]
    fn a_process_that_is_counted_has_its_whole_part_at_once() {
        let cap = NewKeyCap::per_second(320);
        while creates(&cap, START) {}
        cap.share_among(1, START);
        assert_eq!((0..1_000).filter(|_| creates(&cap, START)).count(), 300);
    }

    #[test]
    fn what_is_outside_is_the_nearest() {
        for cap in [alone(0), alone(1)] {
            assert!(creates(&cap, START) && !creates(&cap, START));
        }
        let cap = NewKeyCap::per_second(10);
        cap.share_among(0, START);
        assert!((0..10).all(|_| creates(&cap, START)) && !creates(&cap, START));
        let most = alone(u32::MAX);
        assert!((0..1_000_000).all(|_| creates(&most, 1 << 52)));
        assert!(!creates(&most, 1 << 52));
    }
}
