//! Plans, and what a denial has taught where plans and clocks change in between.

use tollgate_core::{Key, Limiter, ManualClock, MemoryStore, Outcome, Quota, Rule, SECOND};

use crate::at_once;

#[test]
fn the_deny_cache_of_a_plan_is_dropped_when_another_repairs_the_state() {
    let clock = ManualClock::new(110_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("rule", Quota::fixed_window(2, SECOND))
        .plan("gold", Quota::fixed_window(5, SECOND));
    let limiter = Limiter::new(store, [rule]).expect("valid");
    let key = Key::of("ann");
    let gold = limiter
        .check_with_plan("rule", "gold", &key)
        .expect("a plan");
    let free = limiter.check("rule", &key).expect("a rule");
    let acquire = |check| at_once(limiter.acquire(&[check]));

    for _ in 0..5 {
        assert!(acquire(gold).is_allowed());
    }
    // It is full, and the denial teaches.
    assert!(!acquire(gold).is_allowed());
    // The clock goes back, and a denial under the other plan moves the state near to now.
    clock.set(100_000_000);
    assert!(!acquire(free).is_allowed());
    // Where the clock was before, the state is fresh: asking and taking agree.
    clock.set(110_000_000);
    let peeked = at_once(limiter.peek(&[gold]));
    assert_eq!(peeked.outcome(), Outcome::Allow);
    assert_eq!(acquire(gold).outcome(), Outcome::Allow);
}

#[test]
fn what_costs_nothing_is_told_when_the_units_come_back_under_the_plan_that_took_them() {
    let clock = ManualClock::new(110_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("rule", Quota::gcra(5, 60 * SECOND)).plan("gold", Quota::gcra(10, SECOND));
    let limiter = Limiter::new(store, [rule]).expect("valid");
    let key = Key::of("ann");
    let gold = limiter.check_with_plan("rule", "gold", &key);
    let took = at_once(limiter.acquire(&[gold.expect("a plan").with_cost(2)]));
    assert!(took.is_allowed());
    let looks = [limiter.check("rule", &key).expect("a rule").with_cost(0)];
    for (at, left, reset_after) in [(0, 3, 200), (100, 4, 100), (200, 5, 0)] {
        clock.set(110_000_000 + at * 1_000);
        for decision in [limiter.peek(&looks), limiter.acquire(&looks)] {
            let verdict = at_once(decision).verdicts()[0];
            let told = (verdict.remaining(), verdict.reset_after().as_millis());
            assert_eq!(told, (left, reset_after), "{at}");
        }
    }
}
