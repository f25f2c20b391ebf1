//! Worlds in which each request acquires its slot from the store.

use crate::slots::{
    fault::Fault,
    system::{Budget, Extent, NEAREST, breaks, holds, steps},
    world::{ABOVE, ALONE, DENIED, LEAKED, MISSING, SlotWorld, UNKNOWN},
};

/// Two processes, one slot, and one request at a time in each.
fn one_slot() -> SlotWorld {
    SlotWorld {
        limit: 1,
        processes: 2,
        requests: 1,
        delay: 1,
        renewals: 1,
        strays: 1,
        unsent: false,
        budget: Budget::default(),
        follows: false,
        fault: None,
    }
}

/// One process with two requests at a time.
fn two_requests() -> SlotWorld {
    SlotWorld {
        limit: 2,
        processes: 1,
        requests: 2,
        follows: true,
        ..one_slot()
    }
}

/// One slot for two requests, whose replies are lost.
fn losing() -> SlotWorld {
    SlotWorld {
        limit: 1,
        delay: 0,
        renewals: 0,
        strays: 0,
        ..two_requests()
    }
}

/// One slot for some requests of one process, whose acquires may not be sent.
fn unsent(requests: u32) -> SlotWorld {
    SlotWorld {
        requests,
        renewals: 1,
        unsent: true,
        follows: false,
        ..losing()
    }
}

fn crashing(world: SlotWorld) -> SlotWorld {
    SlotWorld {
        budget: Budget {
            crashes: 1,
            ..world.budget
        },
        ..world
    }
}

fn with(fault: Fault, world: SlotWorld) -> SlotWorld {
    SlotWorld {
        fault: Some(fault),
        ..world
    }
}

#[test]
fn one_slot_is_used_once_and_never_lost() {
    holds(world("one_slot/in_order"), Extent::Whole);
}

#[test]
fn one_slot_is_used_once_and_never_lost_where_processes_crash() {
    holds(world("crashing/in_order"), NEAREST);
}

#[test]
fn two_requests_of_one_process_that_crashes_lose_no_slot_for_longer_than_a_term() {
    holds(world("two_requests_crashing/in_order"), NEAREST);
    let smaller = world("two_requests_crashing/in_order/undelayed/unrenewed");
    holds(smaller, Extent::Whole);
}

#[test]
fn more_slots_and_more_processes_are_used_once_and_never_lost() {
    for name in [
        "three_slots/unrenewed",
        "three_slots_of_two/undelayed/unrenewed",
        "three_processes/unrenewed",
        "two_of_two/undelayed/unrenewed",
    ] {
        eprintln!("{name}");
        holds(world(name), Extent::Whole);
    }
}

#[test]
fn a_slot_that_was_lost_does_not_hide_among_those_that_are_wanted() {
    holds(losing(), Extent::Whole);
}

#[test]
fn an_acquire_that_was_not_sent_hides_no_end_and_puts_no_renewal_off() {
    holds(unsent(3), Extent::Whole);
}

#[test]
fn a_store_that_forgets_lets_no_more_start_than_it_knows_of() {
    holds(
        SlotWorld {
            strays: 0,
            budget: Budget {
                resets: 1,
                ..Budget::default()
            },
            ..one_slot()
        },
        Extent::Whole,
    );
}

#[test]
fn a_clock_of_the_store_that_is_set_forward_lets_no_more_start_than_it_knows_of() {
    holds(
        SlotWorld {
            strays: 0,
            budget: Budget {
                forward: 1,
                ..Budget::default()
            },
            ..one_slot()
        },
        Extent::Whole,
    );
}

#[test]
fn a_clock_of_the_store_that_is_set_back_lets_no_more_start() {
    holds(
        SlotWorld {
            strays: 0,
            budget: Budget {
                back: 1,
                ..Budget::default()
            },
            ..one_slot()
        },
        Extent::Whole,
    );
}

/// The clock of the store gains a tick.
fn drifting() -> SlotWorld {
    SlotWorld {
        strays: 0,
        budget: Budget {
            drift: 1,
            ..Budget::default()
        },
        ..one_slot()
    }
}

#[test]
fn clocks_may_run_apart_by_the_margin() {
    holds(drifting(), Extent::Whole);
}

