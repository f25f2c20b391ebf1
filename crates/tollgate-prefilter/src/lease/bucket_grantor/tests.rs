//! Tests of what a store grants of a bucket.

use std::time::Duration;

use super::*;
use crate::lease::schedule_terms::ScheduleTerms;

const LIFE: Tick = 1_000;

/// A burst of 100 units, one a µs; leases of up to 20 units, two at the same time.
fn grantor() -> BucketGrantor {
    let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
    let terms = LeaseTerms::of_bucket(40, LIFE).in_grants_of(2, 1);
    BucketGrantor::new(&quota, terms).expect("a bucket")
}

fn lease(returned: Option<ReturnedLease>) -> LeaseQuery {
    LeaseQuery {
        returned,
        tracked: 20,
        scheduled: 0,
    }
}

fn left(grantor: &BucketGrantor, state: &mut BucketState, now: Tick) -> u64 {
    grantor
        .acquire(state, now, 0, &LeaseQuery::default())
        .0
        .remaining
}

#[test]
fn a_bucket_fills_up_to_what_is_not_on_lease() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    let (answer, grant) = grantor.acquire(&mut state, 5_000, 1, &lease(None));
    let generation = 5;
    assert_eq!(
        grant,
        Some(Grant::Tracked {
            units: 20,
            generation
        })
    );
    assert_eq!(answer.remaining, 79);
    assert_eq!(left(&grantor, &mut state, 5_999), 80);
    assert_eq!(left(&grantor, &mut state, 7_000), 80);
    assert_eq!(left(&grantor, &mut state, 7_010), 90);
}

#[test]
fn what_comes_back_is_there_for_the_request() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    grantor.acquire(&mut state, 5_000, 1, &lease(None));
    let returned = Some(ReturnedLease {
        size: 20,
        left: 15,
        generation: 5,
    });
    let query = LeaseQuery {
        returned,
        ..LeaseQuery::default()
    };
    let (answer, grant) = grantor.acquire(&mut state, 5_500, 95, &query);
    assert_eq!((answer.fits, answer.remaining, grant), (true, 0, None));
    assert_eq!(state.leases.total(), 0);
}

#[test]
fn a_lease_that_is_not_tracked_brings_nothing_back() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    grantor.acquire(&mut state, 5_000, 100, &LeaseQuery::default());
    for generation in [0, 4, 5, 6, u64::MAX] {
        let returned = Some(ReturnedLease {
            size: 20,
            left: 20,
            generation,
        });
        let query = LeaseQuery {
            returned,
            ..LeaseQuery::default()
        };
        assert!(!grantor.acquire(&mut state, 5_000, 1, &query).0.fits);
    }
}

#[test]
fn a_lease_brings_nothing_back_that_is_older_than_those_tracked_or_larger_than_it_was() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    grantor.acquire(&mut state, 5_000, 1, &lease(None));
    // A generation later, the lease is in the previous one.
    for (generation, left) in [(3, 20), (4, 20), (5, 21)] {
        let returned = Some(ReturnedLease {
            size: 20,
            left,
            generation,
        });
        let query = LeaseQuery {
            returned,
            ..LeaseQuery::default()
        };
        grantor.acquire(&mut state, 6_500, 1, &query);
        assert_eq!(state.leases.total(), 20, "{generation}, {left}");
    }
}

#[test]
fn no_more_is_on_lease_than_the_reserve() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    for now in 5_000..5_400 {
        grantor.acquire(&mut state, now, 1, &lease(None));
        assert!(state.leases.total() <= 40);
    }
    assert_eq!(state.leases.total(), 40);
}

#[test]
fn a_denied_request_gets_no_lease() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    grantor.acquire(&mut state, 5_000, 95, &LeaseQuery::default());
    let (answer, grant) = grantor.acquire(&mut state, 5_000, 6, &lease(None));
    assert_eq!((answer.fits, answer.remaining, grant), (false, 5, None));
}

#[test]
fn a_lease_from_before_a_step_back_is_not_taken_for_a_later_one() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    let query = LeaseQuery {
        tracked: 10,
        ..LeaseQuery::default()
    };
    let (_, grant) = grantor.acquire(&mut state, 5_000, 1, &query);
    let Some(Grant::Tracked { units, generation }) = grant else {
        panic!("{grant:?}");
    };
    // Back over the end of a generation, and on.
    grantor.acquire(&mut state, 4_999, 1, &LeaseQuery::default());
    let (_, later) = grantor.acquire(&mut state, 5_900, 1, &lease(None));
    let later = later.expect("some of the reserve is there").units();
    let returned = Some(ReturnedLease {
        size: units,
        left: units,
        generation,
    });
    let query = LeaseQuery {
        returned,
        ..LeaseQuery::default()
    };
    grantor.acquire(&mut state, 5_950, 1, &query);
    // The later lease lives on.
    assert!(left(&grantor, &mut state, 6_800) <= 100 - later);
}

#[test]
fn a_state_is_fresh_a_tick_after_the_last_unit_came_back() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    grantor.acquire(&mut state, 5_000, 1, &lease(None));
    assert_eq!(grantor.fresh_at(&state), 7_000 + 20);
    grantor.acquire(&mut state, 6_500, 1, &LeaseQuery::default());
    assert_eq!(grantor.fresh_at(&state), 7_000 + 20);
    grantor.acquire(&mut state, 7_000, 50, &LeaseQuery::default());
    assert_eq!(grantor.fresh_at(&state), 7_000 + 70);
}

