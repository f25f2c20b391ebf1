//! Rules that want more of a store than it can do.

use crate::{
    error::{RuleError, RuleErrorKind},
    rule::{Mode, Rule},
    store::rule_store::RuleStore,
};

/// Refuses rules that this store, which they are bound to, cannot keep.
pub(crate) fn refuse_unsupported(store: &dyn RuleStore) -> Result<(), RuleError> {
    refuse_slots(store)?;
    refuse_credits(store)?;
    refuse_wait(store)
}

/// A rule whose requests wait on a store that has no queue.
fn refuse_wait(store: &dyn RuleStore) -> Result<(), RuleError> {
    let waits = |rule: &&Rule| {
        rule.at_most_wait().is_some() && !rule.has_slots() && *rule.mode() != Mode::Off
    };
    match store.rules().given().iter().find(waits) {
        Some(rule) if !store.supports_wait() => Err(rule.error(
            RuleErrorKind::Store,
            "requests cannot wait for units of this store; leave wait() out to deny them, and have callers wait in their process \
             with Limiter::acquire_within, or put the rule into a limiter or layer of its own on a MemoryStore",
        )),
        _ => Ok(()),
    }
}

/// A rule with credits on a store that keeps no balances.
fn refuse_credits(store: &dyn RuleStore) -> Result<(), RuleError> {
    let takes_credits = |rule: &&Rule| rule.has_credits() && *rule.mode() != Mode::Off;
    match store.rules().given().iter().find(takes_credits) {
        Some(rule) if !store.supports_credits() => Err(rule.error(
            RuleErrorKind::Store,
            "this store keeps no balances; leave credits() out, or take a MemoryStore or Redis",
        )),
        _ => Ok(()),
    }
}

/// A rule of slots on a store that counts none.
fn refuse_slots(store: &dyn RuleStore) -> Result<(), RuleError> {
    let has_slots = |rule: &&Rule| rule.has_slots() && *rule.mode() != Mode::Off;
    match store.rules().given().iter().find(has_slots) {
        Some(rule) if !store.supports_slots() => Err(rule.error(
            RuleErrorKind::Store,
            "this store does not count how many requests run at once; put the rule into a limiter or layer of its own on a \
             MemoryStore, where each process counts its own requests, or take a rate, such as Quota::gcra",
        )),
        _ => Ok(()),
    }
}
