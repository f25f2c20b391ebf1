//! Places that lapse because the state was changed: random histories do not reach them, because a state that was fresh in between
//! may have been forgotten, and with it what lapses.

use std::time::Duration;

use tollgate_core::{Decision, Quota, Rule, SECOND};

use crate::internal_tests::parity::pair::{Bound, Pair};

fn tick(after: Duration) -> u64 {
    1_700_000_000_000_000 + after.as_micros() as u64
}

/// A unit a second, with a wait of its own.
fn waiting(pair: &Pair, at_most: Duration) -> Bound {
    pair.bind(Rule::new("rule", Quota::gcra(1, SECOND)).wait(at_most))
}

fn acquire(pair: &mut Pair, bound: &Bound, after: Duration) -> Decision {
    pair.acquire(bound, tick(after), 1)
}

/// Gives a place up, and says how many units lapse.
fn cancel(pair: &mut Pair, bound: &Bound, decision: &Decision, after: Duration) -> u64 {
    pair.cancel(bound, tick(after), decision.queue_places()[0])
}

/// Takes a place and gives it up.
fn give_up(pair: &mut Pair, bound: &Bound, after: Duration) -> Duration {
    let decision = acquire(pair, bound, after);
    cancel(pair, bound, &decision, after);
    decision.delay()
}

#[test]
fn a_place_goes_back_only_to_a_state_that_was_not_changed_lately() {
    let mut pair = Pair::new();
    let (minute, longer) = (waiting(&pair, 60 * SECOND), waiting(&pair, 61 * SECOND));
    let at = Duration::from_secs;
    for n in 0..3 {
        assert_eq!(acquire(&mut pair, &minute, at(0)).delay(), at(n));
    }
    // It goes back.
    assert_eq!(give_up(&mut pair, &minute, at(0)), at(3));
    // The quota has changed with it: it lapses.
    assert_eq!(give_up(&mut pair, &longer, at(0)), at(3));
    assert_eq!(acquire(&mut pair, &longer, at(0)).delay(), at(4));
    // All is paid back, and the quota changes with a unit that waits for nothing.
    assert_eq!(acquire(&mut pair, &minute, at(10)).delay(), at(0));
    assert_eq!(give_up(&mut pair, &minute, at(10)), at(1));
    assert_eq!(acquire(&mut pair, &minute, at(10)).delay(), at(2));
    // Some time after a change it goes back again.
    assert_eq!(give_up(&mut pair, &minute, at(12)), at(1));
    assert_eq!(acquire(&mut pair, &minute, at(12)).delay(), at(1));
}

#[test]
fn a_place_goes_back_only_to_a_state_that_was_not_repaired_lately() {
    let mut pair = Pair::new();
    let minute = waiting(&pair, 60 * SECOND);
    let at = Duration::from_secs;
    assert_eq!(acquire(&mut pair, &minute, at(1_000)).delay(), at(0));
    // The clock goes back, and a denial repairs the state.
    assert!(!acquire(&mut pair, &minute, at(0)).is_allowed());
    assert_eq!(give_up(&mut pair, &minute, at(5)), at(56));
    assert_eq!(acquire(&mut pair, &minute, at(5)).delay(), at(57));
    // A change of the quota does not make that sooner.
    let longer = waiting(&pair, 61 * SECOND);
    assert_eq!(acquire(&mut pair, &longer, at(5)).delay(), at(58));
    assert_eq!(acquire(&mut pair, &longer, at(100)).delay(), at(0));
    assert_eq!(give_up(&mut pair, &longer, at(100)), at(1));
    assert_eq!(acquire(&mut pair, &longer, at(100)).delay(), at(2));
}

#[test]
fn a_place_goes_back_until_its_units_are_paid_back() {
    let at = Duration::from_secs;
    let micro = Duration::from_micros(1);
    // Its request starts after a second, and its unit is paid back a second later.
    for (then, lapses) in [(at(2) - micro, 0), (at(2), 1)] {
        let mut pair = Pair::new();
        let minute = waiting(&pair, 60 * SECOND);
        assert_eq!(acquire(&mut pair, &minute, at(0)).delay(), at(0));
        let place = acquire(&mut pair, &minute, at(0));
        assert_eq!(place.delay(), at(1));
        assert_eq!(cancel(&mut pair, &minute, &place, then), lapses);
    }
}
