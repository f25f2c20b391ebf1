//! Worlds around a window that is leased.

use tollgate_core::{MINUTE, Quota};

use crate::{
    run::explore,
    world::{Kind, LENGTH, Other, World},
};

fn explore_both(world: impl Fn(Quota) -> World) {
    explore(&world(Quota::fixed_window(20, MINUTE)));
    explore(&world(Quota::sliding_window(20, MINUTE)));
}

/// What may become of a query.
const FAULTS: &[Kind] = &[Kind::GiveUp, Kind::Drop, Kind::NotRun, Kind::Abandon];

#[test]
fn no_unit_is_lost_but_with_a_reply_whatever_becomes_of_queries() {
    explore_both(|quota| World::leased(quota, FAULTS));
    explore(&World {
        requests: 3,
        costs: &[4],
        extras: 1,
        ..World::leased(Quota::fixed_window(20, MINUTE), FAULTS)
    });
}

#[test]
fn no_unit_is_lost_while_tickets_are_settled_leases_go_back_and_windows_end() {
    explore_both(|quota| {
        let kinds = &[
            Kind::Cancel,
            Kind::Charge,
            Kind::Maintain,
            Kind::Pass(2_500_000),
            Kind::Pass(LENGTH),
        ];
        World::leased(quota, kinds)
    });
    let kinds = &[Kind::Cancel, Kind::Maintain, Kind::Pass(LENGTH)];
    explore(&World {
        costs: &[4],
        extras: 3,
        ..World::leased(Quota::fixed_window(20, MINUTE), kinds)
    });
}

/// Of the window before nothing comes back with a query that certainly did not run, if a lease has taken its place by then.
#[test]
fn no_unit_is_lost_when_a_window_ends_while_a_query_is_lost() {
    let kinds = &[
        Kind::GiveUp,
        Kind::Abandon,
        Kind::Cancel,
        Kind::Pass(LENGTH),
    ];
    explore_both(|quota| World {
        costs: &[4],
        ..World::leased(quota, kinds)
    });
    let kinds = &[Kind::NotRun, Kind::Abandon, Kind::Pass(LENGTH)];
    explore(&World {
        extras: 3,
        costs: &[4],
        ..World::leased(Quota::fixed_window(20, MINUTE), kinds)
    });
}

const WITH_ANOTHER_RULE: &[Kind] = &[
    Kind::GiveUp,
    Kind::NotRun,
    Kind::Abandon,
    Kind::Cancel,
    Kind::Pass(2_500_000),
];

#[test]
fn no_unit_is_lost_when_another_rule_denies() {
    explore(&World {
        other: Other::Together,
        ..World::leased(Quota::fixed_window(20, MINUTE), WITH_ANOTHER_RULE)
    });
    explore_both(|quota| World {
        other: Other::Together,
        requests: 1,
        extras: 3,
        ..World::leased(quota, WITH_ANOTHER_RULE)
    });
}

#[test]
fn no_unit_is_lost_when_another_rule_denies_whose_state_lies_elsewhere() {
    let fixed = Quota::fixed_window(20, MINUTE);
    for other in [Other::Before, Other::After, Other::TogetherAfterAThird] {
        explore_both(|quota| World {
            other,
            requests: 1,
            ..World::leased(quota, WITH_ANOTHER_RULE)
        });
        if other == Other::TogetherAfterAThird {
            continue;
        }
        explore(&World {
            other,
            // The second does not fit.
            costs: &[9],
            extras: 1,
            ..World::leased(fixed, WITH_ANOTHER_RULE)
        });
    }
}

#[test]
fn two_processes_lose_nothing_and_admit_no_more_than_the_limit() {
    let kinds = &[
        Kind::GiveUp,
        Kind::Cancel,
        Kind::Maintain,
        Kind::Pass(2_500_000),
    ];
    explore_both(|quota| World {
        processes: 2,
        costs: &[4],
        ..World::leased(quota, kinds)
    });
}

#[test]
fn a_rule_set_that_is_replaced_or_removed_leaves_nothing_behind() {
    let kinds = &[
        Kind::Replace,
        Kind::Remove,
        Kind::GiveUp,
        Kind::NotRun,
        Kind::Abandon,
        Kind::Cancel,
    ];
    explore_both(|quota| World::leased(quota, kinds));
}

#[test]
fn no_more_passes_after_a_reset_than_comes_back() {
    let kinds = &[
        Kind::Reset,
        Kind::GiveUp,
        Kind::NotRun,
        Kind::Abandon,
        Kind::Cancel,
    ];
    explore_both(|quota| World {
        requests: 1,
        ..World::leased(quota, kinds)
    });
    explore(&World {
        costs: &[4],
        extras: 1,
        ..World::leased(Quota::fixed_window(20, MINUTE), kinds)
    });
    // A lease of another process is not forgotten with what was used.
    explore(&World {
        processes: 2,
        requests: 1,
        ..World::leased(Quota::fixed_window(20, MINUTE), kinds)
    });
}
