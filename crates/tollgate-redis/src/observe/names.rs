//! The names of the metrics, and what they are.

/// Names, each with its kind and its description. `seconds` is a histogram of times, `bytes` a gauge.
macro_rules! names {
    ($($kind:ident $name:ident $text:literal $about:literal)*) => {
        $(pub(super) const $name: &str = $text;)*

        /// Describes them to the recorder.
        pub(super) fn describe() {
            $(names!(@$kind $name $about);)*
        }
    };
    (@counter $name:ident $about:literal) => { metrics::describe_counter!($name, $about) };
    (@gauge $name:ident $about:literal) => { metrics::describe_gauge!($name, $about) };
    (@bytes $name:ident $about:literal) => { metrics::describe_gauge!($name, metrics::Unit::Bytes, $about) };
    (@seconds $name:ident $about:literal) => { metrics::describe_histogram!($name, metrics::Unit::Seconds, $about) };
}

names! {
    seconds CALL_DURATION "tollgate_redis_call_duration_seconds"
        "How long requests have waited for Redis, by outcome"
    seconds ROUND_TRIP "tollgate_redis_round_trip_duration_seconds"
        "From a command that is sent to its answer: the network and Redis, without the wait before"
    seconds QUEUE "tollgate_redis_queue_duration_seconds"
        "How long the first call of each command has waited to be sent"
    counter CALLS "tollgate_redis_calls_total"
        "Calls to Redis, by purpose; calls of the same moment are sent as one command"
    counter RESENT "tollgate_redis_resent_total"
        "Calls that had not run and were sent once more, by why"
    counter ERRORS "tollgate_redis_errors_total"
        "Requests that Redis has not decided, by error; those with `unknown` may have been counted"
    counter CALLS_SAVED "tollgate_redis_calls_saved_total"
        "Requests that this process has decided without a call"
    counter SETTLEMENTS_LOST "tollgate_redis_settlements_lost_total"
        "Settlements that could not be sent: units stay as they were taken"

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

    counter DECISIONS "tollgate_redis_decisions_total"
        "Checks that were decided, by who answered: Redis, or this process alone"
    counter NEW_KEYS "tollgate_redis_new_keys_total"
        "Keys that were created: checks and reports that found no usage"
    counter NEW_KEYS_REFUSED "tollgate_redis_new_keys_refused_total"
        "Checks of clients beyond the cap on new keys, which share one bucket"
    gauge BOUND "tollgate_redis_over_admission_bound_units"
        "Units by which all instances together may be above the limit of a key; 0 for exact and leased"
    gauge RESERVE "tollgate_redis_lease_limit_units"
        "Units of a key that may sit unused in leases while a request is denied"

    gauge ON_LEASE "tollgate_redis_units_on_lease"
        "Units that this process holds in leases and may admit without a call"
    gauge UNREPORTED "tollgate_redis_units_unreported"
        "Units that this process has admitted and not reported to Redis yet"
    gauge LEASED_KEYS "tollgate_redis_leased_keys"
        "Keys for which this process holds a lease or a scheduled lease, by kind"
    gauge TABLE_KEYS "tollgate_redis_table_keys"
        "Keys with an entry in this process, by table"
    bytes TABLE_BYTES "tollgate_redis_table_bytes"
        "Memory of the tables of this process, by table"
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
