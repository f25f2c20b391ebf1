//! The counters of a store, and how their keys are written.

use tollgate_core::{
    Check, Clock,
    algorithm::Taken,
    journal::Window,
    store::{Fingerprint, Hold, RuleStore, Settlement},
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

/// Tells a store, and not its ledger.
pub(crate) fn settle(
    store: &dyn RuleStore,
    rule: &str,
    key: Fingerprint,
    window: Window,
    how: Settlement,
) -> Result<(), LedgerError> {
    let hold = match how {
        // A balance pays nothing of it.
        Settlement::Charge(units) => {
            let check = Check::new(position(store, rule)?, key, units.max(1));
            Hold::of_store(check, Taken::new(0, 0))
        }
        Settlement::Refund(units) => hold_of(store, rule, key, window, units)?,
        _ => return Ok(()),
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
    let check = Check::new(position(store, rule)?, key, units.max(1));
    let at = Clock::system().now().max(window.begin);
    Ok(Hold::of_store(check, Taken::new(at, window.end)))
}

/// The number of a rule.
pub(crate) fn position(store: &dyn RuleStore, rule: &str) -> Result<u16, LedgerError> {
    let index = store.rules().position(rule).ok_or_else(|| {
        LedgerError::setup(format!(
            "the limiter has no rule {rule:?}, which the ledger has"
        ))
    })?;
    // A rule set has fewer than 65 536 rules.
    Ok(index as u16)
}
