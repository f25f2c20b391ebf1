//! The slots of one state, in the entry of its key, and when which state is due.

use std::{any::Any, collections::BTreeSet, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::{Check, Tick, store::Fingerprint};

use crate::slots::{
    slot_holder::SlotHolder,
    slot_message::{SlotOwner, SlotTerms},
};

/// Which state of the store slots are of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotKey {
    /// Whom they count against.
    pub key: Fingerprint,
    /// The name of their rule.
    pub rule: Arc<str>,
    /// Who says where the state lies, where that is another key.
    pub place: Option<Fingerprint>,
}

/// How a message about a state reaches the store.
#[derive(Clone, Debug)]
pub struct SlotTarget {
    /// What the store encodes it with.
    pub encoder: Arc<dyn Any + Send + Sync>,
    /// A check on the state.
    pub check: Check,
}

/// The slots of one state, in the entry of its key. While they are there, the entry is not evicted.
#[derive(Debug)]
pub(crate) struct StateSlots {
    pub(crate) key: SlotKey,
    pub(crate) holder: SlotHolder,
    pub(crate) target: SlotTarget,
    /// Where it is in the queue.
    pub(crate) due_at: Option<Tick>,
    /// Since when nothing is in use and the store has not confirmed it.
    idle_since: Option<Tick>,
    /// The grants whose requests run, by number.
    pub(crate) grants: SmallVec<[Grant; 1]>,
}

/// Slots of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) number: u64,
    pub(crate) seq: u64,
    pub(crate) slots: u32,
}

/// When which state is due. One lock for all, so that numbers are drawn in the order of the messages.
#[derive(Debug)]
pub(crate) struct SlotQueue {
    pub(crate) owner: SlotOwner,
    pub(crate) terms: SlotTerms,
    /// The number of the last message about any key. It outlives what is known of a key.
    pub(crate) seq: u64,
    /// When a message about which state is due.
    pub(crate) due: BTreeSet<(Tick, SlotKey)>,
    /// When the task that sends looks next; `None`: nothing is due.
    pub(crate) looks_at: Option<Tick>,
}

impl SlotQueue {
    pub(crate) fn new(terms: SlotTerms) -> Self {
        Self {
            owner: SlotOwner::random(),
            terms,
            seq: 0,
            due: BTreeSet::new(),
            looks_at: None,
        }
    }

    /// Puts a state where it is due. Whether it stays: otherwise it is forgotten.
    pub(crate) fn schedule(&mut self, state: &mut StateSlots, now: Tick) -> bool {
        if state.holder.is_in_use() {
            state.idle_since = None;
        } else {
            state.idle_since.get_or_insert(now);
        }
        let due_at = state.holder.renew_at();
        let due_at = due_at.filter(|_| !state.is_abandoned(now, &self.terms));
        if due_at != state.due_at {
            if let Some(before) = state.due_at {
                self.due.remove(&(before, state.key.clone()));
            }
            if let Some(at) = due_at {
                self.due.insert((at, state.key.clone()));
            }
            state.due_at = due_at;
        }
        due_at.is_some()
    }
}

impl StateSlots {
    /// Without a slot in use.
    pub(crate) fn new(key: SlotKey, owner: SlotOwner, target: SlotTarget) -> Self {
        Self {
            key,
            holder: SlotHolder::new(owner),
            target,
            due_at: None,
            idle_since: None,
            grants: SmallVec::new(),
        }
    }

    /// The memory of one, with its place in the queue: tree nodes are taken to be two thirds full.
    pub(crate) const BYTES: usize = size_of::<Self>() + size_of::<(Tick, SlotKey)>() * 3 / 2;

    /// The slots of requests that run.
    pub(crate) fn running(&self) -> u64 {
        self.holder.running().into()
    }

    pub(crate) fn index_of(&self, number: u64) -> Option<usize> {
        self.grants
            .binary_search_by_key(&number, |it| it.number)
            .ok()
    }

    /// The requests that run on slots that the store has forgotten: a message makes them more.
    pub(crate) fn outlived(&self) -> u64 {
        let grants = self.grants.iter();
        let outlived = grants.filter(|it| self.holder.is_outlived(it.seq));
        outlived.count() as u64
    }

    /// Whether nothing is in use, and the store has forgotten it by itself: no message about it got through for two terms.
    pub(crate) fn is_abandoned(&self, now: Tick, terms: &SlotTerms) -> bool {
        let idle = self.idle_since.map(|since| now.saturating_sub(since));
        idle.is_some_and(|idle| idle > 2 * terms.term)
    }
}