/// A bucket of 100 units, one a µs; up to 30 are granted ahead.
fn ahead() -> BucketGrantor {
    let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
    let schedule = ScheduleTerms::by_hand(1, 1, 100, 30, 50);
    let terms = LeaseTerms::of_bucket(0, LIFE).with_schedule(schedule);
    BucketGrantor::new(&quota, terms).expect("a bucket")
}

fn scheduled(units: u64) -> LeaseQuery {
    LeaseQuery {
        scheduled: units,
        ..LeaseQuery::default()
    }
}

fn granted(units: u64, after: Tick) -> Option<Grant> {
    Some(Grant::Scheduled { units, after })
}

#[test]
fn a_scheduled_lease_is_granted_to_who_has_emptied_the_bucket_and_to_who_is_refused() {
    let (grantor, mut state) = (ahead(), BucketState::default());
    let (answer, grant) = grantor.acquire(&mut state, 5_000, 98, &scheduled(15));
    assert_eq!((answer.fits, grant), (true, granted(15, 0)));
    // Two units were left, and fifteen granted: thirteen are owed, for which another one waits.
    let (answer, grant) = grantor.acquire(&mut state, 5_000, 3, &scheduled(99));
    assert_eq!((answer.fits, grant), (false, granted(17, 13)));
    assert_eq!(answer.retry, Retry::after_micros(16));
    assert_eq!(answer.reset_after, 130);
    // Thirty are owed, and the line is full.
    let (answer, grant) = grantor.acquire(&mut state, 5_000, 1, &scheduled(1));
    assert_eq!((answer.retry, grant), (Retry::after_micros(31), None));
    assert_eq!(
        grantor.acquire(&mut state, 5_013, 1, &scheduled(1)).1,
        granted(1, 17)
    );
    // What is owed comes back, and then the bucket fills up as ever.
    assert!(!grantor.acquire(&mut state, 5_031, 1, &scheduled(0)).0.fits);
    assert_eq!(left(&grantor, &mut state, 5_032), 1);
    assert_eq!(left(&grantor, &mut state, 5_041), 10);
    assert_eq!(grantor.fresh_at(&state), 5_131);
}

#[test]
fn while_the_bucket_has_something_no_scheduled_lease_is_granted() {
    let (grantor, mut state) = (ahead(), BucketState::default());
    assert_eq!(
        grantor.acquire(&mut state, 5_000, 92, &scheduled(15)).1,
        None
    );
    assert_eq!(
        grantor.acquire(&mut state, 5_000, 9, &scheduled(15)).1,
        None
    );
    assert_eq!(
        grantor.acquire(&mut state, 5_000, 101, &scheduled(15)).1,
        None
    );
    assert_eq!(
        grantor.acquire(&mut state, 5_000, 1, &scheduled(15)).1,
        granted(15, 0)
    );
}

#[test]
fn what_is_owed_stays_owed_when_the_clock_goes_back() {
    let (grantor, mut state) = (ahead(), BucketState::default());
    grantor.acquire(&mut state, 5_000, 100, &scheduled(15));
    let (answer, _) = grantor.acquire(&mut state, 4_000, 1, &scheduled(0));
    assert_eq!(
        (answer.fits, answer.retry),
        (false, Retry::after_micros(16))
    );
    assert_eq!(answer.reset_after, 115);
    assert!(!grantor.acquire(&mut state, 4_015, 1, &scheduled(0)).0.fits);
    assert!(grantor.acquire(&mut state, 4_016, 1, &scheduled(0)).0.fits);
}

fn returned(grant: Option<Grant>, left: u64) -> LeaseQuery {
    let Some(Grant::Tracked { units, generation }) = grant else {
        panic!("{grant:?} is not on lease");
    };
    let returned = Some(ReturnedLease {
        size: units,
        left,
        generation,
    });
    LeaseQuery {
        returned,
        ..LeaseQuery::default()
    }
}

#[test]
fn after_a_reset_a_bucket_is_full_but_for_what_is_on_lease() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    let (_, grant) = grantor.acquire(&mut state, 5_000, 70, &lease(None));
    let tracked = grant.expect("it is granted").units();
    grantor.reset(&mut state, 5_010);
    assert_eq!(left(&grantor, &mut state, 5_010), 100 - tracked);
    // Until it comes back, or has run out.
    let mut idle = state;
    assert_eq!(left(&grantor, &mut idle, 6_999), 100 - tracked);
    assert_eq!(left(&grantor, &mut idle, 7_000 + tracked), 100);
    grantor.acquire(&mut state, 5_020, 0, &returned(grant, tracked));
    assert_eq!(left(&grantor, &mut state, 5_020), 100);
}

#[test]
fn after_a_reset_a_bucket_without_leases_is_fresh() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    let (_, grant) = grantor.acquire(&mut state, 5_000, 70, &lease(None));
    grantor.acquire(&mut state, 5_005, 0, &returned(grant, 0));
    grantor.reset(&mut state, 5_010);
    assert_eq!(state, BucketState::default());
}

#[test]
fn a_lease_from_before_a_reset_is_not_taken_for_a_later_one() {
    let (grantor, mut state) = (grantor(), BucketState::default());
    let (_, old) = grantor.acquire(&mut state, 5_000, 1, &lease(None));
    grantor.reset(&mut state, 5_010);
    grantor.acquire(&mut state, 5_020, 1, &lease(None));
    let both = state.leases.total();
    grantor.acquire(&mut state, 5_030, 0, &returned(old, 0));
    assert_eq!(state.leases.total() + 20, both);
}
