//! Tests of what denials teach.

use std::cell::Cell;

use tollgate_core::{SECOND, Source};

use super::*;

/// What the last denial of one key has taught.
#[derive(Default)]
struct Learned(Cell<Option<DenialWords>>);

impl Learned {
    fn learn(&self, denials: &Denials, (sent, now): (Tick, Tick), cost: u64, verdict: &Verdict) {
        if let Some(words) = denials.learn(sent, now, cost, verdict) {
            self.0.set(Some(words));
        }
    }

    fn deny(
        &self,
        denials: &Denials,
        now: Tick,
        (cost, patience): (u64, Tick),
    ) -> Option<(Assessment, bool)> {
        denials.deny(self.0.get()?, now, cost, patience)
    }
}

#[test]
fn a_bucket_that_owes_more_than_its_burst_is_denied_without_a_call_and_says_for_how_long() {
    let quota = Quota::token_bucket(10).refill(7, SECOND);
    let (denials, cache) = (Denials::new(&quota, false, None, false), Learned::default());
    let now = 1_700_000_000_000_000;
    // 14 units beyond the burst: for two seconds nothing comes back, and then a unit every 142 857 µs.
    let owes = Assessment::new(
        false,
        0,
        2_000_000 + 1_428_572,
        Retry::after_micros(2_142_858),
    );
    let verdict = Verdict::new(0, 0, owes, Source::Store);
    cache.learn(&denials, (now, now), 1, &verdict);
    let (denied, _) = cache.deny(&denials, now, (1, 0)).expect("it is known");
    let Retry::After(wait) = denied.retry else {
        panic!("{denied:?} is no time to wait");
    };
    let wait = wait.as_micros();
    assert!((2_142_856..=2_142_858).contains(&wait), "{wait}");
    assert_eq!((denied.fits, denied.remaining), (false, 0));
    let (never, _) = cache.deny(&denials, now, (11, 0)).expect("it is known");
    assert_eq!(never.retry, Retry::Never);
}

const NOW: Tick = 1_700_000_000_000_000;

/// A denial by the store.
fn verdict(remaining: u64, reset_after: Tick, retry: Tick) -> Verdict {
    let denied = Assessment::new(false, remaining, reset_after, Retry::after_micros(retry));
    Verdict::new(0, 0, denied, Source::Store)
}

#[test]
fn of_what_slides_or_has_plans_only_a_single_unit_is_denied_here() {
    let bucket = Quota::token_bucket(10).refill(10, SECOND);
    let others = [
        Quota::sliding_window(10, SECOND),
        Quota::sliding_log(10, SECOND),
    ];
    let kinds = others.map(|quota| Denials::new(&quota, false, None, false));
    for denials in [Denials::new(&bucket, true, None, false)]
        .into_iter()
        .chain(kinds)
    {
        let cache = Learned::default();
        let is_known = |cost| cache.deny(&denials, NOW, (cost, 0)).is_some();
        for cost in [2, 1] {
            let denial = verdict(0, 900_000, 900_000);
            cache.learn(&denials, (NOW, NOW), cost, &denial);
            assert_eq!(
                (is_known(1), is_known(2)),
                (cost == 1, false),
                "{denials:?}"
            );
        }
    }
}

#[test]
fn a_denial_is_answered_here_only_where_it_is_known_when_the_units_fit() {
    let quotas = [
        Quota::token_bucket(10).refill(10, SECOND),
        Quota::fixed_window(10, SECOND),
        Quota::sliding_window(10, SECOND),
        Quota::sliding_log(10, SECOND),
    ];
    for quota in quotas {
        let (denials, cache) = (Denials::new(&quota, false, None, false), Learned::default());
        let knows = |cost, at| {
            let denied = cache.deny(&denials, at, (cost, 0));
            denied.map(|(answer, knows_left)| (answer.remaining, knows_left))
        };
        let learn = |cost, denial| {
            cache.learn(&denials, (NOW, NOW), cost, &denial);
        };
        let is_window = quota.algorithm() == AlgorithmKind::FixedWindow;
        // A unit is missing: no other can have taken one since, as long as none comes back.
        learn(1, verdict(0, 1_000_000, 100_000));
        assert_eq!(knows(1, NOW), Some((0, true)), "{quota:?}");
        assert_eq!(knows(1, NOW + 99_999), Some((0, true)), "{quota:?}");
        // Five are left, and others may take of them: then these fit later, but for a window, which ends when it ends.
        learn(8, verdict(5, 500_000, 300_000));
        for at in [NOW, NOW + 250_000] {
            let expected = is_window.then_some((5, false));
            assert_eq!(knows(8, at), expected, "{quota:?}");
        }
        // Nothing was left, but by now there may be.
        learn(8, verdict(0, 1_000_000, 800_000));
        let expected = is_window.then_some((0, true));
        assert_eq!(knows(8, NOW + 250_000), expected, "{quota:?}");
    }
}

