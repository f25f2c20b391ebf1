//! Worlds around a window.

use tollgate_core::algorithm::{FixedWindow, SlidingWindow};
use tollgate_prefilter::LeaseTerms;

use crate::{
    explore::{holds, is_caught},
    fault::Fault,
    window::{Window, Windowed},
    world::World,
};

const LIMIT: u64 = 3;
const LENGTH: u64 = 3;

/// Two processes and windows of three units, two of which may be lent.
fn windows<A: Windowed>() -> World<Window<A>> {
    let terms = LeaseTerms::of_window(2, LENGTH).in_lots_of(1, 1);
    World {
        ledger: Window::new(LIMIT, LENGTH, &terms),
        terms,
        processes: 2,
        costs: &[1, 2],
        asks: &[0],
        wants: &[(0, 0), (9, 0)],
        ahead: &[0],
        strays: 0,
        patience: None,
        steps_back: (0, &[]),
        giving_back: false,
        resets: false,
        fault: None,
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

#[test]
fn units_of_a_window_that_are_given_back_are_not_there_twice() {
    holds(World {
        processes: 1,
        giving_back: true,
        ..windows::<FixedWindow>()
    });
}

#[test]
fn units_that_go_into_a_lot_of_another_window_let_too_much_pass() {
    is_caught(World {
        costs: &[1],
        giving_back: true,
        fault: Some(Fault::GivenToAnother),
        ..windows::<FixedWindow>()
    });
}

#[test]
fn lots_that_outlive_their_window_let_too_much_pass() {
    for_both(Fault::WindowOutlived);
}

#[test]
fn lots_of_a_window_that_are_spent_too_late_let_too_much_pass() {
    for_both(Fault::SpentTooLate);
}

#[test]
fn lots_of_a_window_that_are_handed_back_again_let_too_much_pass() {
    for_both(Fault::HandedBackAgain);
}

#[test]
fn a_reset_of_a_window_while_lots_are_out_lets_no_more_pass() {
    holds(World {
        resets: true,
        ..windows::<FixedWindow>()
    });
    holds(World {
        resets: true,
        ..windows::<SlidingWindow>()
    });
}

#[test]
fn lots_of_a_window_that_a_reset_forgets_let_too_much_pass() {
    let resets = true;
    let fault = Some(Fault::ResetForgets);
    is_caught(World {
        resets,
        fault,
        ..windows::<FixedWindow>()
    });
    is_caught(World {
        resets,
        fault,
        ..windows::<SlidingWindow>()
    });
}

fn for_both(fault: Fault) {
    is_caught(World {
        fault: Some(fault),
        ..windows::<FixedWindow>()
    });
    is_caught(World {
        fault: Some(fault),
        ..windows::<SlidingWindow>()
    });
}
