//! What an answer of the account means, by algorithm.

use tollgate_core::{SECOND, Source, algorithm::Assessment};

use super::*;

const AT: Tick = 1_700_000_000_500_000;

fn answer(fits: bool, remaining: u64, reset_after: Tick, retry: Retry) -> Verdict {
    let answer = Assessment::new(fits, remaining, reset_after, retry);
    Verdict::new(0, 0, answer, Source::Store)
}

#[test]
fn a_unit_that_came_a_little_early_for_a_bucket_is_not_above_the_limit() {
    // A unit in 100 ms, ten at once.
    let audit = Audit::of(&Quota::gcra(10, SECOND)).expect("a bucket");
    let early = |by: Tick| {
        let used = 900_000 + by;
        answer(false, 0, used, Retry::after_micros(by))
    };
    assert_eq!(audit.over(AT, 1, &early(9_000), 10_000), 0);
    assert_eq!(audit.over(AT, 1, &early(11_000), 10_000), 1);
    assert_eq!(audit.over(AT, 5, &early(0), 10_000), 4);
}

#[test]
fn a_refusal_by_a_bucket_is_false_if_the_units_were_there_for_longer_than_the_tolerance() {
    let audit = Audit::of(&Quota::gcra(10, SECOND)).expect("a bucket");
    let used = |time| answer(true, 0, time, Retry::Now);
    assert!(!audit.is_false(AT, 1, &used(895_000), 10_000));
    assert!(audit.is_false(AT, 1, &used(890_000), 10_000));
}

#[test]
fn nothing_is_said_of_a_window_around_its_turn() {
    let audit = Audit::of(&Quota::fixed_window(10, SECOND)).expect("a window");
    let full = answer(false, 0, 1, Retry::after_micros(1));
    assert_eq!(audit.over(AT, 3, &full, 10_000), 3);
    assert_eq!(audit.over(AT + 495_000, 3, &full, 10_000), 0);
    let room = answer(true, 2, 1, Retry::Now);
    assert!(audit.is_false(AT, 2, &room, 10_000));
    assert!(!audit.is_false(AT, 3, &room, 10_000));
    assert!(!audit.is_false(AT + 505_000, 2, &room, 10_000));
}

#[test]
fn a_window_that_slides_lets_go_of_units_within_the_tolerance() {
    let audit = Audit::of(&Quota::sliding_window(1_000, SECOND)).expect("a window");
    let soon = answer(false, 0, 1, Retry::after_micros(9_000));
    assert_eq!(audit.over(AT, 2, &soon, 10_000), 0);
    let later = answer(false, 1, 1, Retry::after_micros(11_000));
    assert_eq!(audit.over(AT, 2, &later, 10_000), 1);
    let room = |left| answer(true, left, 1, Retry::Now);
    assert!(!audit.is_false(AT, 1, &room(10), 10_000));
    assert!(audit.is_false(AT, 1, &room(11), 10_000));
}

#[test]
fn a_window_that_has_gone_on_says_nothing_of_an_earlier_refusal() {
    let room = |reset_after| answer(true, 5, reset_after, Retry::Now);
    // Each counts by the second, and this is the middle of one.
    for (quota, lasts) in [
        (Quota::fixed_window(10, SECOND), 500_000),
        (Quota::sliding_window(10, SECOND), 1_500_000),
        (
            Quota::sliding_buckets(10, 10 * SECOND).buckets(10),
            10_500_000,
        ),
    ] {
        let audit = Audit::of(&quota).expect("a window");
        let was_false = |now, reset| audit.was_false((AT, now), 1, &room(reset), 10_000);
        assert!(was_false(AT + 100_000, lasts), "{quota:?}");
        assert!(!was_false(AT + 100_000, lasts + 1), "{quota:?}");
        assert!(!was_false(AT + 500_000, lasts), "{quota:?}");
    }
    let audit = Audit::of(&Quota::gcra(10, SECOND)).expect("a bucket");
    assert!(audit.was_false((AT, AT + 900_000), 1, &room(500_000), 10_000));
}

#[test]
fn a_slow_bucket_tolerates_later_reports_than_a_fast_one() {
    let audit = |quota| Audit::of(&quota).expect("a bucket");
    assert!(audit(Quota::gcra(1_000, SECOND)).is_late(10_001));
    assert!(!audit(Quota::gcra(10, SECOND)).is_late(50_000));
    assert!(audit(Quota::gcra(10, SECOND)).is_late(50_001));
    assert_eq!(
        audit(Quota::gcra(1, 3_600 * SECOND)).tolerance(),
        10_000_000
    );
    let window = Audit::of(&Quota::fixed_window(1_000, SECOND)).expect("a window");
    assert!(!window.is_late(900_000));
}

#[test]
fn a_log_is_not_followed() {
    assert!(Audit::of(&Quota::sliding_log(10, SECOND)).is_none());
}

/// A quota of each shape: ten a second.
fn each_shape() -> [Audit; 4] {
    [
        Quota::gcra(10, SECOND),
        Quota::fixed_window(10, SECOND),
        Quota::sliding_window(10, SECOND),
        Quota::sliding_buckets(10, SECOND).buckets(10),
    ]
    .map(|quota| Audit::of(&quota).expect("it has a reference"))
}

#[test]
fn units_weigh_until_a_bucket_has_them_back_or_their_window_is_over() {
    let fresh_at = each_shape().map(|audit| audit.fresh_at(1_250_000, 5, 0));
    assert_eq!(fresh_at, [1_750_000, 2_000_000, 3_000_000, 2_300_000]);
    // In a bucket they are behind what was there.
    let by_rule = each_shape().map(|audit| audit.fresh_at(1_250_000, 5, 9_000_000));
    assert_eq!(by_rule, [9_000_000, 2_000_000, 3_000_000, 2_300_000]);
    let memory = each_shape().map(|audit| audit.memory());
    assert_eq!(memory, [1_000_000, 1_000_000, 2_000_000, 1_100_000]);
}

#[test]
fn what_was_decided_in_a_window_is_over_with_it_and_a_fixed_one_forgets_it() {
    for (now, is_over) in [(1_999_999, false), (2_000_000, true)] {
        let over = each_shape().map(|audit| audit.is_over(1_900_000, now));
        assert_eq!(over, [false, is_over, is_over, false], "{now}");
        let forgotten = each_shape().map(|audit| audit.has_forgotten(1_900_000, now));
        assert_eq!(forgotten, [false, is_over, false, false], "{now}");
    }
}
