//! Tests of what a process does with a lease.

use tollgate_core::{MINUTE, Quota};

use super::*;

const TERMS: LeaseTerms = LeaseTerms::of_bucket(100, 10_000_000);

fn tracked(units: u64) -> Option<Grant> {
    Some(Grant::Tracked {
        units,
        generation: 7,
    })
}

#[test]
fn a_lease_is_spent_until_a_thousandth_before_its_life_is_over() {
    let mut holder = LeaseHolder::default();
    let _ = holder.on_reply((1_000, 1_500), 0, tracked(10), &TERMS);
    assert_eq!(holder.until(), Some(1_000 + 9_990_000));
    assert!(holder.spend(1_000 + 9_989_999, 3));
    assert!(!holder.spend(1_000 + 9_990_000, 3));
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
fn a_lease_in_use_stays() {
    let (mut holder, _) = holding(100);
    for second in 1..9 {
        let now = START + second * SECOND;
        assert!(holder.spend(now, 10));
        assert_eq!(holder.sweep(now), None);
    }
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

#[test]
fn what_has_run_out_is_not_handed_back() {
    let (mut holder, terms) = holding(40);
    // A thousandth of its life early, by this clock.
    let over = START + terms.tracked_life() - terms.tracked_life() / 1_000;
    assert_eq!(holder.left(over - 1), 40);
    assert_eq!(holder.left(over), 0);
    assert_eq!(holder.sweep(over), None);
    assert_eq!(holder.take_out(over), None);
}

#[test]
fn a_request_that_costs_nothing_leaves_the_lease_where_it_is() {
    let (mut holder, terms) = holding(40);
    assert!(holder.query(START + 1, 0, &terms).is_empty());
    assert_eq!(holder.left(START + 1), 40);
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
fn a_scheduled_lease_begins_when_what_was_taken_before_has_come_back() {
    let (mut holder, _) = scheduled(10, 500_000);
    let first = START + 1_000 + 500_500 + 10_010;
    assert_eq!(holder.due_after(START + 1_000, 1), Some(510_510));
    assert!(!holder.spend(first - 1, 1));
    assert!(holder.spend(first, 1));
}

#[test]
fn what_is_left_of_a_scheduled_lease_is_lost_at_its_end_which_is_counted_from_the_query() {
    let (mut holder, _) = scheduled(10, 500_000);
    let over = START + 3_500_000 - 3_500;
    assert_eq!((holder.left(over - 1), holder.left(over)), (10, 0));
    assert!(!holder.spend(over, 1));
    // Units that would be due after that never are.
    let (holder, _) = scheduled(400, 1_000_000);
    assert_eq!(holder.due_after(START, 400), None);
}

#[test]
fn a_scheduled_lease_survives_a_call_to_the_store_and_is_the_only_one() {
    let (mut holder, terms) = scheduled(2, 0);
    let query = holder.query(START + 5_000, 1, &terms);
    assert_eq!((query.returned, query.scheduled), (None, 0));
    let _ = holder.on_reply((START + 5_000, START + 6_000), START, None, &terms);
    assert_eq!(holder.held(START + 6_000), 2);
    assert_eq!(holder.sweep(START + 7_000), None);
    assert_eq!(holder.held(START + 7_000), 2);
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
fn who_is_far_from_the_store_asks_for_no_scheduled_lease() {
    // A horizon of 450 ms.
    let terms =
        LeaseTerms::new(&Quota::gcra(100, tollgate_core::SECOND), 100).expect("it is granted");
    for (took, wants) in [(100_000, true), (120_000, false)] {
        let mut holder = LeaseHolder::default();
        let mut scheduled = 0;
        for request in 1..=40 {
            let now = START + request * 25_000;
            holder.spend(now, 1);
            let query = holder.query(now, 1, &terms);
            scheduled = scheduled.max(query.scheduled);
            if !query.is_empty() {
                let _ = holder.on_reply((now, now + took), now, None, &terms);
            }
        }
        assert_eq!(scheduled > 0, wants, "{took}");
    }
}

#[test]
fn a_holder_is_small() {
    assert!(
        size_of::<LeaseHolder>() <= 96,
        "{}",
        size_of::<LeaseHolder>()
    );
}

/// A lease of some units of a window of a day, granted at `START` in window 7, and terms of it.
fn of_a_day(units: u64) -> (LeaseHolder, LeaseTerms) {
    let day = Quota::fixed_window(10_000, 24 * 60 * MINUTE);
    let terms = LeaseTerms::new(&day, 100).expect("it is granted");
    let mut holder = LeaseHolder::default();
    let _ = holder.on_reply((START, START), START, tracked(units), &terms);
    (holder, terms)
}

#[test]
fn a_lease_of_a_window_goes_back_also_when_it_has_run_out_by_this_clock() {
    let (mut holder, terms) = of_a_day(10);
    let over = holder.until().expect("a lease");
    assert!(!holder.spend(over, 1));
    let returned = holder.query(over, 1, &terms).returned;
    assert_eq!(returned.map(|returned| returned.left), Some(10));
    holder.lost();
    // Of one that weighs nowhere any more nothing is said.
    let (mut holder, terms) = of_a_day(10);
    let day = terms.window().expect("a window");
    assert!(holder.query(over + 2 * day, 1, &terms).is_empty());
}

#[test]
fn units_that_were_spent_before_a_reset_do_not_come_back() {
    let (mut holder, terms) = of_a_day(10);
    let now = START + SECOND;
    assert!(holder.spend(now, 4));
    assert!(holder.take_out(now).is_some());
    holder.forget(now);
    assert_eq!(holder.give_back_to(7, (now + 1, now), 4), 0);
    assert_eq!(holder.held(now + 1), 0);
    // Those of a lease that came afterwards do.
    let _ = holder.on_reply((now + 1, now + 2), now, tracked(5), &terms);
    assert!(holder.spend(now + 3, 5));
    assert_eq!(holder.give_back_to(7, (now + 4, now + 3), 5), 0);
    assert_eq!(holder.left(now + 4), 5);
}
