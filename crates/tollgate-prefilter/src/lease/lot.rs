//! Lots, and what a process says when it asks for one.

use tollgate_core::Tick;

/// Units in advance, as a store lends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lot {
    /// Tracked by the store until it has run out, so that what is left of it may go back.
    Parking {
        /// Units.
        units: u64,
        /// By what the store tracks it: the generation, or the window.
        generation: u64,
    },
    /// Units that the bucket does not have yet, to be spent as they come back. What is left of them is lost.
    Segment {
        /// Units.
        units: u64,
        /// The time in µs from which they come back: until then it is what was taken before.
        after: Tick,
    },
}

impl Lot {
    /// Its units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        match self {
            Self::Parking { units, .. } | Self::Segment { units, .. } => *units,
        }
    }
}

/// A parking lot that a process hands back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The units it was lent with.
    pub size: u64,
    /// The units that were not spent.
    pub left: u64,
    /// By what the store tracks it.
    pub generation: u64,
}

/// What a process says to the store beside its request. The default wants nothing and gives nothing back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// A lot that is handed back.
    pub closed: Option<Closed>,
    /// Units wanted to park.
    pub parking: u64,
    /// Units wanted in a segment, where the bucket has none.
    pub segment: u64,
}

impl Ask {
    /// Whether it says anything at all.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.closed.is_none() && !self.wants_a_lot()
    }

    /// Whether a lot is wanted.
    #[must_use]
    pub const fn wants_a_lot(&self) -> bool {
        self.parking > 0 || self.segment > 0
    }
}
