//! Tests of what a store lends of a bucket.

use std::time::Duration;

use super::*;
use crate::lease::segments::SegmentTerms;

const LIFE: Tick = 1_000;

/// A burst of 100 units, one a µs; lots of up to 20 units, two of which may be parked.
fn lender() -> BucketLender {
    let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
    let terms = LeaseTerms::of_bucket(40, LIFE).in_lots_of(2, 1);
    BucketLender::new(&quota, terms).expect("a bucket")
}

fn park(closed: Option<Closed>) -> Ask {
    Ask {
        closed,
        parking: 20,
        segment: 0,
    }
}

fn left(lender: &BucketLender, state: &mut BucketState, now: Tick) -> u64 {
    lender.acquire(state, now, 0, &Ask::default()).0.remaining
}

#[test]
fn a_bucket_fills_up_to_what_is_not_parked() {
    let (lender, mut state) = (lender(), BucketState::default());
    let (answer, lot) = lender.acquire(&mut state, 5_000, 1, &park(None));
    let generation = 5;
    assert_eq!(
        lot,
        Some(Lot::Parking {
            units: 20,
            generation
        })
    );
    assert_eq!(answer.remaining, 79);
    assert_eq!(left(&lender, &mut state, 5_999), 80);
    assert_eq!(left(&lender, &mut state, 7_000), 80);
    assert_eq!(left(&lender, &mut state, 7_010), 90);
}

#[test]
fn what_comes_back_is_there_for_the_request() {
    let (lender, mut state) = (lender(), BucketState::default());
    lender.acquire(&mut state, 5_000, 1, &park(None));
    let closed = Some(Closed {
        size: 20,
        left: 15,
        generation: 5,
    });
    let ask = Ask {
        closed,
        ..Ask::default()
    };
    let (answer, lot) = lender.acquire(&mut state, 5_500, 95, &ask);
    assert_eq!((answer.fits, answer.remaining, lot), (true, 0, None));
    assert_eq!(state.loans.total(), 0);
}

#[test]
fn a_lot_that_is_not_tracked_brings_nothing_back() {
    let (lender, mut state) = (lender(), BucketState::default());
    lender.acquire(&mut state, 5_000, 100, &Ask::default());
    for generation in [0, 4, 5, 6, u64::MAX] {
        let closed = Some(Closed {
            size: 20,
            left: 20,
            generation,
        });
        let ask = Ask {
            closed,
            ..Ask::default()
        };
        assert!(!lender.acquire(&mut state, 5_000, 1, &ask).0.fits);
    }
}

#[test]
fn a_lot_brings_nothing_back_that_is_older_than_those_tracked_or_larger_than_it_was() {
    let (lender, mut state) = (lender(), BucketState::default());
    lender.acquire(&mut state, 5_000, 1, &park(None));
    // A generation later, the lot is in the previous one.
    for (generation, left) in [(3, 20), (4, 20), (5, 21)] {
        let closed = Some(Closed {
            size: 20,
            left,
            generation,
        });
        let ask = Ask {
            closed,
            ..Ask::default()
        };
        lender.acquire(&mut state, 6_500, 1, &ask);
        assert_eq!(state.loans.total(), 20, "{generation}, {left}");
    }
}

#[test]
fn no_more_is_parked_than_the_reserve() {
    let (lender, mut state) = (lender(), BucketState::default());
    for now in 5_000..5_400 {
        lender.acquire(&mut state, now, 1, &park(None));
        assert!(state.loans.total() <= 40);
    }
    assert_eq!(state.loans.total(), 40);
}

#[test]
fn a_denied_request_gets_no_lot() {
    let (lender, mut state) = (lender(), BucketState::default());
    lender.acquire(&mut state, 5_000, 95, &Ask::default());
    let (answer, lot) = lender.acquire(&mut state, 5_000, 6, &park(None));
    assert_eq!((answer.fits, answer.remaining, lot), (false, 5, None));
}

#[test]
fn a_lot_from_before_a_step_back_is_not_taken_for_a_later_one() {
    let (lender, mut state) = (lender(), BucketState::default());
    let ask = Ask {
        parking: 10,
        ..Ask::default()
    };
    let (_, lot) = lender.acquire(&mut state, 5_000, 1, &ask);
    let Some(Lot::Parking { units, generation }) = lot else {
        panic!("{lot:?}");
    };
    // Back over the turn of a generation, and on.
    lender.acquire(&mut state, 4_999, 1, &Ask::default());
    let (_, later) = lender.acquire(&mut state, 5_900, 1, &park(None));
    let later = later.expect("some of the reserve is there").units();
    let closed = Some(Closed {
        size: units,
        left: units,
        generation,
    });
    let ask = Ask {
        closed,
        ..Ask::default()
    };
    lender.acquire(&mut state, 5_950, 1, &ask);
    // The later lot lives on.
    assert!(left(&lender, &mut state, 6_800) <= 100 - later);
}

