//! Units that are settled by a rule set which another one has taken the place of.

use std::sync::Arc;

use tollgate_core::{
    Check, ManualClock, MemoryStore, Quota, Rule, RuleSet, SECOND, Store as _,
    algorithm::Taken,
    store::{Hold, RuleStore, Settlement},
};

use crate::at_once;

const START: u64 = 1_700_000_000_000_000;

struct Service {
    clock: ManualClock,
    store: MemoryStore,
}

impl Service {
    fn new() -> Self {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(&clock).build();
        Self { clock, store }
    }

    fn bind(&self, quota: Quota) -> Arc<dyn RuleStore> {
        let rules = RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule");
        self.store.bind(Arc::new(rules)).expect("a valid rule")
    }

    fn check(bound: &Arc<dyn RuleStore>, cost: u64) -> Check {
        let key = bound.fingerprint(0, tollgate_core::Key::of(["client"]).as_ref());
        Check::new(0, key, cost)
    }

    fn take(&self, bound: &Arc<dyn RuleStore>, cost: u64) -> Hold {
        let check = Self::check(bound, cost);
        let decision = at_once(bound.acquire(&[check]));
        assert!(decision.is_allowed());
        let lasts = decision.verdicts()[0].reset_after().as_micros() as u64;
        let at = decision.at();
        Hold::of_store(check, Taken::new(at, at + lasts))
    }

    fn left(bound: &Arc<dyn RuleStore>) -> u64 {
        at_once(bound.peek(&[Self::check(bound, 0)])).verdicts()[0].remaining()
    }
}

/// Each algorithm, with a smaller and a larger limit of the same length.
fn pairs() -> [(Quota, Quota); 5] {
    let of = |limit| {
        [
            Quota::gcra(limit, 100 * SECOND).burst(limit),
            Quota::fixed_window(limit, 100 * SECOND),
            Quota::sliding_window(limit, 100 * SECOND),
            Quota::sliding_log(limit, 100 * SECOND),
            Quota::sliding_buckets(limit, 100 * SECOND).buckets(10),
        ]
    };
    let (ten, hundred) = (of(10), of(100));
    std::array::from_fn(|index| (ten[index], hundred[index]))
}

#[test]
fn what_the_quota_before_has_taken_goes_back_to_the_one_in_force() {
    for (small, large) in pairs() {
        let service = Service::new();
        let old = service.bind(small);
        let (six, three) = (service.take(&old, 6), service.take(&old, 3));
        let new = service.bind(large);
        // It is the new one's from now on.
        service.take(&new, 1);
        assert_eq!(Service::left(&new), 90, "{large:?}");
        service.clock.advance(SECOND / 10);
        old.settle(&[six], Settlement::Cancel);
        assert_eq!(Service::left(&new), 96, "{large:?}");
        old.settle(&[three], Settlement::Refund(2));
        assert_eq!(Service::left(&new), 98, "{large:?}");
        // It has stayed the new one's: a denial by a quota that was cut to ten would have forgotten what is more.
        let used = service.take(&new, 60);
        assert_eq!(Service::left(&new), 38, "{large:?}");
        new.settle(&[used], Settlement::Cancel);
        assert_eq!(Service::left(&new), 98, "{large:?}");
    }
}
