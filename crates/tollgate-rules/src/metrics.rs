//! Gauges of the rules in force.

use tollgate_core::Tick;

/// `tollgate_rules_revision`, and `tollgate_rules_in_force_timestamp_seconds`: since when, by which a monitor knows the age.
pub(crate) fn in_force(revision: u64, since: Tick) {
    #[cfg(feature = "metrics")]
    {
        metrics::gauge!("tollgate_rules_revision").set(revision as f64);
        let seconds = since as f64 / 1e6;
        metrics::gauge!("tollgate_rules_in_force_timestamp_seconds").set(seconds);
    }
    let _ = (revision, since);
}

/// `tollgate_rules_rejected`: 1 while the latest document is rejected and an older one is in force.
pub(crate) fn rejected(is_rejected: bool) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("tollgate_rules_rejected").set(f64::from(u8::from(is_rejected)));
    let _ = is_rejected;
}

/// `tollgate_rules_source_failing`: 1 while the source has no document, and the last one is in force.
pub(crate) fn source_failing(is_failing: bool) {
    #[cfg(feature = "metrics")]
    metrics::gauge!("tollgate_rules_source_failing").set(f64::from(u8::from(is_failing)));
    let _ = is_failing;
}

/// `tollgate_rules_rejected_total`
pub(crate) fn count_rejected() {
    #[cfg(feature = "metrics")]
    metrics::counter!("tollgate_rules_rejected_total").increment(1);
}
