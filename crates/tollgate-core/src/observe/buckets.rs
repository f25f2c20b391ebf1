//! Buckets for exporters that ask for them.

/// Buckets of durations, in seconds: 250 ns to 1 s, for stores in memory, remote stores and look-ups.
const DURATIONS: &[f64] = &[
    2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 0.01, 0.05,
    0.1, 1.0,
];

/// Buckets of `tollgate_retry_after_seconds`, in seconds.
const RETRY_AFTER: &[f64] = &[
    0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 86_400.0,
];

/// Buckets of `tollgate_remaining_ratio`: shares of a limit.
const REMAINING: &[f64] = &[0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0];

/// Buckets of `tollgate_wait_seconds`, in seconds.
const WAIT: &[f64] = &[
    0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0,
];

/// The histograms with their buckets, to go through when an exporter is set up.
///
/// An exporter for Prometheus makes a summary of a histogram that it has no buckets for, and summaries of several processes
/// cannot be added up.
///
/// ```
/// for &(metric, buckets) in tollgate_core::observe::BUCKETS {
///     // With metrics-exporter-prometheus: builder.set_buckets_for_metric(Matcher::Full(metric.into()), buckets)?
///     assert!(metric.starts_with("tollgate_") && buckets.is_sorted());
/// }
/// ```
pub const BUCKETS: &[(&str, &[f64])] = &[
    ("tollgate_check_duration_seconds", DURATIONS),
    ("tollgate_retry_after_seconds", RETRY_AFTER),
    ("tollgate_remaining_ratio", REMAINING),
    ("tollgate_wait_seconds", WAIT),
    ("tollgate_redis_call_duration_seconds", DURATIONS),
    ("tollgate_redis_round_trip_duration_seconds", DURATIONS),
    ("tollgate_redis_queue_duration_seconds", DURATIONS),
];