#[test]
fn a_state_is_fresh_a_tick_after_the_last_unit_came_back() {
    let (lender, mut state) = (lender(), BucketState::default());
    lender.acquire(&mut state, 5_000, 1, &park(None));
    assert_eq!(lender.fresh_at(&state), 7_000 + 20);
    lender.acquire(&mut state, 6_500, 1, &Ask::default());
    assert_eq!(lender.fresh_at(&state), 7_000 + 20);
    lender.acquire(&mut state, 7_000, 50, &Ask::default());
    assert_eq!(lender.fresh_at(&state), 7_000 + 70);
}

/// A bucket of 100 units, one a µs, of which up to 30 are lent ahead.
fn ahead() -> BucketLender {
    let quota = Quota::token_bucket(100).refill(1, Duration::from_micros(1));
    let segments = SegmentTerms::by_hand(1, 1, 100, 30, 50);
    let terms = LeaseTerms::of_bucket(0, LIFE).with_segments(segments);
    BucketLender::new(&quota, terms).expect("a bucket")
}

fn segment(units: u64) -> Ask {
    Ask {
        segment: units,
        ..Ask::default()
    }
}

fn lent(units: u64, after: Tick) -> Option<Lot> {
    Some(Lot::Segment { units, after })
}

#[test]
fn a_segment_is_lent_to_who_has_emptied_the_bucket_and_to_who_is_refused() {
    let (lender, mut state) = (ahead(), BucketState::default());
    let (answer, lot) = lender.acquire(&mut state, 5_000, 98, &segment(15));
    assert_eq!((answer.fits, lot), (true, lent(15, 0)));
    // Two units were left, and fifteen lent: thirteen are owed, for which another one waits.
    let (answer, lot) = lender.acquire(&mut state, 5_000, 3, &segment(99));
    assert_eq!((answer.fits, lot), (false, lent(17, 13)));
    assert_eq!(answer.retry, Retry::after_micros(16));
    assert_eq!(answer.reset_after, 130);
    // Thirty are owed, and the line is full.
    let (answer, lot) = lender.acquire(&mut state, 5_000, 1, &segment(1));
    assert_eq!((answer.retry, lot), (Retry::after_micros(31), None));
    assert_eq!(
        lender.acquire(&mut state, 5_013, 1, &segment(1)).1,
        lent(1, 17)
    );
    // What is owed comes back, and then the bucket fills up as ever.
    assert!(!lender.acquire(&mut state, 5_031, 1, &segment(0)).0.fits);
    assert_eq!(left(&lender, &mut state, 5_032), 1);
    assert_eq!(left(&lender, &mut state, 5_041), 10);
    assert_eq!(lender.fresh_at(&state), 5_131);
}

#[test]
fn while_the_bucket_has_something_no_segment_is_lent() {
    let (lender, mut state) = (ahead(), BucketState::default());
    assert_eq!(lender.acquire(&mut state, 5_000, 92, &segment(15)).1, None);
    assert_eq!(lender.acquire(&mut state, 5_000, 9, &segment(15)).1, None);
    assert_eq!(lender.acquire(&mut state, 5_000, 101, &segment(15)).1, None);
    assert_eq!(
        lender.acquire(&mut state, 5_000, 1, &segment(15)).1,
        lent(15, 0)
    );
}

#[test]
fn what_is_owed_stays_owed_when_the_clock_goes_back() {
    let (lender, mut state) = (ahead(), BucketState::default());
    lender.acquire(&mut state, 5_000, 100, &segment(15));
    let (answer, _) = lender.acquire(&mut state, 4_000, 1, &segment(0));
    assert_eq!(
        (answer.fits, answer.retry),
        (false, Retry::after_micros(16))
    );
    assert_eq!(answer.reset_after, 115);
    assert!(!lender.acquire(&mut state, 4_015, 1, &segment(0)).0.fits);
    assert!(lender.acquire(&mut state, 4_016, 1, &segment(0)).0.fits);
}
