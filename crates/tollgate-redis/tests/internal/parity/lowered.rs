//! Counts that random histories do not reach: larger than the limit, after it was lowered; and what another quota has counted.

use tollgate_core::{DAY, MINUTE, Quota, Rule, SECOND, algorithm::Taken, store::Hold};

use crate::internal_tests::parity::pair::{Bound, Pair, check};

fn at(pair: &Pair, quota: Quota) -> Bound {
    pair.bind(Rule::new("rule", quota))
}

/// Whether the units were there.
fn acquire(pair: &mut Pair, bound: &Bound, now: u64, cost: u64) -> bool {
    pair.acquire(bound, now, cost).is_allowed()
}

#[test]
fn a_count_far_above_the_limit_is_weighed_to_the_unit() {
    let mut pair = Pair::new();
    let day = DAY.as_micros() as u64;
    let start = 20_000 * day;
    let large = at(&pair, Quota::sliding_window(1_000_000, DAY));
    let small = at(&pair, Quota::sliding_window(60, DAY));
    let other = at(&pair, Quota::sliding_window(4_000_000, 2 * DAY));
    // A prime, and overlaps whose products with it lie by a few units above a multiple of the window: a double would
    // round them down to it.
    let (prime, inverse) = (999_983, 79_485_117_647);
    for above in 1..8 {
        let start = start + above * 100 * day;
        assert!(acquire(&mut pair, &large, start, prime));
        // In the next window a denial writes the state under the small limit, and one of another length counts it.
        assert!(!acquire(&mut pair, &small, start + day, 1));
        let overlap = inverse * above % day;
        assert!(overlap * prime % day == above && overlap > day / 9);
        assert!(acquire(&mut pair, &other, start + 2 * day - overlap, 0));
    }
}

#[test]
fn counts_beyond_32_bits_are_carried_over_as_32_bits() {
    let mut pair = Pair::new();
    let most = u64::from(u32::MAX);
    let second = at(&pair, Quota::sliding_window(most, SECOND));
    let two = at(&pair, Quota::sliding_window(most, 2 * SECOND));
    let start = 1_700_000_001_000_000;
    assert!(acquire(&mut pair, &second, start, most));
    assert!(acquire(&mut pair, &second, start + 1_999_999, most - 4_295));
    // Back, where all of the window before counts.
    assert!(acquire(&mut pair, &two, start - 500_000, 0));
    assert!(!acquire(&mut pair, &two, start - 500_000, 1));
}

#[test]
fn a_request_that_never_fits_a_larger_quota_forgets_no_window_of_the_smaller_one() {
    let mut pair = Pair::new();
    let small = at(&pair, Quota::fixed_window(5, SECOND));
    let large = at(&pair, Quota::fixed_window(10, SECOND));
    let start = 1_700_000_001_000_000;
    assert!(acquire(&mut pair, &small, start, 5));
    assert!(!acquire(&mut pair, &large, start + 1_000_000, 11));
    // Back, where the window is not over.
    assert!(!acquire(&mut pair, &small, start, 1));
    assert!(acquire(&mut pair, &large, start, 5));
    assert!(!acquire(&mut pair, &large, start, 1));
}

#[test]
fn units_that_come_back_from_several_sub_buckets_are_as_many_as_were_given_back() {
    let start = 1_700_000_040_000_000;
    for (units, left) in [(3, 88), (5, 90), (7, 92), (15, 100), (16, 100)] {
        let mut pair = Pair::new();
        let fine = at(&pair, Quota::sliding_buckets(100, MINUTE).buckets(60));
        let coarse = at(&pair, Quota::sliding_buckets(100, MINUTE).buckets(30));
        assert!(acquire(&mut pair, &coarse, start, 5));
        assert!(acquire(&mut pair, &coarse, start + 2_000_000, 10));
        let now = start + 3_000_000;
        let taken = Taken::new(start, start + 61_000_000);
        pair.cancel(&fine, now, Hold::of_store(check(units), taken));
        assert!(acquire(&mut pair, &coarse, now, left), "{units}");
        assert!(!acquire(&mut pair, &coarse, now, 1), "{units}");
    }
}
