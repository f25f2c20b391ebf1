//! Local shares while the store fails: for how many instances, and from which state on.

use std::{num::NonZeroU32, sync::Barrier, time::Duration};

use tollgate_conformance::SwitchedStore;
use tollgate_core::{
    Decision, Key, Limiter, MINUTE, ManualClock, MemoryStore, OnStoreError, Quota, Rule, SECOND,
    Source, Ticket,
};

use crate::{LONG, admitted_in_fallback, at_once, check, every_algorithm, left};

/// The start of a minute.
const START: u64 = 1_700_000_040_000_000;

/// A store that can be switched off, and limiters on it with one clock for all.
struct World {
    clock: ManualClock,
    store: SwitchedStore,
}

impl World {
    fn new() -> Self {
        let clock = ManualClock::new(START);
        let store = SwitchedStore::at_once(MemoryStore::builder().clock(&clock).build());
        Self { clock, store }
    }

    fn limiter(&self, rule: Rule) -> Limiter {
        Limiter::new(self.store.clone(), [rule]).expect("a valid rule")
    }

    fn quota(&self, quota: Quota) -> Limiter {
        self.limiter(Rule::new("rule", quota))
    }
}

fn acquire(limiter: &Limiter, who: &str, cost: u64) -> Decision {
    at_once(limiter.acquire(&[check(limiter, "rule", who, cost)]))
}

/// How many units pass, requested one by one.
fn passes(limiter: &Limiter, who: &str) -> u64 {
    (0..1_000)
        .take_while(|_| acquire(limiter, who, 1).is_allowed())
        .count() as u64
}

#[test]
fn shares_are_cut_for_as_many_instances_as_the_store_knows() {
    for quota in every_algorithm(60) {
        let world = World::new();
        let limiter = world.quota(quota);
        world.store.switch(false);
        world.store.know(4);
        assert_eq!(passes(&limiter, "a"), 15, "{quota:?}");
        // More of them: at once, and what was used stays used.
        world.store.know(6);
        assert_eq!(passes(&limiter, "a"), 0, "{quota:?}");
        assert_eq!(passes(&limiter, "b"), 10, "{quota:?}");
    }
}

#[test]
fn shares_grow_after_half_a_minute_with_fewer_instances() {
    for quota in every_algorithm(60) {
        let world = World::new();
        let limiter = world.quota(quota);
        world.store.switch(false);
        world.store.know(6);
        assert_eq!(passes(&limiter, "a"), 10, "{quota:?}");
        world.store.know(3);
        for second in 0..30 {
            assert_eq!(passes(&limiter, "a"), 0, "{quota:?} after {second} s");
            world.clock.advance(SECOND);
        }
        assert_eq!(passes(&limiter, "a"), 10, "{quota:?}");
    }
}

#[test]
fn shares_are_never_cut_for_fewer_instances_than_were_given() {
    let world = World::new();
    let limiter = world.quota(Quota::sliding_log(12, LONG));
    let four = NonZeroU32::new(4).expect("not zero");
    let limiter = limiter.shared_by(four).expect("valid shares");
    world.store.switch(false);
    world.store.know(2);
    assert_eq!(passes(&limiter, "a"), 3);
    world.clock.advance(MINUTE);
    assert_eq!(passes(&limiter, "b"), 3);
}

#[test]
fn a_share_that_cannot_be_counted_for_that_many_stays_what_it_was() {
    // A thousand thousand million in nine years: the rate divides by two and not by three.
    let odd = Quota::gcra(1 << 40, Duration::from_micros(1 << 48)).burst(12);
    assert!(odd.share(2).validate().is_ok() && odd.share(3).validate().is_err());
    let world = World::new();
    let two = NonZeroU32::new(2).expect("not zero");
    let rules = [
        Rule::new("odd", odd),
        Rule::new("rule", Quota::sliding_log(12, LONG)),
    ];
    let limiter = Limiter::new(world.store.clone(), rules)
        .and_then(|limiter| limiter.shared_by(two))
        .expect("valid rules");
    world.store.switch(false);
    world.store.know(3);
    assert_eq!(passes(&limiter, "a"), 4);
    let odd = |cost| at_once(limiter.acquire(&[check(&limiter, "odd", "a", cost)])).is_allowed();
    assert!(odd(6) && !odd(1));
}

