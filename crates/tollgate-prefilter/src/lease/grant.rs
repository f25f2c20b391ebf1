//! Leases, and what a process says when it asks for one.

use tollgate_core::Tick;

/// Units in advance, as a store grants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Tracked by the store until it has run out, so that what is left of it may go back.
    Tracked {
        /// Units.
        units: u64,
        /// By what the store tracks it: the generation, or the window.
        generation: u64,
    },
    /// Units that the bucket does not have yet, to be spent as they come back. What is left of them is lost.
    Scheduled {
        /// Units.
        units: u64,
        /// The time in µs from which they come back: until then it is what was taken before.
        after: Tick,
    },
}

impl Grant {
    /// Its units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        match self {
            Self::Tracked { units, .. } | Self::Scheduled { units, .. } => *units,
        }
    }
}

/// A tracked lease that a process hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedLease {
    /// The units it was granted with.
    pub size: u64,
    /// The units that were not spent.
    pub left: u64,
    /// By what the store tracks it.
    pub generation: u64,
}

/// What a process says to the store beside its request. The default wants nothing and gives nothing back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseQuery {
    /// A lease that is handed back.
    pub returned: Option<ReturnedLease>,
    /// Units wanted to lease.
    pub tracked: u64,
    /// Units wanted in a scheduled lease, where the bucket has none.
    pub scheduled: u64,
}

impl LeaseQuery {
    /// Whether it says anything at all.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.returned.is_none() && !self.wants_grant()
    }

    /// Whether a lease is wanted.
    #[must_use]
    pub const fn wants_grant(&self) -> bool {
        self.tracked > 0 || self.scheduled > 0
    }
}
