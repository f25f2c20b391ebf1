//! Handles of the metrics that are touched often. Others are looked up: servers come and go.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::{
    connection::event::NodeEvent,
    observe::names::{
        BREAKER_SHARE, CALL_DURATION, CALLS, CALLS_SAVED, CONNECT_FAILURES, CONNECTED, ERRORS,
        LEASED_KEYS, LEASES, LOG_INS_ANEW, LOST, LOST_UNITS, ON_LEASE, QUEUE, REPORTS, RESENT,
        ROUND_TRIP, SETTLEMENTS_LOST, SLOTS, SLOTS_IN_USE, TABLE_BYTES, TABLE_KEYS, UNREPORTED,
        describe,
    },
};

/// Made at the first event: a handle from before the application installs its recorder would never count.
///
/// Those of an enum are in the order of its variants.
#[derive(Debug)]
pub(super) struct Handles {
    pub(super) answered: Histogram,
    pub(super) failed: Histogram,
    pub(super) round_trip: Histogram,
    pub(super) queue: Histogram,
    pub(super) calls: [Counter; 6],
    pub(super) resent: [Counter; 4],
    pub(super) errors: [Counter; 7],
    /// Replies that are none of the script's.
    pub(super) protocol: Counter,
    pub(super) settlements_lost: Counter,
    pub(super) calls_saved: Counter,
    pub(super) on_lease: Gauge,
    pub(super) unreported: Gauge,
    /// The keys of leases, and of scheduled ones.
    pub(super) leased_keys: [Gauge; 2],
    /// Of what is kept of keys, and of slots.
    pub(super) table_keys: [Gauge; 2],
    pub(super) table_bytes: [Gauge; 2],
    pub(super) leases: [Counter; 4],
    pub(super) reports: [Counter; 3],
    pub(super) lost_units: Counter,
    pub(super) slots: [Counter; 3],
    pub(super) slots_in_use: Gauge,
}

impl Handles {
    pub(super) fn new() -> Self {
        describe();
        let calls = [
            "requests",
            "settlements",
            "reports",
            "leases",
            "resets",
            "slots",
        ];
        let errors = [
            "unavailable",
            "overloaded",
            "expired",
            "unknown",
            "not_writable",
            "try_again",
            "misconfigured",
        ];
        let what = |name: &'static str, what: &'static str| counter!(name, "what" => what);
        Self {
            answered: histogram!(CALL_DURATION, "outcome" => "answered"),
            failed: histogram!(CALL_DURATION, "outcome" => "failed"),
            round_trip: histogram!(ROUND_TRIP),
            queue: histogram!(QUEUE),
            calls: calls.map(|call| counter!(CALLS, "for" => call)),
            resent: ["noscript", "alone", "moved", "ask"].map(|why| counter!(RESENT, "why" => why)),
            errors: errors.map(|error| counter!(ERRORS, "error" => error)),
            protocol: counter!(ERRORS, "error" => "protocol"),
            settlements_lost: counter!(SETTLEMENTS_LOST),
            calls_saved: counter!(CALLS_SAVED),
            on_lease: gauge!(ON_LEASE),
            unreported: gauge!(UNREPORTED),
            leased_keys: ["lease", "scheduled"].map(|kind| gauge!(LEASED_KEYS, "kind" => kind)),
            table_keys: ["keys", "slots"].map(|table| gauge!(TABLE_KEYS, "table" => table)),
            table_bytes: ["keys", "slots"].map(|table| gauge!(TABLE_BYTES, "table" => table)),
            leases: ["requested", "granted", "returned", "lost"].map(|it| what(LEASES, it)),
            reports: ["sent", "kept", "lost"].map(|it| what(REPORTS, it)),
            lost_units: counter!(LOST_UNITS),
            slots: ["reported", "voided", "outlived"].map(|it| what(SLOTS, it)),
            slots_in_use: gauge!(SLOTS_IN_USE),
        }
    }
}

/// Counts what happened to the connection to a server.
pub(super) fn count_node(node: &str, event: &NodeEvent) {
    let connected = |is: f64| gauge!(CONNECTED, "node" => node.to_owned()).set(is);
    let logged_in_anew = |what: &'static str| {
        counter!(LOG_INS_ANEW, "node" => node.to_owned(), "what" => what).increment(1);
    };
    match event {
        NodeEvent::Connected(_) => connected(1.0),
        NodeEvent::NotConnected(kind, _) => {
            connected(0.0);
            let (node, kind) = (node.to_owned(), kind.label());
            counter!(CONNECT_FAILURES, "node" => node, "kind" => kind).increment(1);
        }
        NodeEvent::Lost { .. } => {
            connected(0.0);
            counter!(LOST, "node" => node.to_owned()).increment(1);
        }
        NodeEvent::LoggedInAnew => logged_in_anew("ok"),
        NodeEvent::NotLoggedInAnew(_) => logged_in_anew("failed"),
        NodeEvent::Breaker(to) => {
            gauge!(BREAKER_SHARE, "node" => node.to_owned()).set(f64::from(to.share()) / 100.0);
        }
        NodeEvent::Left | NodeEvent::NotLearnt(_) => {}
    }
}