#[test]
fn a_bucket_in_whose_queue_others_may_stand_is_asked_about() {
    let quota = Quota::token_bucket(10).refill(10, SECOND);
    let denials = Denials::new(&quota, false, Some(SECOND), false);
    let cache = Learned::default();
    let is_known = |patience| cache.deny(&denials, NOW, (1, patience)).is_some();
    // Nothing is left, and there is room in the queue for requests that wait longer than this one.
    cache.learn(&denials, (NOW, NOW), 1, &verdict(0, 1_500_000, 600_000));
    assert!(!is_known(0));
    // The queue is full as well.
    cache.learn(&denials, (NOW, NOW), 1, &verdict(0, 2_000_000, 1_100_000));
    assert!(is_known(0) && is_known(1_000_000));
}

/// A denial of each kind of one unit, which fits in 300 ms: of a bucket of a unit each 300 ms, and of windows.
fn each_kind() -> [Denials; 3] {
    [
        Denials::new(
            &Quota::token_bucket(1).refill(10, Duration::from_secs(3)),
            false,
            None,
            false,
        ),
        Denials::new(&Quota::fixed_window(1, SECOND), false, None, false),
        Denials::new(&Quota::sliding_window(1, SECOND), false, None, false),
    ]
}

#[test]
fn after_the_clock_went_back_nothing_is_believed_that_was_learned_before() {
    for denials in each_kind() {
        let cache = Learned::default();
        let denial = verdict(0, 300_000, 300_000);
        cache.learn(&denials, (NOW, NOW), 1, &denial);
        assert!(cache.deny(&denials, NOW, (1, 0)).is_some());
        for back in [1_000, 300_000, 3_600_000_000] {
            let denied = cache.deny(&denials, NOW - back, (1, 0));
            assert_eq!(denied, None, "{denials:?}");
        }
    }
}

#[test]
fn a_denial_says_when_units_fit_as_much_later_as_its_reply_came_after_its_query() {
    for denials in each_kind() {
        let cache = Learned::default();
        let (late, denial) = (40_000, verdict(0, 300_000, 300_000));
        cache.learn(&denials, (NOW, NOW + late), 1, &denial);
        for passed in [40_000, 100_000, 299_999] {
            let (denied, _) = cache
                .deny(&denials, NOW + passed, (1, 0))
                .expect("it is known");
            let expected = 300_000 - passed + late;
            assert_eq!(denied.retry, Retry::after_micros(expected), "{denials:?}");
            assert_eq!(denied.reset_after, expected, "{denials:?}");
        }
    }
}

#[test]
fn what_the_store_has_said_is_believed_for_a_second() {
    for quota in [
        Quota::token_bucket(1).refill(1, 10 * SECOND),
        Quota::fixed_window(1, 10 * SECOND),
        Quota::sliding_window(1, 10 * SECOND),
    ] {
        let (denials, cache) = (Denials::new(&quota, false, None, false), Learned::default());
        let denial = verdict(0, 9_000_000, 9_000_000);
        cache.learn(&denials, (NOW, NOW), 1, &denial);
        let is_known = |at| cache.deny(&denials, at, (1, 0)).is_some();
        assert!(is_known(NOW + 999_999), "{quota:?}");
        assert!(!is_known(NOW + 1_000_000), "{quota:?}");
    }
}

#[test]
fn a_reply_that_took_too_long_teaches_nothing() {
    for denials in each_kind() {
        let cache = Learned::default();
        let denial = verdict(0, 300_000, 300_000);
        cache.learn(&denials, (NOW, NOW + 65_536), 1, &denial);
        let is_known = || cache.deny(&denials, NOW + 70_000, (1, 0)).is_some();
        assert!(!is_known(), "{denials:?}");
        cache.learn(&denials, (NOW, NOW + 65_535), 1, &denial);
        assert!(is_known(), "{denials:?}");
    }
}

#[test]
fn a_window_denies_what_is_more_than_is_left_and_what_never_fits_never() {
    let quota = Quota::fixed_window(10, SECOND);
    let (denials, cache) = (Denials::new(&quota, false, None, false), Learned::default());
    let denial = verdict(5, 300_000, 300_000);
    cache.learn(&denials, (NOW, NOW), 8, &denial);
    let retry = |cost| {
        let denied = cache.deny(&denials, NOW, (cost, 0));
        denied.map(|(answer, _)| (answer.fits, answer.retry))
    };
    let later = Some((false, Retry::after_micros(300_000)));
    assert_eq!((retry(0), retry(5)), (None, None));
    assert_eq!((retry(6), retry(10)), (later, later));
    assert_eq!(retry(11), Some((false, Retry::Never)));
}

#[test]
fn a_denial_for_want_of_slots_teaches_nothing() {
    let quota = Quota::concurrent(4).typically(SECOND);
    let (denials, cache) = (Denials::new(&quota, false, None, false), Learned::default());
    cache.learn(&denials, (NOW, NOW), 1, &verdict(0, 0, 250_000));
    assert!(cache.deny(&denials, NOW, (1, 0)).is_none());
}
