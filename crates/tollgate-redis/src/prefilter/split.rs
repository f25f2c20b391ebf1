//! What became of a request here.

use smallvec::SmallVec;
use tollgate_core::{Check, Checks, Decision, Tick, Verdict, store::Receipt};
use tollgate_prefilter::LeaseQuery;

/// What became of a request here.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is decided.
    Here(Decision),
    /// The store is to be asked about all of it.
    LeaseQuery(QueryExtras),
    /// The store is to be asked about the rest of it.
    Part(Box<Part>),
}

/// What to ask the store beside checks, and what not to learn from its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryExtras {
    /// By the place of the check.
    pub(crate) grants: SmallVec<[(u16, LeaseQuery); 1]>,
    /// The checks of whose keys nothing is kept: nothing is to be kept of them now.
    pub(crate) uncached: IndexSet,
}

/// Some of the checks of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexSet(u64);

impl IndexSet {
    /// Those behind the first 64 always are.
    pub(crate) fn insert(&mut self, place: usize) {
        if place < 64 {
            self.0 |= 1 << place;
        }
    }

    pub(crate) fn contains(self, place: usize) -> bool {
        place >= 64 || self.0 >> place & 1 > 0
    }
}

/// A request of which a part is held here.
#[derive(Debug)]
pub(crate) struct Part {
    /// What the store is to be asked about.
    pub(crate) checks: Checks,
    pub(crate) extras: QueryExtras,
    /// The places of those checks in the request.
    pub(super) places: SmallVec<[u16; 4]>,
    /// When this was, by this process's clock and by the store's.
    pub(super) at: Tick,
    pub(super) store_at: Tick,
    /// What is held here, with its place.
    pub(super) held: SmallVec<[(u16, Check, Verdict); 2]>,
}

/// What was held here and has to go back to the store: so many units of each.
pub(crate) type Refunds = SmallVec<[(Receipt, u64); 1]>;

impl Part {
    /// The answers about what is held here.
    pub(crate) fn held(&self) -> impl IntoIterator<Item = &Verdict> {
        self.held.iter().map(|(_, _, verdict)| verdict)
    }
}
