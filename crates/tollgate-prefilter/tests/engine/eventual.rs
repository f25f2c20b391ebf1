//! Worlds around a window that each process counts locally.

use std::time::Duration;

use tollgate_core::{Consistency, MINUTE, Quota};

use crate::{
    run::explore,
    world::{Kind, LENGTH, Other, World},
};

/// A window of twenty units, three of which may be unreported.
fn window(kinds: &'static [Kind]) -> World {
    World {
        consistency: Consistency::Eventual {
            interval: Duration::from_millis(100),
            max_unreported: 3,
        },
        requests: 3,
        ..World::leased(Quota::fixed_window(20, MINUTE), kinds)
    }
}

const FAULTS: &[Kind] = &[
    Kind::GiveUp,
    Kind::Drop,
    Kind::NotRun,
    Kind::Abandon,
    Kind::Maintain,
    Kind::Pass(2_500_000),
];

#[test]
fn no_unit_counts_twice_or_is_forgotten_whatever_becomes_of_reports() {
    explore(&World {
        requests: 2,
        ..window(FAULTS)
    });
    explore(&World {
        requests: 1,
        extras: 4,
        costs: &[4],
        ..window(&[
            Kind::GiveUp,
            Kind::NotRun,
            Kind::Maintain,
            Kind::Pass(2_500_000),
        ])
    });
}

#[test]
fn no_unit_counts_twice_or_is_forgotten_while_tickets_race_with_reports() {
    let kinds = &[
        Kind::Cancel,
        Kind::Charge,
        Kind::Maintain,
        Kind::NotRun,
        Kind::Pass(2_500_000),
    ];
    explore(&World {
        costs: &[1],
        extras: 3,
        requests: 2,
        ..window(kinds)
    });
    explore(&World {
        requests: 2,
        ..window(kinds)
    });
}

#[test]
fn no_unit_counts_twice_or_is_forgotten_when_another_rule_denies() {
    let kinds = &[
        Kind::GiveUp,
        Kind::NotRun,
        Kind::Abandon,
        Kind::Cancel,
        Kind::Maintain,
        Kind::Pass(2_500_000),
    ];
    explore(&World {
        other: Other::Together,
        requests: 2,
        extras: 1,
        ..window(kinds)
    });
    for other in [Other::Before, Other::After] {
        explore(&World {
            other,
            requests: 1,
            ..window(kinds)
        });
    }
}

#[test]
fn two_processes_admit_no_more_than_the_limit_and_what_both_may_keep_back() {
    let kinds = &[
        Kind::GiveUp,
        Kind::Cancel,
        Kind::Maintain,
        Kind::Pass(2_500_000),
    ];
    for costs in [&[1], &[4]] {
        explore(&World {
            processes: 2,
            requests: 2,
            extras: 1,
            costs,
            ..window(kinds)
        });
    }
    explore(&World {
        processes: 2,
        requests: 1,
        extras: 2,
        costs: &[4],
        ..window(kinds)
    });
}

#[test]
fn windows_that_end_while_reports_are_on_their_way_count_nothing_twice() {
    let kinds = &[
        Kind::GiveUp,
        Kind::NotRun,
        Kind::Cancel,
        Kind::Maintain,
        Kind::Pass(LENGTH),
    ];
    explore(&World {
        requests: 2,
        ..window(kinds)
    });
}

#[test]
fn a_rule_set_that_is_replaced_or_removed_leaves_nothing_unreported() {
    let kinds = &[
        Kind::Replace,
        Kind::Remove,
        Kind::GiveUp,
        Kind::NotRun,
        Kind::Cancel,
    ];
    explore(&World {
        requests: 2,
        ..window(kinds)
    });
}

#[test]
fn no_more_passes_after_a_reset_than_comes_back() {
    let kinds = &[
        Kind::Reset,
        Kind::GiveUp,
        Kind::NotRun,
        Kind::Cancel,
        Kind::Maintain,
    ];
    explore(&World {
        requests: 1,
        ..window(kinds)
    });
}
