//! Tests of GCRA.

use super::*;
use crate::time::{DAY, SECOND};

fn ready(quota: Quota) -> Gcra {
    Gcra::new(&quota).expect("a valid quota")
}

#[test]
fn a_span_beyond_64_bits_is_exact() {
    // The burst is 8.64 · 10^19 parts.
    let quota = ready(Quota::gcra(999_983, DAY).burst(1_000_000_000));
    let mut state = GcraState::default();
    let now = 1_700_000_000_000_000;
    let answer = quota.acquire(&mut state, now, 999_999_999);
    assert_eq!((answer.fits, answer.remaining), (true, 1));
    assert_eq!(answer.reset_after, 86_401_468_738_569);
    assert_eq!(
        (state.tat(), state.rest()),
        (now + 86_401_468_738_568, 555_656)
    );
    let answer = quota.assess(&state, now, 5);
    assert_eq!(
        (answer.remaining, answer.retry),
        (1, Retry::after_micros(345_606))
    );
}

#[test]
fn a_queue_keeps_its_length_when_the_quota_changes() {
    let at_most = 60 * SECOND;
    let old = ready(Quota::gcra(3, SECOND).burst(4)).waiting(at_most);
    let now = 1_700_000_000_000_000;
    let mut state = GcraState::default();
    // The burst, and seven that wait, 333 333 and a third µs apart.
    for n in 0..11_u64 {
        let instant = old.instant(&state, now, 1).expect("it may wait");
        let due = (n.saturating_sub(3) * 1_000_000).div_ceil(3);
        assert_eq!(instant.start - now, due, "{n}");
        assert!(old.take_from(&mut state, now, instant, 1).is_some());
    }
    for (quota, wait, next) in [
        // The last place is at 7/3 s, and the next one a unit of the new quota after it.
        (Quota::gcra(3, SECOND).burst(9), at_most, 2_666_667),
        (Quota::gcra(1, SECOND).burst(1), at_most, 3_333_334),
        (Quota::gcra(10, SECOND).burst(2), SECOND, 2_433_334),
    ] {
        let new = ready(quota).waiting(wait);
        let converted = new.convert(&old, &state, now);
        let lacks = new.lacks(&converted, now, 1).min(new.reach - new.tolerance);
        let due = new.micros(lacks).min(next);
        let expected = u64::min(next, micros(wait));
        assert!(
            due.abs_diff(expected) <= 1,
            "{quota:?}: {due} and not {expected}"
        );
        // Units from before the change lapse.
        let taken = Taken::new(now, new.fresh_at(&converted));
        assert!(!new.refund_queued(&mut converted.clone(), now, taken, None, 1));
    }
    // Without a queue, used units are carried over as always.
    let mut used = GcraState::default();
    old.take(&mut used, now, 3);
    let new = ready(Quota::gcra(1, SECOND).burst(9)).waiting(at_most);
    let converted = new.convert(&old, &used, now);
    assert_eq!(new.assess(&converted, now, 0).remaining, 6);
}

#[test]
fn a_denial_never_frees_a_queue() {
    let quota = ready(Quota::gcra(1, SECOND)).waiting(3 * SECOND);
    let now = 1_700_000_000_000_000;
    let mut state = GcraState::default();
    for _ in 0..4 {
        let instant = quota.instant(&state, now, 1).expect("it may wait");
        quota.take_from(&mut state, now, instant, 1);
    }
    let before = state;
    quota.repair(&mut state, now);
    assert_eq!(state, before);
    // A clock that went back is repaired to the end of the queue, and what was taken before lapses.
    quota.repair(&mut state, now - 10_000_000);
    assert_eq!(state.tat(), now - 10_000_000 + 4_000_000);
    let taken = Taken::new(now, state.tat());
    assert!(!quota.refund_queued(&mut state, now - 9_000_000, taken, None, 1));
}

#[test]
fn the_deny_cache_denies_only_what_waits_too_long() {
    let quota = ready(Quota::gcra(1, SECOND).burst(2)).waiting(3 * SECOND);
    let now = 1_700_000_000_000_000;
    let mut state = GcraState::default();
    for _ in 0..5 {
        let instant = quota.instant(&state, now, 1).expect("it may wait");
        quota.take_from(&mut state, now, instant, 1);
    }
    let bound = quota.deny_bound(&state, now).expect("a bound");
    for (later, cost, denies) in [
        (0, 1, Some(1_000_000)),
        (999_999, 1, Some(1)),
        (1_000_000, 1, None),
        (1_000_000, 2, Some(1_000_000)),
        (2_000_000, 2, None),
        (0, 0, None),
    ] {
        let denied = quota.deny_by(bound, now + later, cost);
        let retry = denied.map(|answer| answer.retry);
        assert_eq!(retry, denies.map(Retry::after_micros), "{later} {cost}");
    }
    // A clock that went back: a denial has to repair the state first.
    assert_eq!(quota.deny_by(bound, now - 1, 1), None);
    let never = quota.deny_by(bound, now, 3).map(|answer| answer.retry);
    assert_eq!(never, Some(Retry::Never));
}

