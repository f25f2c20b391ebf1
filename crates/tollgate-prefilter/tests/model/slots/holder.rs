//! A process's side, for each request or leased.

use tollgate_prefilter::{SlotHolder, SlotLease, SlotOwner};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Holder {
    Exact(SlotHolder),
    Leased(SlotLease),
}

impl Holder {
    pub(super) fn new(owner: SlotOwner, is_leased: bool) -> Self {
        match is_leased {
            false => Self::Exact(SlotHolder::new(owner)),
            true => Self::Leased(SlotLease::new(owner)),
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        match self {
            Self::Exact(holder) => holder.is_listed(),
            Self::Leased(lease) => lease.is_listed(),
        }
    }

    /// The slots in use, and those that are idle.
    pub(super) fn held(&self) -> u32 {
        match self {
            Self::Exact(holder) => holder.running(),
            Self::Leased(lease) => lease.usable().max(lease.running()),
        }
    }
}
