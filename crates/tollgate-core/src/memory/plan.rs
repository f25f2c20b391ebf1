//! The quotas that states of a table are written under.

use crate::{
    algorithm::Algorithm,
    memory::{
        shard::{Assess, EvictionOrder},
        slots::Entry,
    },
    time::Tick,
};

/// A quota made ready, known to its table under a number.
#[derive(Clone, Debug)]
pub(super) struct Plan<A> {
    pub(super) quota: A,
    pub(super) number: u16,
    pub(super) limit: u64,
    /// The longest time that a state of the past or present takes until it is fresh.
    pub(super) longest_reset: u64,
}

impl<A: Algorithm> Plan<A> {
    pub(super) fn order(&self, entry: &Entry<A::State>, now: Tick) -> EvictionOrder {
        EvictionOrder::new(self.quota.assess(&entry.state, now, 0), self.limit)
    }
}

/// All quotas of a table: each entry is assessed under the one that wrote it.
pub(super) struct ByWriters<'a, A>(pub(super) &'a [Plan<A>]);

impl<A: Algorithm> Assess<A> for ByWriters<'_, A> {
    fn fresh_at(&self, entry: &Entry<A::State>) -> Tick {
        let writer = self.0.get(usize::from(entry.quota()));
        writer.map_or(0, |writer| writer.quota.fresh_at(&entry.state))
    }

    fn eviction_order(&self, entry: &Entry<A::State>, now: Tick) -> EvictionOrder {
        let writer = self.0.get(usize::from(entry.quota()));
        writer.map_or(EvictionOrder::default(), |writer| writer.order(entry, now))
    }
}
