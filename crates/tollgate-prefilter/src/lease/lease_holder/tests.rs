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

#[test]
fn what_is_handed_back_is_gone() {
    let mut holder = LeaseHolder::default();
    let _ = holder.on_reply((1_000, 1_500), 0, tracked(10), &TERMS);
    assert!(holder.spend(2_000, 4));
    let back = ReturnedLease {
        size: 10,
        left: 6,
        generation: 7,
    };
    assert_eq!(holder.take_out(3_000), Some(back));
    assert_eq!((holder.left(3_000), holder.take_out(3_000)), (0, None));
}

#[test]
fn what_is_left_of_a_lease_that_has_run_out_does_not_go_back() {
    let mut holder = LeaseHolder::default();
    let _ = holder.on_reply((1_000, 1_500), 0, tracked(10), &TERMS);
    assert_eq!(holder.take_out(1_000 + 9_990_000), None);
}

#[test]
fn units_go_back_into_the_lease_they_were_spent_of() {
    let mut holder = LeaseHolder::default();
    let _ = holder.on_reply((1_000, 1_500), 0, tracked(10), &TERMS);
    assert!(holder.spend(2_000, 4));
    holder.give_back(3_000, 2_000, 4);
    assert_eq!(holder.left(3_000), 10);
}

#[test]
fn units_of_another_lease_are_lost() {
    let mut holder = LeaseHolder::default();
    let _ = holder.on_reply((1_000, 1_500), 0, tracked(10), &TERMS);
    assert!(holder.spend(2_000, 4));
    holder.take_out(3_000);
    let _ = holder.on_reply((3_000, 3_500), 0, tracked(10), &TERMS);
    assert!(holder.spend(4_000, 5));
    holder.give_back(5_000, 2_000, 4);
    assert_eq!(holder.left(5_000), 5);
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

#[test]
fn one_query_at_a_time_speaks_of_leases() {
    let (mut holder, terms) = holding(2);
    assert!(!holder.query(START + 1, 3, &terms).is_empty());
    assert!(holder.query(START + 2, 3, &terms).is_empty());
    holder.lost();
    assert_eq!(holder.left(START + 3), 0);
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
fn units_go_back_into_the_scheduled_lease_they_were_spent_of() {
    let (mut holder, _) = scheduled(10, 0);
    let now = START + 500_000;
    assert!(holder.spend(now, 10));
    holder.give_back(now + 1, now, 4);
    assert_eq!(holder.left(now + 1), 4);
    holder.give_back(now + 1, START + 1_000, 4);
    assert_eq!(holder.left(now + 1), 4);
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
fn units_of_a_window_come_back_whatever_became_of_their_lease() {
    let (mut holder, terms) = of_a_day(10);
    let now = START + SECOND;
    assert!(holder.spend(now, 10));
    assert_eq!(holder.window(), Some(7));
    // The lease goes back, and while the query is under way three units come back, and one is spent again.
    let returned = holder.take_out(now).expect("it is tracked");
    assert_eq!((returned.size, returned.left), (10, 0));
    assert_eq!(holder.give_back_to(7, (now, now), 3), 0);
    assert!(holder.spend(now, 1));
    // Another lease comes, and then the rest.
    let _ = holder.on_reply((now, now), now, tracked(5), &terms);
    assert_eq!(holder.left(now), 2 + 5);
    assert_eq!(holder.give_back_to(7, (now + 1, now), 7), 0);
    assert_eq!(holder.left(now + 1), 14);
    // All of it goes back, and the store tracks the lease as it was granted.
    let returned = holder.take_out(now + 1).expect("it is tracked");
    let all = ReturnedLease {
        size: 5,
        left: 14,
        generation: 7,
    };
    assert_eq!(returned, all);
    assert_eq!((holder.until(), holder.take_out(now + 1)), (None, None));
}

#[test]
fn units_that_come_back_to_nothing_are_for_the_store_to_take() {
    let mut holder = LeaseHolder::default();
    assert_eq!(holder.give_back_to(7, (START, START), 3), 3);
    let (mut holder, _) = of_a_day(10);
    let now = START + SECOND;
    assert_eq!(holder.give_back_to(6, (now, now), 3), 3);
    assert_eq!(holder.give_back_to(8, (now, now), 3), 3);
    let over = holder.until().expect("a lease");
    assert_eq!(holder.give_back_to(7, (over - 1, now), 3), 0);
    assert_eq!(holder.give_back_to(7, (over, now), 3), 3);
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
fn what_went_with_a_query_that_did_not_reach_the_store_is_here_again() {
    for window in [true, false] {
        let (mut holder, terms) = if window { of_a_day(10) } else { holding(10) };
        let now = START + SECOND;
        assert!(holder.spend(now, 4));
        let query = holder.query(now, 20, &terms);
        assert_eq!(query.returned.map(|returned| returned.left), Some(6));
        assert_eq!(holder.left(now), 0);
        holder.on_not_sent(query.returned);
        assert_eq!(holder.left(now), 6);
        let again = holder.query(now, 20, &terms);
        assert_eq!(again.returned, query.returned);
    }
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

#[test]
fn of_a_lease_of_a_bucket_that_was_replaced_those_units_are_lost_that_were_not_admitted_by_then() {
    let quota = Quota::gcra(6_000, MINUTE);
    let terms = LeaseTerms::new(&quota, 100).expect("it is granted");
    let grantor = crate::BucketGrantor::new(&quota, terms).expect("a bucket");
    let (mut state, mut holder) = (crate::BucketState::default(), LeaseHolder::default());
    let wants = LeaseQuery {
        tracked: 40,
        ..LeaseQuery::default()
    };
    let granted = grantor.acquire(&mut state, START, 0, &wants).1;
    let _ = holder.on_reply((START, START), START, granted, &terms);
    let now = START + 1_000;
    assert!(holder.spend(now, 40));
    let returned = holder.take_out(now);
    let query = LeaseQuery { returned, ..wants };
    let granted = grantor.acquire(&mut state, now, 0, &query).1;
    let _ = holder.on_reply((now, now), now, granted, &terms);
    // None of them was let through.
    holder.give_back(now + 1, now, 40);
    let returned = holder.take_out(now + 1);
    let query = LeaseQuery {
        returned,
        ..LeaseQuery::default()
    };
    let left =
        |state: &mut _, at, query: &LeaseQuery| grantor.acquire(state, at, 0, query).0.remaining;
    assert_eq!(left(&mut state, now + 1, &query), 6_000 - 40);
    // A hundred come back in a second.
    let whole = now + 2 + 400_000;
    assert_eq!(left(&mut state, whole, &LeaseQuery::default()), 6_000);
}

#[test]
fn what_came_back_of_the_window_before_makes_room_for_a_lease_and_goes_back() {
    let (mut holder, terms) = of_a_day(10);
    let now = START + SECOND;
    assert!(holder.spend(now, 10));
    assert!(holder.take_out(now).is_some());
    assert_eq!(holder.give_back_to(7, (now, now), 3), 0);
    let generation = 8;
    let next = Grant::Tracked {
        units: 5,
        generation,
    };
    let left = holder.on_reply((now, now), now, Some(next), &terms);
    let before = ReturnedLease {
        size: 0,
        left: 3,
        generation: 7,
    };
    assert_eq!((left, holder.left(now)), (Some(before), 5));
}
