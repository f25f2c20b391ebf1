//! What a store grants, and what a process says about leases in a query.

use tollgate_core::Tick;

/// A lease as a store grants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Tracked by the store until it expires, so that unspent units can be returned.
    Tracked {
        /// Units.
        units: u64,
        /// The number by which the store tracks it: of a generation, or of a window.
        generation: u64,
    },
    /// Units that will be refilled soon, to be spent as they are. Unspent units are lost.
    Scheduled {
        /// Units.
        units: u64,
        /// After how many µs their refill begins: until then, what was taken before is refilled.
        after: Tick,
    },
}

impl Grant {
    /// Its units.
    pub const fn units(&self) -> u64 {
        match self {
            Self::Tracked { units, .. } | Self::Scheduled { units, .. } => *units,
        }
    }
}

/// A tracked lease that a process returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnedLease {
    /// The units it was granted with.
    pub size: u64,
    /// The units that were not spent.
    pub left: u64,
    /// The number by which the store tracks it.
    pub generation: u64,
}

/// What a process says about leases in a query to the store. The default requests none and returns none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseQuery {
    /// A lease that is returned.
    pub returned: Option<ReturnedLease>,
    /// Units wanted in a tracked lease.
    pub tracked: u64,
    /// Units wanted in a scheduled lease, if the bucket is empty.
    pub scheduled: u64,
}

impl LeaseQuery {
    /// The same that returns this lease.
    pub const fn with_returned(mut self, returned: Option<ReturnedLease>) -> Self {
        self.returned = returned;
        self
    }

    /// Whether it neither requests nor returns a lease.
    pub const fn is_empty(&self) -> bool {
        self.returned.is_none() && !self.requests_grant()
    }

    /// Whether it requests a lease.
    pub const fn requests_grant(&self) -> bool {
        self.tracked > 0 || self.scheduled > 0
    }
}
