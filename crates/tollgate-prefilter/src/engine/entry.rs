//! What a process keeps of a key: a lease or local usage, the slots in use, and whether it is blocked.

use smallvec::SmallVec;
use tollgate_core::{Tick, store::Fingerprint};

use crate::{
    denials::KeyBlock, engine::limit::Limit, lease::lease_holder::LeaseHolder,
    local_usage::LocalUsage, slots::StateSlots,
};

/// What a process keeps of a key.
///
/// A lease or local usage is of one limit. Another limit of the same rule, such as that of a plan, gets its place when nothing would
/// be lost; until then the store decides each request under it.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Of which limit it is.
    limit: u32,
    /// Whether the limit lists the key, because something may have to be sent.
    pub(crate) is_listed: bool,
    held: Held,
    /// If its rule blocks keys.
    pub(crate) block: Option<Box<KeyBlock>>,
    /// Of states that the store may know of; not empty. There are several where another key says where each lies.
    pub(crate) slots: Option<Box<SmallVec<[StateSlots; 1]>>>,
}

#[derive(Debug, Default)]
enum Held {
    #[default]
    Nothing,
    Lease(Lease),
    Usage(LocalUsage),
}

/// A lease, and what is left in the store, by its last reply.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    pub(crate) holder: LeaseHolder,
    pub(crate) left: u64,
    pub(crate) fresh_at: Tick,
    /// When a query for a lease was sent whose reply never came, until one that was sent later is answered; 0: there is none.
    /// A store that stands still may carry each of them out later, and each lease would be lost.
    pub(crate) unanswered: Tick,
}

impl Entry {
    /// What is held under a limit, if it is a lease.
    #[inline]
    pub(crate) fn lease(&mut self, limit: &Limit) -> Option<&mut Lease> {
        match &mut self.held {
            Held::Lease(lease) if self.limit == limit.id => Some(lease),
            _ => None,
        }
    }

    /// The same, if it is local usage.
    #[inline]
    pub(crate) fn usage(&mut self, limit: &Limit) -> Option<&mut LocalUsage> {
        match &mut self.held {
            Held::Usage(usage) if self.limit == limit.id => Some(usage),
            _ => None,
        }
    }

    /// The lease or the local usage under a limit begins, unless it is there or something of another limit is.
    pub(crate) fn begin(&mut self, limit: &Limit, now: Tick) {
        if self.limit == limit.id && !matches!(self.held, Held::Nothing) || !self.is_idle(now) {
            return;
        }
        (self.limit, self.is_listed) = (limit.id, false);
        self.held = match limit.lease_terms() {
            Some(_) => Held::Lease(Lease::default()),
            None => Held::Usage(LocalUsage::default()),
        };
    }

    /// Whether nothing would be lost if what is held were forgotten.
    fn is_idle(&self, now: Tick) -> bool {
        match &self.held {
            Held::Nothing => true,
            Held::Lease(lease) => lease.holder.is_idle(now),
            Held::Usage(usage) => usage.unreported() == 0,
        }
    }

    /// Whether it may be evicted: the sooner, the less. Of keys that are blocked, that whose block ends first; the store knows of it.
    pub(crate) fn may_go(&self, now: Tick) -> Option<Tick> {
        let blocked_until = self.block.as_ref().map_or(0, |block| block.until.max(1));
        (self.is_idle(now) && self.slots.is_none()).then_some(blocked_until)
    }

    /// The states whose slots are in use.
    pub(crate) fn states(&self) -> &[StateSlots] {
        self.slots.as_deref().map_or(&[], |states| states)
    }

    /// Lists the key under its limit, if something may have to be sent and it is not listed yet.
    #[inline]
    pub(crate) fn list(&mut self, limit: &Limit, key: Fingerprint) {
        let is_needed = match &self.held {
            Held::Nothing => false,
            Held::Lease(lease) => lease.holder.until().is_some(),
            Held::Usage(usage) => usage.unreported() > 0,
        };
        if is_needed && !std::mem::replace(&mut self.is_listed, true) {
            limit.list(key);
        }
    }

    /// The lease and the local usage, for who counts what is held.
    pub(crate) fn held(&self) -> (Option<&LeaseHolder>, u64) {
        match &self.held {
            Held::Nothing => (None, 0),
            Held::Lease(lease) => (Some(&lease.holder), 0),
            Held::Usage(usage) => (None, usage.unreported()),
        }
    }
}
