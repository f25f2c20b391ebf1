//! The counters of a store, and how their keys are written.

use tollgate_core::{
    Check,
    algorithm::Taken,
    journal::Window,
    store::{Fingerprint, Hold, RuleStore, Settlement},
    wall_clock,
};

use crate::error::LedgerError;

/// A key as it is written.
pub(crate) fn subject(key: Fingerprint) -> String {
    format!("{:032x}", key.bits())
}

/// A key that was written.
pub(crate) fn key_of(subject: &str) -> Fingerprint {
    Fingerprint::from_bits(u128::from_str_radix(subject, 16).unwrap_or_default())
}

/// Takes units in a store or, below 0, gives them back, and tells its ledger nothing.
pub(crate) fn change(
    store: &dyn RuleStore,
    rule: &str,
    key: Fingerprint,
    window: Window,
    units: i64,
) -> Result<(), LedgerError> {
    let count = units.unsigned_abs();
    let (hold, how) = match units {
        // A balance pays nothing of it.
        0.. => {
            let check = check_of(store, rule, key, count.max(1))?;
            let hold = Hold::of_store(check, Taken::new(0, 0));
            (hold, Settlement::Charge(count))
        }
        _ => (
            hold_of(store, rule, key, window, count)?,
            Settlement::Refund(count),
        ),
    };
    store.settle(&[hold], how);
    Ok(())
}

/// Units that were taken in a window.
pub(crate) fn hold_of(
    store: &dyn RuleStore,
    rule: &str,
    key: Fingerprint,
    window: Window,
    units: u64,
) -> Result<Hold, LedgerError> {
    let at = wall_clock().max(window.begin);
    let check = check_of(store, rule, key, units.max(1))?;
    Ok(Hold::of_store(check, Taken::new(at, window.end)))
}

/// A check of the rule with this name.
pub(crate) fn check_of(
    store: &dyn RuleStore,
    rule: &str,
    key: Fingerprint,
    units: u64,
) -> Result<Check, LedgerError> {
    let index = store.rules().position(rule).ok_or_else(|| {
        LedgerError::setup(format!(
            "the limiter has no rule {rule:?}, which the ledger has"
        ))
    })?;
    // A rule set has fewer than 65 536 rules.
    Ok(Check::new(index as u16, key, units))
}
