//! Worlds in which processes lease slots and hand them out themselves.

use crate::slots::{
    explore::{Extent, NEAREST, breaks, holds},
    fault::Fault,
    system::Budget,
    world::{ABOVE, LEAKED, SlotWorld, UNKNOWN},
};

/// Two processes and two slots.
fn leased() -> SlotWorld {
    SlotWorld {
        limit: 2,
        processes: 2,
        requests: 2,
        is_leased: true,
        delay: 1,
        renewals: 1,
        strays: 0,
        unsent: false,
        budget: Budget::default(),
        follows: false,
        fault: None,
    }
}

/// One slot, and messages that arrive late.
fn straying() -> SlotWorld {
    SlotWorld {
        limit: 1,
        requests: 1,
        strays: 1,
        ..leased()
    }
}

fn with(fault: Fault, world: SlotWorld) -> SlotWorld {
    SlotWorld {
        fault: Some(fault),
        ..world
    }
}

#[test]
fn leased_slots_are_used_once_and_never_lost() {
    holds(leased(), NEAREST);
}

#[test]
fn leased_slots_are_used_once_where_messages_are_late_and_processes_crash() {
    holds(
        SlotWorld {
            budget: Budget {
                crashes: 1,
                ..Budget::default()
            },
            ..straying()
        },
        NEAREST,
    );
}

#[test]
fn a_message_about_a_lease_that_was_not_sent_hides_no_end() {
    holds(
        SlotWorld {
            limit: 1,
            requests: 1,
            delay: 0,
            unsent: true,
            ..leased()
        },
        Extent::Whole,
    );
}

#[test]
fn leased_slots_that_the_store_has_forgotten_are_not_used_above_what_it_knows() {
    holds(
        SlotWorld {
            limit: 1,
            requests: 1,
            budget: Budget {
                resets: 1,
                ..Budget::default()
            },
            ..leased()
        },
        Extent::Whole,
    );
}

#[test]
fn a_leased_slot_that_is_used_until_its_return_is_answered_is_used_twice() {
    breaks(ABOVE, with(Fault::LoweredLate, straying()));
}

#[test]
fn a_lease_that_ignores_what_the_store_counts_is_used_twice() {
    breaks(ABOVE, with(Fault::CountIgnored, straying()));
}

#[test]
fn a_lease_that_keeps_what_is_above_the_limit_is_used_twice() {
    let in_order = SlotWorld {
        strays: 0,
        ..straying()
    };
    breaks(ABOVE, with(Fault::OverIgnored, in_order));
}

#[test]
fn a_lease_that_is_used_after_its_end_is_used_when_it_is_forgotten() {
    breaks(UNKNOWN, with(Fault::UsedTooLate, straying()));
}

#[test]
fn a_lease_with_a_deadline_from_the_reply_is_used_when_it_is_forgotten() {
    breaks(UNKNOWN, with(Fault::DeadlineFromReply, straying()));
}

#[test]
fn messages_about_leases_without_numbers_leak() {
    breaks(LEAKED, with(Fault::RenewalsNotNumbered, straying()));
}