#[test]
fn a_share_begins_with_its_part_of_what_was_used() {
    for quota in every_algorithm(60) {
        let world = World::new();
        let limiter = world.quota(quota);
        world.store.know(4);
        assert!(acquire(&limiter, "a", 41).is_allowed());
        world.store.switch(false);
        // 41 of 60 are 10.25 of 15, rounded up.
        assert_eq!(passes(&limiter, "a"), 4, "{quota:?}");
        assert_eq!(
            passes(&limiter, "b"),
            15,
            "{quota:?}: a key that was not seen"
        );
    }
}

#[test]
fn a_bucket_refills_while_no_request_comes() {
    let world = World::new();
    let limiter = world.quota(Quota::gcra(60, MINUTE));
    world.store.know(4);
    assert!(acquire(&limiter, "a", 60).is_allowed());
    world.store.switch(false);
    world.clock.advance(20 * SECOND);
    // 40 are still owed: 10 of 15.
    assert_eq!(passes(&limiter, "a"), 5);
    assert!(acquire(&limiter, "b", 15).is_allowed());
    world.clock.advance(MINUTE);
    assert_eq!(passes(&limiter, "a"), 15);
}

#[test]
fn what_was_used_of_a_window_counts_until_it_ends() {
    let world = World::new();
    let limiter = world.quota(Quota::fixed_window(60, MINUTE));
    world.store.know(4);
    for who in ["a", "b"] {
        assert!(acquire(&limiter, who, 60).is_allowed());
    }
    world.store.switch(false);
    world.clock.advance(59 * SECOND);
    assert_eq!(passes(&limiter, "a"), 0);
    world.clock.advance(SECOND);
    assert_eq!(passes(&limiter, "a"), 15);
    assert_eq!(passes(&limiter, "b"), 15);
}

#[test]
fn the_last_answer_counts_also_where_it_frees_the_key() {
    let world = World::new();
    let limiter = world.quota(Quota::sliding_log(10, LONG));
    assert!(acquire(&limiter, "a", 10).is_allowed());
    // Another instance has reset the key.
    let key = Key::of("a");
    let other = world.quota(Quota::sliding_log(10, LONG));
    let reset = other.reset("rule", &key).expect("there is one").ready();
    reset.expect("at once").expect("it is on");
    assert!(acquire(&limiter, "a", 0).is_allowed());
    world.store.switch(false);
    assert_eq!(passes(&limiter, "a"), 10);
}

#[test]
fn a_share_begins_once_in_an_outage_and_anew_in_the_next() {
    for quota in every_algorithm(60) {
        let world = World::new();
        let limiter = world.quota(quota);
        assert!(acquire(&limiter, "a", 20).is_allowed());
        world.store.switch(false);
        assert!(acquire(&limiter, "a", 1).is_allowed());
        assert_eq!(acquire(&limiter, "a", 1).verdicts()[0].remaining(), 38);
        world.store.switch(true);
        assert!(acquire(&limiter, "a", 30).is_allowed());
        world.store.switch(false);
        assert_eq!(
            acquire(&limiter, "a", 0).verdicts()[0].remaining(),
            10,
            "{quota:?}"
        );
    }
}

#[test]
fn a_store_that_fails_now_and_then_opens_no_new_share_each_time() {
    for quota in every_algorithm(10) {
        let world = World::new();
        let limiter = world.quota(quota);
        let mut alone = 0;
        for n in 0..100 {
            world.store.switch(n % 10 == 0);
            let decision = acquire(&limiter, "a", 1);
            let by_share = decision.verdicts()[0].source() == Source::Fallback;
            alone += u64::from(by_share && decision.is_allowed());
        }
        assert!(alone <= 10, "{quota:?}: {alone}");
    }
}

