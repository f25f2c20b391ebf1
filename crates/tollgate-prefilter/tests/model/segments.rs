//! Worlds in which a bucket lends what it does not have yet.

use tollgate_prefilter::{LeaseTerms, SegmentTerms};

use crate::{
    bucket::Bucket,
    explore::{holds, is_caught},
    fault::Fault,
    world::World,
};

/// Two processes, a line and lives of so many ticks, and a unit that may be parked.
fn segments(burst: u64, line: u64, life: u64) -> World<Bucket> {
    let segments = SegmentTerms::by_hand(1, 1, burst - 1, line, life);
    let terms = LeaseTerms::of_bucket(1, 3).in_lots_of(2, 1);
    let terms = terms.with_segments(Some(segments.expect("it does not fill up")));
    World {
        ledger: Bucket::new(burst, terms),
        terms,
        processes: 2,
        costs: &[1],
        asks: &[0, 1],
        wants: &[0],
        ahead: &[0, 1, 9],
        strays: 0,
        patience: None,
        steps_back: (0, &[]),
        giving_back: false,
        leaving: false,
        changes: false,
        resets: false,
        fault: None,
    }
}

/// Two units ahead, which live for three ticks, beside a parking lot.
fn short() -> World<Bucket> {
    World {
        asks: &[0],
        wants: &[0, 9],
        patience: Some(3),
        ..segments(5, 2, 3)
    }
}

/// Three units ahead, which live for five ticks.
fn long() -> World<Bucket> {
    World {
        asks: &[0],
        patience: Some(3),
        ..segments(7, 3, 5)
    }
}

fn with(fault: Fault, world: World<Bucket>) -> World<Bucket> {
    World {
        fault: Some(fault),
        ..world
    }
}

#[test]
fn what_a_bucket_does_not_have_yet_is_spent_as_it_comes_back() {
    holds(short());
}

#[test]
fn segments_in_line_are_never_spent_too_early() {
    holds(long());
}

#[test]
fn three_processes_in_line_spend_nothing_too_early() {
    holds(World {
        processes: 3,
        asks: &[0],
        ..segments(5, 2, 3)
    });
}

#[test]
fn questions_that_arrive_late_bring_no_segment_that_lives_too_long() {
    holds(World {
        asks: &[0],
        strays: 1,
        ..segments(5, 2, 3)
    });
}

#[test]
fn a_clock_that_goes_back_repays_nothing() {
    holds(World {
        asks: &[0, 1],
        steps_back: (1, &[1, 3]),
        patience: Some(3),
        ..segments(5, 2, 3)
    });
}

#[test]
fn units_that_are_due_from_the_question_on_let_too_much_pass() {
    is_caught(with(Fault::PacedFromQuestion, short()));
}

#[test]
fn units_that_are_due_at_once_let_too_much_pass() {
    let mut world = with(Fault::NotPaced, short());
    let segments = world.terms.segments().copied();
    let life = segments.map_or(0, |segments| segments.life());
    world.terms = LeaseTerms::of_bucket(1, life).with_segments(segments);
    is_caught(world);
}

#[test]
fn segments_that_do_not_wait_for_those_before_let_too_much_pass() {
    is_caught(with(Fault::NotInLine, long()));
}

#[test]
fn segments_at_any_level_let_too_much_pass() {
    let mut world = short();
    let segments = SegmentTerms::by_hand(1, 1, 100, 2, 3);
    let terms = world.terms.in_lots_of(9, 1).with_segments(segments);
    // Those of the lender, which are others than hold together.
    world.ledger = Bucket::new(5, terms);
    is_caught(world);
}

#[test]
fn a_segment_that_lives_from_the_answer_on_lets_too_much_pass() {
    is_caught(with(Fault::DeadlineFromAnswer, segments(5, 2, 3)));
}

#[test]
fn a_segment_that_is_spent_after_its_end_lets_too_much_pass() {
    is_caught(with(Fault::SpentTooLate, segments(5, 2, 3)));
}

#[test]
fn a_refusal_that_forgives_what_is_owed_lets_too_much_pass() {
    is_caught(with(Fault::Forgiven, long()));
}