#[test]
fn a_cost_of_nothing_waits_for_nothing_and_one_above_the_burst_never_starts() {
    let quota = ready(Quota::gcra(1, SECOND).burst(2)).waiting(9 * SECOND);
    let now = 1_700_000_000_000_000;
    let mut state = GcraState::default();
    for _ in 0..4 {
        let instant = quota.instant(&state, now, 1).expect("it may wait");
        quota.take_from(&mut state, now, instant, 1);
    }
    assert_eq!(quota.instant(&state, now, 0), Some(Instant::new(now, now)));
    assert_eq!(quota.instant(&state, now, 3), None);
    let before = state;
    for cost in [0, 3] {
        let instant = Instant::new(now, now);
        assert_eq!(quota.take_from(&mut state, now, instant, cost), None);
        assert_eq!(state, before);
    }
}

#[test]
fn the_last_place_of_a_queue_goes_back_until_it_is_due_and_leaves_what_was_there() {
    let quota = ready(Quota::gcra(3, SECOND).burst(1)).waiting(9 * SECOND);
    let now = 1_700_000_000_000_000;
    let mut state = GcraState::default();
    let take = |state: &mut GcraState| {
        let instant = quota.instant(state, now, 1).expect("it may wait");
        quota.take_from(state, now, instant, 1)
    };
    for _ in 0..4 {
        take(&mut state);
    }
    let four = state;
    let before = take(&mut state);
    assert_eq!(before, Some(four));
    let fresh_at = quota.fresh_at(&state);
    let taken = Taken::new(now, fresh_at);
    // Four thirds of a second are 1 333 333 and a third µs.
    assert_eq!((four.tat, four.rest), (now + 1_333_333, 1));
    for before in [before, None] {
        for (at, goes_back) in [(now, true), (fresh_at - 1, true), (fresh_at, false)] {
            let mut left = state;
            let went = quota.refund_queued(&mut left, at, taken, before, 1);
            assert_eq!(went, goes_back, "{at}");
            assert_eq!(left, if goes_back { four } else { state });
        }
    }
    // Units of an earlier request lapse.
    let first = Taken::new(now, fresh_at - 1);
    assert!(!quota.refund_queued(&mut state.clone(), now, first, None, 1));
    // Where nothing waits it is a refund, also of units that are not the last ones.
    let plain = ready(Quota::gcra(3, SECOND));
    let mut used = GcraState::default();
    plain.take(&mut used, now, 2);
    let first = Taken::new(now, now + 333_334);
    assert!(plain.refund_queued(&mut used, now, first, None, 1));
    assert_eq!(plain.assess(&used, now, 0).remaining, 2);
}

#[test]
fn only_a_queue_remembers_that_it_was_cut() {
    let plain = ready(Quota::gcra(1, SECOND).burst(2));
    let faster = ready(Quota::gcra(2, SECOND).burst(2));
    let queue = plain.waiting(9 * SECOND);
    let now = 1_700_000_000_000_000;
    let mut used = GcraState::default();
    plain.take(&mut used, now, 2);
    let earlier = now - 100_000_000;
    let mut repaired = used;
    plain.repair(&mut repaired, earlier);
    assert_eq!(repaired, GcraState::new(earlier + 2_000_000, 0, 0));
    assert_eq!(faster.convert(&plain, &used, now).cut, 0);
    // From then on units of before lapse, and those that are taken after it do not.
    for (after, before) in [(queue, plain), (faster.waiting(SECOND), plain)] {
        let mut state = after.convert(&before, &used, now);
        assert_eq!(u64::from(state.cut), (used.tat >> CUT_STEP) + 1);
        let taken = Taken::new(now, after.fresh_at(&state));
        assert!(!after.refund_queued(&mut state, now, taken, None, 1));
        let taken = Taken::new(u64::from(state.cut) << CUT_STEP, taken.fresh_at);
        assert!(after.refund_queued(&mut state, now, taken, None, 1));
    }
    let cut = plain.convert(&queue, &used, now).cut;
    assert_eq!(u64::from(cut), (used.tat >> CUT_STEP) + 1);
    // The same quota changes nothing.
    assert_eq!(queue.convert(&queue, &used, now + 9_000_000), used);
}

