//! Worlds in which a bucket grants what it does not have yet.

use tollgate_prefilter::{LeaseTerms, ScheduleTerms};
use tollgate_test_reference::lease_terms;

use crate::{
    bucket::{Bucket, size},
    fault::Fault,
    system::{holds, holds_for, is_caught},
    world::World,
};

/// How far the largest worlds are explored, in steps: a lease has been granted, spent and run out by then.
const STEPS: usize = 16;

/// Two processes, a horizon and lives in ticks, and a unit that may be on lease.
fn schedule(burst: u64, horizon: u64, life: u64) -> World<Bucket> {
    let schedule = ScheduleTerms::by_hand(1, 1, burst - 1, horizon, life);
    let terms = LeaseTerms {
        schedule: Some(schedule.expect("it does not fill up")),
        ..lease_terms(1, 3)
    };
    World {
        queries: &[0, 1],
        wants: &[0],
        ahead: &[0, 1, 9],
        ..World::new(Bucket::new(burst, terms, size(2, 1)), terms)
    }
}

/// Two units ahead, which live for three ticks, and a tracked lease.
fn short() -> World<Bucket> {
    World {
        queries: &[0],
        wants: &[0, 9],
        patience: Some(3),
        ..schedule(5, 2, 3)
    }
}

/// Three units ahead, which live for five ticks.
fn long() -> World<Bucket> {
    World {
        queries: &[0],
        patience: Some(3),
        ..schedule(7, 3, 5)
    }
}

#[test]
fn what_a_bucket_does_not_have_yet_is_spent_as_it_comes_back() {
    holds_for(STEPS, short());
}

#[test]
fn scheduled_leases_in_a_queue_are_never_spent_too_early() {
    holds(long());
}

#[test]
fn three_processes_in_a_queue_spend_nothing_too_early() {
    holds_for(
        STEPS,
        World {
            processes: 3,
            queries: &[0],
            ..schedule(5, 2, 3)
        },
    );
}

#[test]
fn queries_that_arrive_late_bring_no_scheduled_lease_that_lives_too_long() {
    holds(World {
        queries: &[0],
        strays: 1,
        ..schedule(5, 2, 3)
    });
}

#[test]
fn a_clock_that_goes_back_repays_nothing() {
    holds(World {
        queries: &[0],
        steps_back: (1, &[1, 3]),
        patience: Some(3),
        ..schedule(5, 2, 3)
    });
}

#[test]
fn units_that_are_due_from_the_query_on_let_too_much_pass() {
    is_caught(short().with(Fault::PacedFromQuery));
}

#[test]
fn units_that_are_due_at_once_let_too_much_pass() {
    let mut world = short().with(Fault::NotPaced);
    let schedule = world.terms.schedule;
    let life = schedule.map_or(0, |schedule| schedule.life);
    world.terms = LeaseTerms {
        schedule,
        ..lease_terms(1, life)
    };
    is_caught(world);
}

#[test]
fn scheduled_leases_that_do_not_wait_for_those_before_let_too_much_pass() {
    is_caught(long().with(Fault::NotQueued));
}

#[test]
fn scheduled_leases_at_any_level_let_too_much_pass() {
    let mut world = short();
    let terms = LeaseTerms {
        schedule: ScheduleTerms::by_hand(1, 1, 100, 2, 3),
        ..world.terms
    };
    // Those of the grantor, which are others than hold together.
    world.store = Bucket::new(5, terms, size(9, 1));
    is_caught(world);
}

worlds! {
    a_scheduled_lease_that_lives_from_the_answer_on_lets_too_much_pass => is_caught(schedule(5, 2, 3).with(Fault::DeadlineFromAnswer));
    a_scheduled_lease_that_is_spent_after_its_end_lets_too_much_pass => is_caught(schedule(5, 2, 3).with(Fault::SpentTooLate));
    a_refusal_that_forgives_what_is_owed_lets_too_much_pass => is_caught(long().with(Fault::Forgiven));
}