#[test]
fn a_reset_also_forgets_the_last_seen_state() {
    let world = World::new();
    let limiter = world.quota(Quota::sliding_log(10, LONG));
    assert!(acquire(&limiter, "a", 10).is_allowed());
    let reset = limiter.reset("rule", &Key::of("a")).expect("there is one");
    reset.ready().expect("at once").expect("it is on");
    world.store.switch(false);
    assert_eq!(passes(&limiter, "a"), 10);
}

#[test]
fn what_was_used_under_one_plan_counts_under_another() {
    let world = World::new();
    let rule = Rule::new("rule", Quota::gcra(10, MINUTE)).plan("gold", Quota::gcra(100, MINUTE));
    let limiter = world.limiter(rule);
    let gold = limiter
        .check_with_plan("rule", "gold", &Key::of("a"))
        .expect("there is one");
    let allowed = limiter.acquire(&[gold.with_cost(7)]).ready();
    assert!(allowed.expect("at once").is_allowed());
    world.store.switch(false);
    assert_eq!(passes(&limiter, "a"), 3);
}

#[test]
fn of_threads_that_meet_at_the_failure_none_passes_before_the_share_has_begun() {
    for _ in 0..50 {
        let world = World::new();
        let limiter = world.quota(Quota::sliding_log(60, LONG));
        world.store.know(2);
        assert!(acquire(&limiter, "a", 40).is_allowed());
        world.store.switch(false);
        let together = Barrier::new(8);
        let passed: u64 = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| {
                scope.spawn(|| {
                    together.wait();
                    passes(&limiter, "a")
                })
            });
            threads
                .map(|thread| thread.join().expect("it does not panic"))
                .iter()
                .sum()
        });
        assert_eq!(passed, 10);
    }
}

#[test]
fn units_that_pass_without_the_store_are_counted_by_rule() {
    let world = World::new();
    let quota = Quota::sliding_log(9, LONG);
    let rules = [
        Rule::new("share", quota),
        Rule::new("cap", quota).on_store_error(OnStoreError::Cap(Quota::sliding_log(4, LONG))),
        Rule::new("open", quota).on_store_error(OnStoreError::Allow),
        Rule::new("degraded", quota).on_store_error(OnStoreError::Degraded),
        Rule::new("closed", quota).on_store_error(OnStoreError::Deny),
    ];
    let names = ["share", "cap", "open", "degraded", "closed"];
    let limiter = Limiter::new(world.store.clone(), rules).expect("valid rules");
    let three_times = || {
        for rule in names {
            for _ in 0..3 {
                let answer = limiter.acquire(&[check(&limiter, rule, "a", 3)]).ready();
                let _ = answer.expect("it answers at once");
            }
        }
    };
    let counted = || names.map(|rule| admitted_in_fallback(&limiter, rule));
    three_times();
    assert_eq!(counted(), [0; 5]);
    world.store.switch(false);
    three_times();
    // The share begins full: its nine were used.
    assert_eq!(counted(), [0, 3, 9, 9, 0]);
    // What one rule lets pass and another denies is not let through.
    let both = ["open", "closed"].map(|rule| check(&limiter, rule, "a", 3));
    assert!(!at_once(limiter.acquire(&both)).is_allowed());
    assert_eq!(counted(), [0, 3, 9, 9, 0]);
    let fresh = limiter.acquire(&[check(&limiter, "share", "b", 5)]).ready();
    assert!(fresh.expect("at once").is_allowed());
    assert_eq!(counted()[0], 5);
}

