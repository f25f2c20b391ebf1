//! Counters, gauges and a histogram through the `metrics` facade.
//!
//! Handles are created at the first event: a handle from before the application installs its recorder would never count.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use tollgate_prefilter::{EngineUsage, LeaseEvent, ReportEvent, TableUsage};

use crate::{
    connection::{
        connect_error::ConnectErrorKind,
        error::{CallError, CallErrorKind},
        event::NodeEvent,
    },
    observe::{
        calls::{CallFor, Stopwatch},
        rule_counts,
    },
};

const CALL_DURATION: &str = "tollgate_redis_call_duration_seconds";
const ERRORS: &str = "tollgate_redis_errors_total";
const SETTLEMENTS_LOST: &str = "tollgate_redis_settlements_lost_total";
const CONNECTED: &str = "tollgate_redis_connected";
const LOST: &str = "tollgate_redis_connections_lost_total";
const CONNECT_FAILURES: &str = "tollgate_redis_connect_failures_total";
const LOG_INS_ANEW: &str = "tollgate_redis_log_ins_anew_total";
const BREAKER_SHARE: &str = "tollgate_redis_breaker_share";
const INSTANCES: &str = "tollgate_redis_instances";
const QUOTA_CONFLICTS: &str = "tollgate_redis_quota_conflicts";
const KEY_CONFLICTS: &str = "tollgate_redis_key_conflicts";
const ON_LEASE: &str = "tollgate_redis_units_on_lease";
const UNREPORTED: &str = "tollgate_redis_units_unreported";
const LEASED_KEYS: &str = "tollgate_redis_leased_keys";
const TABLE_KEYS: &str = "tollgate_redis_table_keys";
const TABLE_BYTES: &str = "tollgate_redis_table_bytes";
const CALLS_SAVED: &str = "tollgate_redis_calls_saved_total";
const NAMESPACE_KEYS: &str = "tollgate_redis_namespace_keys";
const NAMESPACE_BYTES: &str = "tollgate_redis_namespace_bytes";
const MEMORY_USED: &str = "tollgate_redis_memory_used_ratio";
const CALLS: &str = "tollgate_redis_calls_total";
const LEASES: &str = "tollgate_redis_leases_total";
const REPORTS: &str = "tollgate_redis_reports_total";
const SLOTS: &str = "tollgate_redis_slots_total";
const SLOTS_IN_USE: &str = "tollgate_redis_slots_in_use";
const LOST_UNITS: &str = "tollgate_redis_reports_lost_units_total";

#[derive(Debug, Default)]
pub(super) struct Meters {
    handles: OnceLock<Handles>,
}

struct Handles {
    answered: Histogram,
    failed: Histogram,
    unavailable: Counter,
    overloaded: Counter,
    expired: Counter,
    not_writable: Counter,
    unknown: Counter,
    try_again: Counter,
    misconfigured: Counter,
    protocol: Counter,
    settlements_lost: Counter,
    instances: Gauge,
    key_conflicts: Gauge,
    on_lease: Gauge,
    unreported: Gauge,
    leased_keys: Gauge,
    scheduled_keys: Gauge,
    /// The keys of leases, of local usage, and of slots.
    table_keys: [Gauge; 3],
    /// The same, and the deny cache.
    table_bytes: [Gauge; 4],
    calls_saved: Counter,
    lost: Counter,
    calls: [Counter; 6],
    leases: [Counter; 4],
    reports: [Counter; 3],
    slots: [Counter; 3],
    slots_in_use: Gauge,
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}

impl Handles {
    fn new() -> Self {
        describe();
        rule_counts::describe();
        let errors = |error: &'static str| counter!(ERRORS, "error" => error);
        Self {
            answered: histogram!(CALL_DURATION, "outcome" => "answered"),
            failed: histogram!(CALL_DURATION, "outcome" => "failed"),
            unavailable: errors("unavailable"),
            overloaded: errors("overloaded"),
            expired: errors("expired"),
            not_writable: errors("not_writable"),
            unknown: errors("unknown"),
            try_again: errors("try_again"),
            misconfigured: errors("misconfigured"),
            protocol: errors("protocol"),
            settlements_lost: counter!(SETTLEMENTS_LOST),
            instances: gauge!(INSTANCES),
            key_conflicts: gauge!(KEY_CONFLICTS),
            on_lease: gauge!(ON_LEASE),
            unreported: gauge!(UNREPORTED),
            leased_keys: gauge!(LEASED_KEYS, "kind" => "lease"),
            scheduled_keys: gauge!(LEASED_KEYS, "kind" => "scheduled"),
            table_keys: ["leases", "reports", "slots"]
                .map(|table| gauge!(TABLE_KEYS, "table" => table)),
            table_bytes: ["leases", "reports", "slots", "deny_cache"]
                .map(|table| gauge!(TABLE_BYTES, "table" => table)),
            calls_saved: counter!(CALLS_SAVED),
            lost: counter!(LOST_UNITS),
            // In the order of the variants.
            calls: [
                "requests",
                "settlements",
                "reports",
                "leases",
                "resets",
                "slots",
            ]
            .map(|what| counter!(CALLS, "for" => what)),
            leases: ["requested", "granted", "returned", "lost"]
                .map(|what| counter!(LEASES, "what" => what)),
            reports: ["sent", "kept", "lost"].map(|what| counter!(REPORTS, "what" => what)),
            slots: ["reported", "voided", "outlived"].map(|what| counter!(SLOTS, "what" => what)),
            slots_in_use: gauge!(SLOTS_IN_USE),
        }
    }
}

