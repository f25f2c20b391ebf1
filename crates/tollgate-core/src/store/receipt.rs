//! What was taken, and what becomes of it.

use crate::{
    algorithm::{GcraState, Taken},
    check::Check,
    decision::Verdict,
    source::Source,
    time::Tick,
};

/// What to do with units that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// Gives back this many units of each check, at most what it took.
    Refund(u64),
    /// Takes this many units more from each check, as far as they are there.
    Charge(u64),
    /// Gives back everything: the request was not let through after all.
    Cancel,
}

/// A check that was allowed and took its units, as its settlement needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The check.
    pub check: Check,
    /// When its units were taken, and until when they weigh.
    pub taken: Taken,
    /// Who gave them.
    pub source: Source,
    /// The state before they were taken, of a request that had to wait: what a refund restores.
    pub before: Option<GcraState>,
    /// Whether the request stays counted, under a rule whose [block](crate::Block::count_settled) counts that: it is counted once,
    /// with this settlement.
    pub counts: bool,
}

impl Receipt {
    /// What an allowed check took at `at`.
    #[must_use]
    pub fn new(check: Check, verdict: &Verdict, at: Tick) -> Self {
        let fresh_at = at.saturating_add(verdict.reset_after_ticks());
        Self {
            source: verdict.source(),
            ..Self::of_store(check, Taken::new(at, fresh_at))
        }
    }

    /// What a check took of the store.
    #[must_use]
    pub const fn of_store(check: Check, taken: Taken) -> Self {
        Self {
            check,
            taken,
            source: Source::Store,
            before: None,
            counts: false,
        }
    }
}