#[test]
fn a_client_has_a_share_of_its_own_plan() {
    for (quota, gold) in every_algorithm(60).into_iter().zip(every_algorithm(120)) {
        let world = World::new();
        let limiter = world.limiter(Rule::new("rule", quota).plan("gold", gold));
        world.store.know(4);
        world.store.switch(false);
        let check = limiter.check_with_plan("rule", "gold", &Key::of("a"));
        let check = check.expect("a plan").with_cost(1);
        let passed = (0..1_000).take_while(|_| at_once(limiter.acquire(&[check])).is_allowed());
        assert_eq!(passed.count(), 30, "{quota:?}");
        assert_eq!(passes(&limiter, "b"), 15, "{quota:?}");
    }
}

#[test]
fn slots_of_a_share_go_back_to_it() {
    let world = World::new();
    let limiter = world.quota(Quota::concurrent(4));
    world.store.know(2);
    world.store.switch(false);
    for _ in 0..3 {
        let (first, second) = (acquire(&limiter, "a", 1), acquire(&limiter, "a", 1));
        assert!(first.is_allowed() && second.is_allowed());
        assert_eq!(first.verdicts()[0].source(), Source::Fallback);
        assert!(!acquire(&limiter, "a", 1).is_allowed());
        drop(first);
        assert!(acquire(&limiter, "a", 1).is_allowed());
        drop(second);
    }
    // What the share has given is none of the store's, which has all of its slots.
    let of_share = acquire(&limiter, "a", 1);
    world.store.switch(true);
    let running: Vec<_> = (0..4).map(|_| acquire(&limiter, "a", 1)).collect();
    assert!(running.iter().all(Decision::is_allowed));
    drop(of_share);
    assert!(!acquire(&limiter, "a", 1).is_allowed());
    drop(running);
    assert!(acquire(&limiter, "a", 4).is_allowed());
}

/// Takes ten units and holds them.
fn ten(limiter: &Limiter, who: &str) -> Ticket {
    let decision = acquire(limiter, who, 10);
    assert!(decision.is_allowed(), "{decision:?}");
    limiter.ticket(&[check(limiter, "rule", who, 10)], &decision)
}

#[test]
fn a_charge_in_an_outage_is_owed_to_the_share_and_what_lapses_is_counted() {
    let of = |quota: Quota| {
        let rules = [
            // The share begins with 20 units, and a cap with none.
            (OnStoreError::LocalShare, true, 30),
            (OnStoreError::Cap(quota), true, 10),
            (OnStoreError::Allow, false, 170),
        ];
        rules.map(|(answer, is_share, lapses)| {
            let rule = Rule::new("rule", quota).debt(100);
            (rule.on_store_error(answer), is_share, lapses)
        })
    };
    let quotas = [
        Quota::fixed_window(60, MINUTE),
        Quota::sliding_window(60, MINUTE),
        Quota::gcra(60, MINUTE),
    ];
    for (rule, is_share, lapses) in quotas.into_iter().flat_map(of) {
        let (world, quota) = (World::new(), *rule.quota());
        let limiter = world.limiter(rule);
        let lapsed = || limiter.rule_store().lapsed_units(0);
        // The store has admitted these, and is not there when their cost is known.
        let held = [ten(&limiter, "a"), ten(&limiter, "a")];
        world.store.switch(false);
        let [first, second] = held;
        first.settle(130);
        assert_eq!(acquire(&limiter, "a", 1).is_allowed(), !is_share);
        // At most 160 may be used.
        second.settle(60);
        assert_eq!(lapsed(), lapses, "{quota:?}");
        // The share has admitted this one, and it settles there.
        ten(&limiter, "b").settle(70);
        assert_eq!(acquire(&limiter, "b", 1).is_allowed(), !is_share);
        ten(&limiter, "b2").settle(4);
        let held = ten(&limiter, "c");
        world.store.switch(true);
        assert_eq!(left(&limiter, "rule", "a"), 40, "none is charged twice");
        assert_eq!(left(&limiter, "rule", "b2"), 60);
        held.settle(80);
        let looked = at_once(limiter.peek(&[check(&limiter, "rule", "c", 0)]));
        assert_eq!(looked.verdicts()[0].debt(), 10, "{quota:?}");
    }
}