fn describe() {
    metrics::describe_histogram!(
        CALL_DURATION,
        Unit::Seconds,
        "How long requests have waited for Redis, by outcome"
    );
    metrics::describe_counter!(
        ERRORS,
        "Requests that Redis has not decided, by error; those with `unknown` may have been counted"
    );
    metrics::describe_counter!(
        SETTLEMENTS_LOST,
        "Settlements that could not be sent: units stay as they were taken"
    );
    metrics::describe_counter!(
        SLOTS,
        "Keys whose slots were reported to Redis without a request; grants that came too late to be used; requests that ran on \
         after Redis had forgotten their slots"
    );
    metrics::describe_gauge!(SLOTS_IN_USE, "Slots of requests that run in this process");
    metrics::describe_gauge!(CONNECTED, "Whether there is a connection: 1 or 0");
    metrics::describe_counter!(LOST, "Connections that were lost");
    metrics::describe_counter!(
        CONNECT_FAILURES,
        "Attempts to connect that failed, by the step that did"
    );
    metrics::describe_counter!(
        LOG_INS_ANEW,
        "Log-ins on open connections, before credentials expire, by outcome"
    );
    metrics::describe_gauge!(
        BREAKER_SHARE,
        "The share of requests that the breaker lets through to Redis, 0 to 1"
    );
    metrics::describe_gauge!(
        INSTANCES,
        "Instances that share the store; while Redis fails, each counts against its share of the quota"
    );
    metrics::describe_gauge!(
        QUOTA_CONFLICTS,
        "Other quotas that instances of the namespace have for the rule; 0 but for the time of a deployment"
    );
    metrics::describe_gauge!(
        KEY_CONFLICTS,
        "Other ways in which instances of the namespace write keys, by another secret or partition: each client has a budget more"
    );
    metrics::describe_gauge!(
        ON_LEASE,
        "Units that this process holds in leases and may admit without a call"
    );
    metrics::describe_gauge!(
        UNREPORTED,
        "Units that this process has admitted and not reported to Redis yet"
    );
    metrics::describe_gauge!(
        LEASED_KEYS,
        "Keys for which this process holds a lease or a scheduled lease, by kind"
    );
    metrics::describe_gauge!(TABLE_KEYS, "Keys with an entry in this process, by table");
    metrics::describe_gauge!(
        TABLE_BYTES,
        Unit::Bytes,
        "Memory of the tables of this process, by table"
    );
    metrics::describe_counter!(
        CALLS_SAVED,
        "Requests that this process has decided without a call"
    );
    metrics::describe_gauge!(
        NAMESPACE_KEYS,
        "Keys of the namespace in Redis, on all servers"
    );
    metrics::describe_gauge!(
        NAMESPACE_BYTES,
        Unit::Bytes,
        "Memory that the keys of the namespace take in Redis, by a sample of one key in ten"
    );
    metrics::describe_gauge!(
        MEMORY_USED,
        "The share of its maxmemory that Redis uses, for all its data; in a cluster, that of the fullest server"
    );
    metrics::describe_counter!(
        CALLS,
        "Calls to Redis, by purpose; calls of the same moment are sent as one command"
    );
    metrics::describe_counter!(LEASES, "Leases of units, by outcome");
    metrics::describe_counter!(REPORTS, "Reports of locally counted units, by outcome");
    metrics::describe_counter!(
        LOST_UNITS,
        "Units in reports without a reply: Redis may or may not have counted them"
    );
}

impl Meters {
    fn handles(&self) -> &Handles {
        self.handles.get_or_init(Handles::new)
    }

    pub(super) fn called(&self, stopwatch: Stopwatch, error: Option<&CallError>) {
        let handles = self.handles();
        let Some(error) = error else {
            return handles.answered.record(stopwatch.elapsed());
        };
        handles.failed.record(stopwatch.elapsed());
        match error.kind() {
            CallErrorKind::Unavailable => &handles.unavailable,
            CallErrorKind::Overloaded => &handles.overloaded,
            CallErrorKind::Expired => &handles.expired,
            CallErrorKind::NotWritable => &handles.not_writable,
            CallErrorKind::Unknown => &handles.unknown,
            CallErrorKind::TryAgain => &handles.try_again,
            CallErrorKind::Misconfigured => &handles.misconfigured,
        }
        .increment(1);
    }

    pub(super) fn misunderstood(&self) {
        self.handles().protocol.increment(1);
    }

    pub(super) fn settlement_lost(&self) {
        self.handles().settlements_lost.increment(1);
    }