#[test]
fn a_denial_leaves_a_state_to_another_quota_unless_this_one_is_faster_and_cuts_nothing() {
    let now = 1_700_000_000_000_000;
    let fresh = GcraState::default();
    let rates = [1, 2, 3, 6, 7, 100, 999, 1_000].map(|rate| (rate, SECOND));
    let rates = rates
        .into_iter()
        .chain([(60, 60 * SECOND), (7, 3 * SECOND), (999_983, DAY)]);
    let rates: Vec<_> = rates.collect();
    for (rate, period) in &rates {
        for (other, of) in &rates {
            let [this, writer] = [(rate, period), (other, of)]
                .map(|(rate, period)| ready(Quota::gcra(*rate, *period).burst(5)));
            let is_faster =
                u128::from(*rate) * of.as_micros() > u128::from(*other) * period.as_micros();
            assert_eq!(
                this.defers_to(&writer, &fresh, now),
                !is_faster,
                "{rate} in {period:?} after {other} in {of:?}"
            );
        }
    }
    let writer = ready(Quota::gcra(1, SECOND).burst(10));
    let faster = ready(Quota::gcra(2, SECOND).burst(5));
    for (used, defers) in [(5, false), (6, true)] {
        let mut state = GcraState::default();
        writer.take(&mut state, now, used);
        assert_eq!(faster.defers_to(&writer, &state, now), defers, "{used}");
    }
    // A queue of five seconds behind one that has been used up.
    let writer = ready(Quota::gcra(1, SECOND).burst(1)).waiting(5 * SECOND);
    let state = GcraState::new(now + 6_000_000, 0, 0);
    for (wait, defers) in [(5, false), (4, true)] {
        let faster = faster.waiting(wait * SECOND);
        assert_eq!(faster.defers_to(&writer, &state, now), defers, "{wait}");
    }
}

#[test]
fn an_answer_bounds_a_state_by_the_earliest_one_that_answers_like_it() {
    let now = 1_700_000_000_000_000;
    let mut narrower = 0;
    for (rate, burst) in [
        (7, 10),
        (3, 4),
        (13, 5),
        (999_983, 1_000_000),
        (1_000_000, 9),
    ] {
        let quota = ready(Quota::gcra(rate, SECOND).burst(burst));
        let d = quota.denominator as u32;
        for n in 0..200_u64 {
            let tat = now + n * 6_700_417 % u64::max(quota.micros(quota.tolerance), 2) + 1;
            let state = GcraState::new(tat, (n % u64::from(d)) as u32, 0);
            let answers = |state: &GcraState, cost| {
                (quota.fresh_at(state), quota.assess(state, now, cost).retry)
            };
            for cost in [1, burst / 2, burst] {
                let (fresh_at, retry) = answers(&state, cost);
                let Retry::After(wait) = retry else { continue };
                if quota.assess(&state, now, cost).fits {
                    continue;
                }
                let reply = (now + micros(wait), cost);
                let bound = quota.earliest(fresh_at, Some(reply));
                assert!((bound.tat, bound.rest) <= (state.tat, state.rest));
                let by_fresh = quota.earliest(fresh_at, None);
                assert!((by_fresh.tat, by_fresh.rest) <= (bound.tat, bound.rest));
                narrower += u32::from(by_fresh != bound);
                if state.rest == 0 && d > 1 {
                    continue;
                }
                assert_eq!(answers(&bound, cost), (fresh_at, retry));
                let parts = quota.parts(bound.tat) + u128::from(bound.rest) - 1;
                let less = quota.state(0, parts);
                assert_ne!(answers(&less, cost), (fresh_at, retry));
                // A wait longer than that of the bucket has another reason, and a cost above the burst shows nothing.
                for reply in [
                    (fresh_at + DAY.as_micros() as u64, cost),
                    (reply.0, burst + 1),
                ] {
                    assert_eq!(quota.earliest(fresh_at, Some(reply)), by_fresh);
                }
            }
        }
    }
    assert!(narrower > 0);
}

#[test]
fn what_an_answer_tells_of_a_state_is_never_later_than_the_state() {
    let quota = ready(Quota::gcra(7, SECOND).burst(10));
    let mut state = GcraState::default();
    quota.take(&mut state, 1_000, 3);
    let fresh_at = quota.fresh_at(&state);
    let Retry::After(wait) = quota.assess(&state, 1_000, 8).retry else {
        panic!("eight do not fit");
    };
    let bound_after = |wait: u64| quota.earliest(fresh_at, Some((1_000 + wait, 8)));
    let exact = bound_after(wait.as_micros() as u64);
    assert!(
        exact.tat <= state.tat && exact.tat + 1 >= state.tat,
        "{exact:?}"
    );
    // Eight wait for something else, until long after the state is fresh.
    assert!(bound_after(10_000_000).tat <= state.tat);
}
