//! Gauges of the rules in force.

use tollgate_core::Tick;

use crate::rules_status::RulesStatus;

/// `tollgate_rules_revision`, and `tollgate_rules_in_force_timestamp_seconds`: since when, by which a monitor knows the age. And 1 for as
/// long as it is so: `tollgate_rules_rejected`, the latest document is rejected and an older one is in force;
/// `tollgate_rules_source_failing`, the source has no document, and the last one is in force.
pub(crate) fn show(status: &RulesStatus, since: Tick) {
    #[cfg(feature = "metrics")]
    {
        let flag = |is_so: bool| f64::from(u8::from(is_so));
        metrics::gauge!("tollgate_rules_revision").set(status.revision as f64);
        metrics::gauge!("tollgate_rules_in_force_timestamp_seconds").set(since as f64 / 1e6);
        metrics::gauge!("tollgate_rules_rejected").set(flag(status.last_rejection.is_some()));
        metrics::gauge!("tollgate_rules_source_failing").set(flag(status.source_error.is_some()));
    }
    let _ = (status, since);
}

/// `tollgate_rules_rejected_total`
pub(crate) fn count_rejected() {
    #[cfg(feature = "metrics")]
    metrics::counter!("tollgate_rules_rejected_total").increment(1);
}
