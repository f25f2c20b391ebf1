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
    let _ = holder.on_reply((START, START), START, Some(grant), &terms);
    (holder, terms)
}

#[test]
fn an_unused_lease_returns_after_two_seconds() {
    let (mut holder, terms) = holding(40);
    assert!(holder.spend(START + SECOND / 2, 1));
    assert_eq!(holder.sweep(START + SECOND), None);
    assert_eq!(holder.sweep(START + 2 * SECOND), None);
    let query = holder.sweep(START + 3 * SECOND).expect("it is idle");
    let returned = ReturnedLease {
        size: 40,
        left: 39,
        generation: 7,
    };
    assert_eq!(
        query,
        LeaseQuery {
            returned: Some(returned),
            ..LeaseQuery::default()
        }
    );
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
    let query = holder.sweep(START + 3 * SECOND).expect("it is too much");
    assert_eq!(query.returned.map(|returned| returned.left), Some(97));
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
    let _ = holder.on_reply((START, START), START, tracked(40), &terms);
    assert_eq!(holder.sweep(START + SECOND), None);
    assert!(holder.sweep(START + 3 * SECOND).is_some());
}

/// Terms of a hundred units a second, and a scheduled lease of this many units that was requested at `START`, came a millisecond
/// later, and begins `after` µs after that.
fn scheduled(units: u64, after: Tick) -> (LeaseHolder, LeaseTerms) {
    let terms = LeaseTerms::new(&Quota::gcra(6_000, MINUTE), 100).expect("it is granted");
    let mut holder = LeaseHolder::default();
    let grant = Grant::Scheduled { units, after };
    let _ = holder.on_reply((START, START + 1_000), START, Some(grant), &terms);
    (holder, terms)
}

#[test]
fn the_units_of_a_scheduled_lease_are_due_one_after_the_other_from_the_answer_on() {
    let (mut holder, _) = scheduled(10, 0);
    let first = START + 1_000 + 10_010;
    assert_eq!(
        (holder.held(START + 1_000), holder.left(first - 1)),
        (10, 0)
    );
    assert!(!holder.spend(first - 1, 1));
    assert!(holder.spend(first, 1));
    assert!(!holder.spend(first, 1));
    assert!(!holder.spend(first + 2 * 10_010, 3));
    assert_eq!(holder.due_after(first + 2 * 10_010, 3), Some(10_010));
    assert!(holder.spend(first + 3 * 10_010, 3));
    assert_eq!(holder.due_after(first, 7), None);
}

#[test]
fn a_scheduled_lease_is_asked_for_where_nothing_was_granted_for_half_of_its_time() {
    let (mut holder, terms) = holding(2);
    let mut queries = Vec::new();
    for request in 1..=30 {
        let now = START + request * SECOND / 40;
        if !holder.spend(now, 1) {
            let query = holder.query(now, 1, &terms);
            queries.push((request, query.scheduled));
            if !query.is_empty() {
                let _ = holder.on_reply((now, now), now, None, &terms);
            }
        }
    }
    let first = queries.iter().find(|(_, scheduled)| *scheduled > 0);
    assert_eq!(first, Some(&(23, 8)));
}

#[test]
fn a_holder_is_small() {
    assert!(
        size_of::<LeaseHolder>() <= 96,
        "{}",
        size_of::<LeaseHolder>()
    );
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

#[test]
fn a_key_that_fell_silent_is_forgotten() {
    let mut demand = Demand::default();
    for request in 1..=1_000 {
        demand.count(1);
        demand.average(1_000_000 + request * 1_000);
    }
    demand.count(1);
    demand.average(600_000_000);
    assert_eq!(demand.within(1_000_000), 0);
}
