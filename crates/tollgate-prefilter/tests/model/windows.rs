//! Worlds around a window.

use tollgate_core::algorithm::{FixedWindow, SlidingWindow};
use tollgate_prefilter::LeaseTerms;
use tollgate_test_reference::lease_terms;

use crate::{
    fault::Fault,
    system::{holds, holds_for, is_caught, loses},
    window::{Window, Windowed},
    world::World,
};

const LIMIT: u64 = 3;
const LENGTH: u64 = 3;

/// How far the largest worlds are explored, in steps. What requests of two processes may become in more is explored with the
/// engine.
const STEPS: usize = 12;

/// The same where queries arrive late. The last of these states is 59 steps away.
const STRAY_STEPS: usize = 18;

/// Two processes and windows of three units, two of which may be granted.
fn windows<A: Windowed>() -> World<Window<A>> {
    let terms = LeaseTerms {
        window: Some(LENGTH),
        ..lease_terms(2, LENGTH)
    };
    World {
        costs: &[1, 2],
        ..World::new(Window::new(LIMIT, LENGTH, &terms), terms)
    }
}

#[test]
fn no_fixed_window_counts_too_much() {
    holds(windows::<FixedWindow>());
}

#[test]
fn no_sliding_window_counts_too_much() {
    holds(windows::<SlidingWindow>());
}

/// A process whose requests are denied by another rule after their units were spent, or dropped by their callers, or refunded late;
/// whose queries are refused, and which binds its rules anew, while others take units.
fn leaving<A: Windowed>() -> World<Window<A>> {
    World {
        processes: 1,
        costs: &[1],
        queries: &[0, 1],
        giving_back: true,
        leaving: true,
        ..windows()
    }
}

/// Two processes, whose requests are denied or refunded late.
fn both_denied<A: Windowed>() -> World<Window<A>> {
    World {
        processes: 2,
        queries: &[0],
        leaving: false,
        ..leaving()
    }
}

/// Where a query may arrive after its process has given it up.
fn straying<A: Windowed>() -> World<Window<A>> {
    World {
        queries: &[0],
        strays: 1,
        ..leaving()
    }
}

/// Where the limit becomes smaller, and larger again.
fn changing<A: Windowed>() -> World<Window<A>> {
    let world = leaving();
    World {
        store: world.store.or(LIMIT - 1),
        queries: &[0],
        leaving: false,
        changes: true,
        ..world
    }
}

#[test]
fn no_unit_of_a_fixed_window_is_lost_or_there_twice_whatever_becomes_of_its_request() {
    holds(leaving::<FixedWindow>());
    holds_for(STRAY_STEPS, straying::<FixedWindow>());
    holds_for(STEPS, both_denied::<FixedWindow>());
}

#[test]
fn no_unit_of_a_sliding_window_is_lost_or_there_twice_whatever_becomes_of_its_request() {
    holds(leaving::<SlidingWindow>());
    holds_for(STRAY_STEPS, straying::<SlidingWindow>());
}

#[test]
fn no_unit_is_lost_while_the_limit_changes() {
    holds(changing::<FixedWindow>());
    holds(changing::<SlidingWindow>());
}

#[test]
fn only_units_spent_before_a_reset_exceed_the_limit_after_it() {
    holds_for(
        STEPS,
        World {
            resets: true,
            ..leaving::<FixedWindow>()
        },
    );
}

worlds! {
    units_that_go_into_a_lease_of_another_window_let_too_much_pass => caught_for_both(Fault::GivenToAnother);
    units_that_come_back_only_into_their_lease_are_lost_with_it => lost_for_both(Fault::LostWithLease);
    units_that_came_back_are_lost_if_a_lease_takes_their_place => lost_for_both(Fault::LeaseReplacesUnits);
    units_without_a_table_entry_are_lost_unless_refunded => lost_for_both(Fault::NotRefunded);
    units_that_are_refunded_though_they_found_a_place_let_too_much_pass => caught_for_both(Fault::RefundedTwice);
    units_that_are_refunded_in_the_window_of_now_let_too_much_pass => caught_for_both(Fault::RefundedNow);
    what_went_with_a_query_that_was_refused_is_lost_if_it_is_not_taken_back => lost_for_both(Fault::RefusedIsLost);
    a_grant_whose_caller_is_gone_loses_units => lost_for_both(Fault::DroppedUnheard);
}

#[test]
fn units_of_the_window_before_are_lost_to_one_that_slides_if_they_do_not_go_back() {
    for fault in [Fault::BeforeStays, Fault::BeforeIsReplaced] {
        loses(leaving::<SlidingWindow>().with(fault));
    }
}

fn lost_for_both(fault: Fault) {
    loses(leaving::<FixedWindow>().with(fault));
    loses(leaving::<SlidingWindow>().with(fault));
}

fn caught_for_both(fault: Fault) {
    is_caught(both_denied::<FixedWindow>().with(fault));
    is_caught(both_denied::<SlidingWindow>().with(fault));
}

fn for_both(fault: Fault) {
    is_caught(windows::<FixedWindow>().with(fault));
    is_caught(windows::<SlidingWindow>().with(fault));
}

worlds! {
    leases_that_outlive_their_window_let_too_much_pass => for_both(Fault::WindowOutlived);
    leases_of_a_window_that_are_spent_too_late_let_too_much_pass => for_both(Fault::SpentTooLate);
    leases_of_a_window_that_are_handed_back_again_let_too_much_pass => for_both(Fault::HandedBackAgain);
}

/// The key is reset while leases are out.
fn resetting<A: Windowed>() -> World<Window<A>> {
    World {
        costs: &[1],
        resets: true,
        ..windows()
    }
}

#[test]
fn a_reset_of_a_window_while_leases_are_out_lets_no_more_pass() {
    holds(resetting::<FixedWindow>());
    holds(resetting::<SlidingWindow>());
}

#[test]
fn leases_of_a_window_that_a_reset_forgets_let_too_much_pass() {
    is_caught(resetting::<FixedWindow>().with(Fault::ResetForgets));
    is_caught(resetting::<SlidingWindow>().with(Fault::ResetForgets));
}
