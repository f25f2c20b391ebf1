//! Counters, gauges and a histogram through the `metrics` facade.
//!
//! Handles are created at the first event: a handle from before the application installs its recorder would never count.

use std::sync::OnceLock;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use tollgate_prefilter::{LeaseEvent, ReportEvent};

use crate::{
    connection::{
        connect_error::ConnectErrorKind,
        error::{CallError, CallErrorKind},
        event::NodeEvent,
    },
    observe::{rule_meters, stopwatch::Stopwatch, what::CallFor},
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
const CALLS: &str = "tollgate_redis_calls_total";
const LEASES: &str = "tollgate_redis_leases_total";
const REPORTS: &str = "tollgate_redis_reports_total";
const LOST_UNITS: &str = "tollgate_redis_reports_lost_units_total";

#[derive(Debug, Default)]
pub(super) struct Meters {
    handles: OnceLock<Handles>,
}

struct Handles {
    call_duration: Histogram,
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
    lost: Counter,
    calls: [Counter; 6],
    leases: [Counter; 4],
    reports: [Counter; 3],
}

impl std::fmt::Debug for Handles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handles(..)")
    }
}

impl Handles {
    fn new() -> Self {
        describe();
        rule_meters::describe();
        let errors = |error: &'static str| counter!(ERRORS, "error" => error);
        Self {
            call_duration: histogram!(CALL_DURATION),
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
            lost: counter!(LOST_UNITS),
            // In the order of the variants.
            calls: [
                "requests",
                "settlements",
                "reports",
                "leases",
                "resets",
                "meter",
            ]
            .map(|what| counter!(CALLS, "for" => what)),
            leases: ["requested", "granted", "returned", "lost"]
                .map(|what| counter!(LEASES, "what" => what)),
            reports: ["sent", "kept", "lost"].map(|what| counter!(REPORTS, "what" => what)),
        }
    }
}

fn describe() {
    metrics::describe_histogram!(
        CALL_DURATION,
        Unit::Seconds,
        "How long requests have waited for Redis, failed ones included"
    );
    metrics::describe_counter!(
        ERRORS,
        "Requests that Redis has not decided, by error; those with `unknown` may have been counted"
    );
    metrics::describe_counter!(
        SETTLEMENTS_LOST,
        "Settlements that could not be sent: units stay as they were taken"
    );
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
        handles.call_duration.record(stopwatch.elapsed());
        let Some(error) = error else { return };
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

    pub(super) fn held(&self, on_lease: u64, unreported: u64) {
        let handles = self.handles();
        handles.on_lease.set(on_lease as f64);
        handles.unreported.set(unreported as f64);
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
            _ => return,
        };
        self.handles().leases[index].increment(1);
    }

    pub(super) fn reports(&self, event: ReportEvent, count: usize) {
        let index = match event {
            ReportEvent::Sent => 0,
            ReportEvent::Kept => 1,
            ReportEvent::Lost => 2,
            _ => return,
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
            NodeEvent::Lost(_) => {
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
