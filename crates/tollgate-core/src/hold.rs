//! What a request has taken, and where it goes back.

use smallvec::SmallVec;

use crate::{
    algorithm::{GcraState, Taken},
    check::Check,
};

/// What a check has taken: units, a place in the queue of units, or slots.
///
/// Units stay taken until a [settlement](Settlement) gives some back. Slots are [released](crate::store::RuleStore::release) when their
/// request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hold {
    /// The check, with the units or slots that it took; those of all checks on the same state, where they have one place.
    pub check: Check,
    /// Who gave them.
    pub source: Source,
    /// When units were taken, and until when they weigh. A charge of units that weigh until 0 is of the quota and its debt alone: no
    /// balance pays it.
    pub taken: Taken,
    /// The state before, of units that a request waits for: what a refund restores.
    pub before: Option<GcraState>,
    /// The number of slots, above those of all slots of this rule and key that were given before; 0 for units. It is a fencing token,
    /// which a protected resource can compare, to refuse a request that believes to run still.
    pub number: u64,
    /// Whether the request stays counted, under a rule whose [block](crate::Block::count_settled) counts that: it is counted once,
    /// with this settlement.
    pub counts: bool,
}

/// The holds of a request, up to four without an allocation.
pub type Holds = SmallVec<[Hold; 4]>;

impl Hold {
    /// Units that a check took of the store.
    #[must_use]
    pub const fn of_store(check: Check, taken: Taken) -> Self {
        Self {
            check,
            source: Source::Store,
            taken,
            before: None,
            number: 0,
            counts: false,
        }
    }

    /// A place in a queue: units that a request waits for, and the state before.
    #[must_use]
    pub const fn in_queue(check: Check, taken: Taken, before: GcraState) -> Self {
        Self {
            before: Some(before),
            ..Self::of_store(check, taken)
        }
    }

    /// Slots that a check took, with their number.
    #[must_use]
    pub const fn of_slots(check: Check, number: u64, source: Source) -> Self {
        Self {
            source,
            number,
            ..Self::of_store(check, Taken::new(0, 0))
        }
    }
}

/// Where the answer to a check comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// None: the store failed to decide, or was not asked.
    None,
    /// The store.
    Store,
    /// The deny cache: an earlier denial still holds, so the store was not called.
    DenyCache,
    /// Units that this process holds on lease.
    Lease,
    /// Counted in this process, and reported to the store later.
    Local,
    /// The rule's answer to a store failure.
    Fallback,
    /// The store, out of the [credits](crate::Rule::credits) of the key: the quota had too little left.
    Credits,
}

impl Source {
    /// The word for it in logs: `none`, `store`, `deny_cache`, `lease`, `local`, `fallback` or `credits`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Lease => "lease",
            Self::Local => "local",
            Self::Fallback => "fallback",
            Self::Credits => "credits",
        }
    }
}

/// What to do with units that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// Gives back this many units of each check, at most what it took.
    Refund(u64),
    /// Takes this many units more from each check, as far as they are there or may be [owed](crate::Rule::debt).
    Charge(u64),
    /// Gives back everything: the request was not let through after all.
    Cancel,
}