/// Worlds that are larger than the test command explores, by name.
fn larger_worlds() -> [(&'static str, SlotWorld); 10] {
    let three_slots = SlotWorld {
        limit: 3,
        strays: 0,
        ..one_slot()
    };
    let two_of_two = SlotWorld {
        limit: 2,
        requests: 2,
        strays: 0,
        ..one_slot()
    };
    [
        ("one_slot", one_slot()),
        ("crashing", crashing(one_slot())),
        ("two_requests", two_requests()),
        ("two_requests_crashing", crashing(two_requests())),
        (
            "three_processes",
            SlotWorld {
                processes: 3,
                strays: 0,
                ..one_slot()
            },
        ),
        (
            "three_slots",
            SlotWorld {
                processes: 1,
                requests: 3,
                follows: true,
                ..three_slots
            },
        ),
        (
            "three_slots_of_two",
            SlotWorld {
                requests: 2,
                ..three_slots
            },
        ),
        ("two_of_two", two_of_two),
        ("two_of_two_crashing", crashing(two_of_two)),
        ("unsent", unsent(4)),
    ]
}

/// A world by its name, such as `three_slots/undelayed`: behind the name is what there is less of.
fn world(name: &str) -> SlotWorld {
    let mut words = name.split('/');
    let named = words.next().unwrap_or_default();
    let found = larger_worlds().into_iter().find(|it| it.0 == named);
    let (_, mut world) = found.unwrap_or_else(|| panic!("{named} is none of them"));
    for word in words {
        match word {
            "in_order" => world.strays = 0,
            "undelayed" => world.delay = 0,
            "unrenewed" => world.renewals = 0,
            _ => panic!("{word} is none of them"),
        }
    }
    world
}

/// The test command sees their nearest states. `TOLLGATE_SLOT_WORLDS` names those that are explored to the end, or as many steps as
/// `TOLLGATE_SLOT_STEPS` says.
#[test]
fn larger_worlds_hold() {
    let Ok(names) = std::env::var("TOLLGATE_SLOT_WORLDS") else {
        for (name, world) in larger_worlds() {
            eprintln!("{name}");
            holds(world, NEAREST);
        }
        return;
    };
    let names: Vec<_> = names.split_whitespace().collect();
    assert!(!names.is_empty(), "TOLLGATE_SLOT_WORLDS names no world");
    for name in names {
        eprintln!("{name}");
        holds(world(name), steps().map_or(Extent::Whole, Extent::Nearest));
    }
}

#[test]
fn slots_without_owners_are_used_twice() {
    breaks(ABOVE, with(Fault::NoOwner, one_slot()));
}

#[test]
fn an_owner_with_the_same_id_after_a_restart_has_its_slots_used_twice() {
    breaks(
        ABOVE,
        with(
            Fault::OwnerOverRestarts,
            crashing(SlotWorld {
                strays: 0,
                ..one_slot()
            }),
        ),
    );
}

worlds! {
    acquires_without_numbers_have_slots_used_twice => breaks(ABOVE, with(Fault::AcquiresNotNumbered, one_slot()));
    renewals_without_numbers_have_slots_used_twice => breaks(ABOVE, with(Fault::RenewalsNotNumbered, one_slot()));
    relative_counts_leak => breaks(LEAKED, with(Fault::RelativeCounts, one_slot()));
    requests_that_are_counted_before_the_number_is_drawn_have_slots_used_twice => breaks(ABOVE, with(Fault::CountedBefore, one_slot()));
    one_owner_that_expires_at_a_time_denies_while_slots_are_free => breaks(DENIED, with(Fault::OneExpires, one_slot()));
    messages_that_always_extend_the_term_keep_what_is_lost => breaks(MISSING, with(Fault::AlwaysExtends, losing()));
    a_record_that_is_deleted_at_zero_leaks => breaks(LEAKED, with(Fault::DeletedAtZero, one_slot()));
    a_void_grant_that_starts_is_above_the_limit => breaks(ABOVE, with(Fault::VoidStarts, one_slot()));
    a_deadline_from_the_reply_starts_what_is_forgotten => breaks(UNKNOWN, with(Fault::DeadlineFromReply, one_slot()));
    without_a_margin_a_request_starts_on_what_is_forgotten => breaks(UNKNOWN, with(Fault::NoMargin, drifting()));
}

#[test]
fn the_clock_of_a_process_has_slots_used_twice() {
    let in_order = world("one_slot/in_order");
    breaks(ABOVE, with(Fault::LocalClock, in_order));
}

#[test]
fn a_key_that_is_forgotten_before_the_store_has_replied_leaks() {
    breaks(LEAKED, with(Fault::LeavesEarly, one_slot()));
}

#[test]
fn outlived_requests_that_are_not_counted_again_leave_too_much_running() {
    let more = SlotWorld {
        limit: 1,
        ..two_requests()
    };
    breaks(ALONE, with(Fault::NeverRevived, more));
}

#[test]
fn an_end_that_counts_twice_is_above_the_limit() {
    breaks(
        ALONE,
        with(
            Fault::DoubleRelease,
            SlotWorld {
                requests: 3,
                delay: 0,
                strays: 0,
                ..two_requests()
            },
        ),
    );
}
