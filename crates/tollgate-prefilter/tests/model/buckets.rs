//! Worlds around a bucket.

use tollgate_test_reference::lease_terms;

use crate::{
    bucket::{Bucket, size},
    fault::Fault,
    system::{holds, holds_for, is_caught},
    world::World,
};

/// In ticks. A lease that is granted in the last one of a generation lives on in the next for long enough that a unit comes back.
const LIFE: u64 = 3;

/// How far the largest world is explored, in steps: leases of two generations have run out by then.
const STEPS: usize = 16;

/// Two processes and tracked leases.
fn tracked(burst: u64, reserve: u64) -> World<Bucket> {
    let terms = lease_terms(reserve, LIFE);
    World {
        costs: &[1, 2],
        wants: &[0, 1, 9],
        ..World::new(Bucket::new(burst, terms, size(1, 1)), terms)
    }
}

/// The same, where queries that no process waits for any more may still arrive.
fn straying() -> World<Bucket> {
    World {
        costs: &[1],
        wants: &[0, 9],
        strays: 1,
        ..tracked(3, 1)
    }
}

/// Leases of two units and more.
fn larger() -> World<Bucket> {
    let terms = lease_terms(4, LIFE);
    World {
        store: Bucket::new(6, terms, size(2, 2)),
        terms,
        queries: &[0, 1],
        wants: &[0, 9],
        ..tracked(6, 4)
    }
}

/// Three processes.
fn crowded() -> World<Bucket> {
    World {
        processes: 3,
        costs: &[1],
        wants: &[0, 9],
        ..tracked(3, 2)
    }
}

#[test]
fn on_lease_units_are_never_spent_twice() {
    holds(World {
        queries: &[0, 1],
        ..tracked(4, 2)
    });
}

#[test]
fn units_of_a_bucket_that_is_on_lease_whole_are_never_spent_twice() {
    holds(World {
        wants: &[0, 9],
        ..tracked(4, 4)
    });
}

worlds! {
    queries_that_arrive_late_spend_nothing_twice => holds(straying());
    larger_leases_are_never_spent_twice => holds(larger());
    three_processes_spend_nothing_twice => holds_for(STEPS, crowded());
    without_holding_back_what_is_on_lease_too_much_passes => is_caught(tracked(3, 2).with(Fault::NoCap));
    releasing_before_the_burst_is_cut_lets_too_much_pass => is_caught(tracked(3, 2).with(Fault::CapAfterRelease));
    a_deadline_from_the_answer_lets_too_much_pass => is_caught(tracked(3, 2).with(Fault::DeadlineFromAnswer));
    leases_that_are_tracked_for_one_life_let_too_much_pass => is_caught(tracked(3, 2).with(Fault::OneLife));
    leases_that_are_spent_after_their_deadline_let_too_much_pass => is_caught(tracked(3, 2).with(Fault::SpentTooLate));
    a_lease_that_is_handed_back_again_lets_too_much_pass => is_caught(straying().with(Fault::HandedBackAgain));
    a_lease_that_comes_back_after_it_was_forgotten_lets_too_much_pass => is_caught(tracked(3, 2).with(Fault::OldGeneration));
}

/// The store's clock goes back once, by one or by several generations.
fn stepping_back() -> World<Bucket> {
    World {
        costs: &[1],
        wants: &[0, 9],
        steps_back: (1, &[1, 3, 30]),
        strays: 0,
        patience: Some(LIFE),
        ..tracked(3, 2)
    }
}

worlds! {
    a_clock_that_goes_back_lets_no_more_pass => holds(stepping_back());
    leases_that_are_forgotten_when_the_clock_goes_back_let_too_much_pass => is_caught(stepping_back().with(Fault::StepBackForgets));
    leases_that_are_numbered_anew_at_once_let_too_much_pass => is_caught(stepping_back().with(Fault::StepBackRenumbers));
}

/// Requests are turned away after their units were spent.
fn giving_back() -> World<Bucket> {
    World {
        costs: &[1],
        wants: &[0, 9],
        giving_back: true,
        strays: 0,
        ..tracked(3, 2)
    }
}

#[test]
fn units_that_are_given_back_are_not_there_twice() {
    holds(giving_back());
}

#[test]
fn units_that_go_into_another_lease_let_too_much_pass() {
    is_caught(giving_back().with(Fault::GivenToAnother));
}

/// The key is reset while leases are out.
fn resetting() -> World<Bucket> {
    World {
        queries: &[0, 1],
        wants: &[0, 9],
        resets: true,
        ..tracked(3, 2)
    }
}

#[test]
fn a_reset_while_leases_are_out_lets_no_more_pass() {
    holds(World {
        resets: true,
        ..straying()
    });
    holds(resetting());
}

#[test]
fn leases_that_a_reset_forgets_let_too_much_pass() {
    is_caught(resetting().with(Fault::ResetForgets));
}
