//! What a store knows of a rule set.

use std::fmt;

use tollgate_core::{Check, Rule, store::Fingerprint};

/// What a store knows of a rule set, and its engine has to.
pub trait StoreRules: fmt::Debug + Send + Sync {
    /// Why this rule can only be exact, whatever its consistency and quota are; `None`: it can be leased and reported.
    fn exact(&self, rule: &Rule) -> Option<&'static str>;

    /// Where the state of one of a request's checks lies. Checks with the same answer are decided in one step, the others one
    /// step after the other.
    fn place(&self, checks: &[Check], check: &Check) -> Option<Fingerprint>;

    /// Whether the check of this rule decides where the states of the other checks of its request lie. Then it is always decided
    /// with them: without it, they would have another state. Default: no.
    fn places_others(&self, rule: u16) -> bool {
        let _ = rule;
        false
    }
}