    /// What became of slots since the last call, and how many are in use.
    pub(super) fn slots(&self, [reported, voided, outlived]: [u64; 3], in_use: u64) {
        let handles = self.handles();
        for (counter, count) in handles.slots.iter().zip([reported, voided, outlived]) {
            counter.increment(count);
        }
        handles.slots_in_use.set(in_use as f64);
    }

    pub(super) fn slot_table(&self, usage: TableUsage) {
        let handles = self.handles();
        handles.table_keys[2].set(usage.keys as f64);
        handles.table_bytes[2].set(usage.bytes as f64);
    }

    pub(super) fn usage(&self, usage: &EngineUsage) {
        let handles = self.handles();
        let numbers = [
            (&handles.on_lease, usage.units_on_lease),
            (&handles.unreported, usage.units_unreported),
            (&handles.leased_keys, usage.leased_keys),
            (&handles.scheduled_keys, usage.scheduled_keys),
            (&handles.table_keys[0], usage.leases.keys),
            (&handles.table_keys[1], usage.reports.keys),
            (&handles.table_bytes[0], usage.leases.bytes),
            (&handles.table_bytes[1], usage.reports.bytes),
            (&handles.table_bytes[3], usage.deny_cache_bytes),
        ];
        for (gauge, number) in numbers {
            gauge.set(number as f64);
        }
    }

    #[inline]
    pub(super) fn saved_call(&self) {
        self.handles().calls_saved.increment(1);
    }

    pub(super) fn sent(&self, what_for: CallFor) {
        self.handles().calls[what_for as usize].increment(1);
    }

    pub(super) fn lease(&self, event: LeaseEvent) {
        let index = match event {
            LeaseEvent::Requested => 0,
            LeaseEvent::Granted => 1,
            LeaseEvent::Returned => 2,
            LeaseEvent::Lost => 3,
        };
        self.handles().leases[index].increment(1);
    }

    pub(super) fn reports(&self, event: ReportEvent, count: usize) {
        let index = match event {
            ReportEvent::Sent => 0,
            ReportEvent::Kept => 1,
            ReportEvent::Lost => 2,
        };
        self.handles().reports[index].increment(count as u64);
    }

    pub(super) fn reports_lost_units(&self, units: u64) {
        self.handles().lost.increment(units);
    }

    pub(super) fn instances(&self, count: u32) {
        self.handles().instances.set(count);
    }

    /// Each few seconds, so that handles are looked up.
    pub(super) fn quota_conflicts(&self, rule: &str, others: usize) {
        self.handles();
        gauge!(QUOTA_CONFLICTS, "rule" => rule.to_owned()).set(others as f64);
    }

    pub(super) fn key_conflicts(&self, others: usize) {
        self.handles().key_conflicts.set(others as f64);
    }

    /// Each minute, so that handles are looked up.
    pub(super) fn namespace_size(&self, keys: u64, bytes: u64, used: Option<f64>) {
        self.handles();
        gauge!(NAMESPACE_KEYS).set(keys as f64);
        gauge!(NAMESPACE_BYTES).set(bytes as f64);
        if let Some(used) = used {
            gauge!(MEMORY_USED).set(used);
        }
    }

    /// Rare, so that handles are looked up: servers of a cluster come and go.
    pub(super) fn node(&self, node: &str, event: &NodeEvent) {
        self.handles();
        let connected = |is: f64| gauge!(CONNECTED, "node" => node.to_owned()).set(is);
        let logged_in_anew = |what: &'static str| {
            counter!(LOG_INS_ANEW, "node" => node.to_owned(), "what" => what).increment(1);
        };
        match event {
            NodeEvent::Connected(_) => connected(1.0),
            NodeEvent::NotConnected(kind, _) => {
                connected(0.0);
                let (node, kind) = (node.to_owned(), label(*kind));
                counter!(CONNECT_FAILURES, "node" => node, "kind" => kind).increment(1);
            }
            NodeEvent::Lost { .. } => {
                connected(0.0);
                counter!(LOST, "node" => node.to_owned()).increment(1);
            }
            NodeEvent::LoggedInAnew => logged_in_anew("ok"),
            NodeEvent::NotLoggedInAnew(_) => logged_in_anew("failed"),
            NodeEvent::Breaker { to, .. } => {
                gauge!(BREAKER_SHARE, "node" => node.to_owned()).set(f64::from(to.share()) / 100.0);
            }
        }
    }
}

/// What a step on the way to a connection is called.
fn label(kind: ConnectErrorKind) -> &'static str {
    match kind {
        ConnectErrorKind::Dns => "dns",
        ConnectErrorKind::Tcp => "tcp",
        ConnectErrorKind::Tls => "tls",
        ConnectErrorKind::Login => "login",
        ConnectErrorKind::Credentials => "credentials",
        ConnectErrorKind::Timeout => "timeout",
        ConnectErrorKind::NotMaster => "not_master",
        ConnectErrorKind::Unresolved => "unresolved",
        ConnectErrorKind::Server => "server",
    }
}
