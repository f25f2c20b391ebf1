//! Worlds around a bucket that is leased.

use tollgate_core::{MINUTE, Quota};

use crate::{
    run::explore,
    world::{Kind, Other, World},
};

/// A bucket of twenty units, half of which may be on lease. A unit comes back in three seconds.
fn bucket(kinds: &'static [Kind]) -> World {
    World::leased(Quota::gcra(20, MINUTE), kinds)
}

const FAULTS: &[Kind] = &[
    Kind::GiveUp,
    Kind::Drop,
    Kind::NotRun,
    Kind::Abandon,
    Kind::Cancel,
    Kind::Pass(6_000_000),
];

#[test]
fn no_more_is_admitted_than_a_bucket_has_whatever_becomes_of_queries() {
    explore(&bucket(FAULTS));
}

#[test]
fn no_more_is_admitted_while_tickets_are_settled_and_leases_run_out() {
    let kinds = &[
        Kind::Cancel,
        Kind::Charge,
        Kind::Maintain,
        Kind::Pass(11_000_000),
    ];
    explore(&World {
        costs: &[4],
        extras: 3,
        ..bucket(kinds)
    });
}

#[test]
fn no_more_is_admitted_when_another_rule_denies() {
    explore(&World {
        other: Other::Together,
        requests: 1,
        extras: 3,
        ..bucket(FAULTS)
    });
    explore(&World {
        other: Other::After,
        requests: 1,
        ..bucket(FAULTS)
    });
}

#[test]
fn two_processes_admit_no_more_than_a_bucket_has() {
    let kinds = &[Kind::GiveUp, Kind::Cancel, Kind::Pass(6_000_000)];
    explore(&World {
        processes: 2,
        costs: &[4],
        ..bucket(kinds)
    });
}

#[test]
fn a_rule_set_that_is_replaced_or_removed_leaves_nothing_behind() {
    let kinds = &[
        Kind::Replace,
        Kind::Remove,
        Kind::NotRun,
        Kind::Abandon,
        Kind::Cancel,
    ];
    explore(&bucket(kinds));
}
