//! The metrics: their names, what they are, and handles of those that are touched often. Others are looked up: servers come and go.

use metrics::{Counter, Histogram, counter, gauge, histogram};

use crate::connection::options::NodeEvent;

tollgate_core::metric_names! {
    seconds CALL_DURATION "tollgate_redis_call_duration_seconds"
        "How long requests and settlements have waited for Redis, by outcome"
    seconds ROUND_TRIP "tollgate_redis_round_trip_duration_seconds"
        "From a command that is sent to its answer: the network and Redis, without the wait before"
    seconds QUEUE "tollgate_redis_queue_duration_seconds"
        "How long the first call of each command has waited to be sent"
    counter CALLS "tollgate_redis_calls_total"
        "Calls to Redis, by purpose; calls of the same moment are sent as one command"
    counter RESENT "tollgate_redis_resent_total"
        "Calls that had not run and were sent once more, by why"
    counter ERRORS "tollgate_redis_errors_total"
        "Requests that Redis has not decided and settlements that it has not made, by error; those with `unknown` may have been counted"
    counter CALLS_SAVED "tollgate_redis_calls_saved_total"
        "Requests that this process has decided without a call"
    counter SETTLEMENTS_LOST "tollgate_redis_settlements_lost_total"
        "Settlements that Redis certainly has not carried out: units stay as they were taken"

    gauge CONNECTED "tollgate_redis_connected"
        "Whether there is a connection: 1 or 0"
    counter LOST "tollgate_redis_connections_lost_total"
        "Connections that were lost"
    counter CONNECT_FAILURES "tollgate_redis_connect_failures_total"
        "Attempts to connect that failed, by the step that did"
    counter LOG_INS_ANEW "tollgate_redis_log_ins_anew_total"
        "Log-ins on open connections, before credentials expire, by outcome"
    gauge BREAKER_SHARE "tollgate_redis_breaker_share"
        "The share of requests that the breaker lets through to Redis, 0 to 1"

    gauge INSTANCES "tollgate_redis_instances"
        "Instances that share the store; while Redis fails, each counts against its share of the quota"
    gauge QUOTA_CONFLICTS "tollgate_redis_quota_conflicts"
        "Other quotas that instances of the namespace have for the rule; 0 but for the time of a deployment"
    gauge KEY_CONFLICTS "tollgate_redis_key_conflicts"
        "Other ways in which instances of the namespace write keys, by another secret or partition: each client has a budget more"
    gauge NAMESPACE_KEYS "tollgate_redis_namespace_keys"
        "Keys of the namespace in Redis, on all servers"
    bytes NAMESPACE_BYTES "tollgate_redis_namespace_bytes"
        "Memory that the keys of the namespace take in Redis, by a sample of one key in ten"
    gauge MEMORY_USED "tollgate_redis_memory_used_ratio"
        "The share of its maxmemory that Redis uses, for all its data; in a cluster, that of the fullest server"

    counter NEW_KEYS "tollgate_redis_new_keys_total"
        "Keys that were created: checks and reports that found no usage"
    counter NEW_KEYS_REFUSED "tollgate_redis_new_keys_refused_total"
        "Checks of clients beyond the cap on new keys, which share one bucket"

    gauge ON_LEASE "tollgate_redis_units_on_lease"
        "Units that this process holds in leases and may admit without a call"
    gauge UNREPORTED "tollgate_redis_units_unreported"
        "Units that this process has admitted and not reported to Redis yet"
    gauge LEASED_KEYS "tollgate_redis_leased_keys"
        "Keys for which this process holds a lease or a scheduled lease, by kind"
    gauge TABLE_KEYS "tollgate_redis_table_keys"
        "Keys with an entry in the table of this process"
    bytes TABLE_BYTES "tollgate_redis_table_bytes"
        "Memory of the table of keys of this process"
    counter LEASES "tollgate_redis_leases_total"
        "Leases of units, by outcome"
    counter REPORTS "tollgate_redis_reports_total"
        "Reports of locally counted units, by outcome"
    counter LOST_UNITS "tollgate_redis_reports_lost_units_total"
        "Units in reports without a reply: Redis may or may not have counted them"
    counter SLOTS "tollgate_redis_slots_total"
        "Keys whose slots were reported to Redis without a request; grants that came too late to be used; requests that ran on \
         after Redis had forgotten their slots"
    gauge SLOTS_IN_USE "tollgate_redis_slots_in_use"
        "Slots of requests that run in this process"
}

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
    pub(super) errors: [Counter; 8],
    pub(super) settlements_lost: Counter,
    pub(super) calls_saved: Counter,
    /// Those of the engine.
    pub(super) events: [Counter; 11],
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
            "protocol",
        ];
        let events = [
            (LEASES, "requested"),
            (LEASES, "granted"),
            (LEASES, "returned"),
            (LEASES, "lost"),
            (REPORTS, "sent"),
            (REPORTS, "kept"),
            (REPORTS, "lost"),
            (LOST_UNITS, ""),
            (SLOTS, "reported"),
            (SLOTS, "voided"),
            (SLOTS, "outlived"),
        ];
        Self {
            answered: histogram!(CALL_DURATION, "outcome" => "answered"),
            failed: histogram!(CALL_DURATION, "outcome" => "failed"),
            round_trip: histogram!(ROUND_TRIP),
            queue: histogram!(QUEUE),
            calls: calls.map(|call| counter!(CALLS, "for" => call)),
            resent: ["noscript", "alone", "moved", "ask"].map(|why| counter!(RESENT, "why" => why)),
            errors: errors.map(|error| counter!(ERRORS, "error" => error)),
            settlements_lost: counter!(SETTLEMENTS_LOST),
            calls_saved: counter!(CALLS_SAVED),
            events: events.map(|(name, what)| match what {
                "" => counter!(name),
                what => counter!(name, "what" => what),
            }),
        }
    }
}

/// What has failed on the way to a connection, in the order of its variants.
const CONNECT_ERRORS: [&str; 9] = [
    "dns",
    "tcp",
    "tls",
    "login",
    "credentials",
    "timeout",
    "not_master",
    "unresolved",
    "server",
];

/// Counts what happened to the connection to a server.
pub(super) fn count_node(node: &str, event: &NodeEvent) {
    describe();
    let connected = |is: f64| gauge!(CONNECTED, "node" => node.to_owned()).set(is);
    let share = |share: f64| gauge!(BREAKER_SHARE, "node" => node.to_owned()).set(share);
    let logged_in_anew = |what: &'static str| {
        counter!(LOG_INS_ANEW, "node" => node.to_owned(), "what" => what).increment(1);
    };
    match event {
        NodeEvent::Connected(_) => connected(1.0),
        NodeEvent::NotConnected(kind, _) => {
            connected(0.0);
            let (node, kind) = (node.to_owned(), CONNECT_ERRORS[*kind as usize]);
            counter!(CONNECT_FAILURES, "node" => node, "kind" => kind).increment(1);
        }
        NodeEvent::Lost { .. } => {
            connected(0.0);
            counter!(LOST, "node" => node.to_owned()).increment(1);
        }
        NodeEvent::LoggedInAnew => logged_in_anew("ok"),
        NodeEvent::NotLoggedInAnew(_) => logged_in_anew("failed"),
        NodeEvent::Breaker(to) => share(f64::from(to.share()) / 100.0),
        // A gauge cannot be taken back, and nobody is to be alarmed.
        NodeEvent::Left => {
            connected(f64::NAN);
            share(f64::NAN);
        }
        _ => {}
    }
}
