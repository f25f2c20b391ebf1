//! Tests of what a process does with a lease.

use tollgate_core::{MINUTE, Quota};

use super::*;

fn tracked(units: u64) -> Option<Grant> {
    Some(Grant::Tracked {
        units,
        generation: 7,
    })
}

const SECOND: Tick = 1_000_000;
const START: Tick = 1_000 * SECOND;

/// A holder with a demand of twenty units a second that then got a lease.
fn holding(units: u64) -> (LeaseHolder, LeaseTerms) {
    let terms = LeaseTerms::new(&Quota::gcra(6_000, MINUTE), 100).expect("it is granted");
    let mut holder = LeaseHolder::default();
    for before in (0..20).rev() {
        let now = START - before * SECOND / 20;
        holder.spend(now, 1);
        holder.query(now, 1, &terms);
        holder.lost();
    }
    let grant = Grant::Tracked {
        units,
        generation: 7,
    };
    let _ = holder.on_granted((START, START), START, Some(grant), &terms);
    (holder, terms)
}

#[test]
fn an_unused_lease_returns_after_two_seconds() {
    let (mut holder, terms) = holding(40);
    assert!(holder.spend(START + SECOND / 2, 1));
    assert_eq!(holder.sweep(START + SECOND), None);
    assert_eq!(holder.sweep(START + 2 * SECOND), None);
    let returned = ReturnedLease {
        size: 40,
        left: 39,
        generation: 7,
    };
    assert_eq!(holder.sweep(START + 3 * SECOND), Some(returned));
    // Not a second time, and a request that comes meanwhile requests no lease.
    assert_eq!(holder.sweep(START + 4 * SECOND), None);
    assert!(!holder.spend(START + 4 * SECOND, 1));
    assert!(holder.query(START + 4 * SECOND, 1, &terms).is_empty());
}

#[test]
fn a_lease_of_which_little_will_be_needed_goes_back_though_it_is_in_use() {
    let (mut holder, _) = holding(100);
    for second in 1..3 {
        assert!(holder.spend(START + second * SECOND, 1));
        assert_eq!(holder.sweep(START + second * SECOND), None);
    }
    // Twenty a second are forgotten by now: for seven seconds more, a dozen will do.
    assert!(holder.spend(START + 3 * SECOND, 1));
    let returned = holder.sweep(START + 3 * SECOND);
    assert_eq!(returned.map(|returned| returned.left), Some(97));
}

#[test]
fn a_lease_that_was_never_taken_from_is_left_to_run_out() {
    let (mut holder, _) = holding(40);
    for second in 1..9 {
        assert_eq!(holder.sweep(START + second * SECOND), None);
    }
}

#[test]
fn a_lease_of_a_long_window_that_was_never_taken_from_goes_back() {
    let day = Quota::fixed_window(10_000, 24 * 60 * MINUTE);
    let terms = LeaseTerms::new(&day, 100).expect("it is granted");
    let (mut holder, _) = holding(40);
    let _ = holder.on_granted((START, START), START, tracked(40), &terms);
    assert_eq!(holder.sweep(START + SECOND), None);
    assert!(holder.sweep(START + 3 * SECOND).is_some());
}

#[test]
fn it_follows_a_steady_rate_within_a_second() {
    let mut demand = Demand::default();
    for request in 1..=1_000 {
        demand.count(1);
        demand.average(1_000_000 + request * 1_000);
    }
    let rate = demand.within(1_000_000);
    assert!((800..=1_001).contains(&rate), "{rate}");
}
