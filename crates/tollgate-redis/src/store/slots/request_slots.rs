//! The slots that a request acquires.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Check, Tick, store::Fingerprint};
use tollgate_prefilter::{ProcessSlots, SlotKey, SlotMessage, SlotStart, SlotTarget};

use crate::{
    script::{encoder::Encoder, reply::ScriptReply},
    store::{context::StoreContext, slots::slot_reporter::report},
};

/// The slots that a request acquires, until its decision holds them. Dropped before, they go back.
pub(crate) struct RequestSlots {
    shared: Arc<StoreContext>,
    acquires: SmallVec<[Acquire; 1]>,
    granted: SmallVec<[Granted; 1]>,
}

/// An acquire in flight.
struct Acquire {
    key: SlotKey,
    message: SlotMessage,
    /// Where the answer is.
    place: u16,
    sent: Tick,
}

struct Granted {
    key: SlotKey,
    number: u64,
    slots: u32,
}

/// What became of acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The reply is right about all of them.
    AsReplied,
    /// One has to be acquired again: what the reply says of it counts for nothing.
    Again,
}

impl RequestSlots {
    pub(crate) fn new(shared: &Arc<StoreContext>) -> Self {
        Self {
            shared: Arc::clone(shared),
            acquires: SmallVec::new(),
            granted: SmallVec::new(),
        }
    }

    /// Acquires the slots of a check. `None`: too much is kept of other keys, and nothing is acquired.
    pub(crate) fn acquire(
        &mut self,
        encoder: &Arc<Encoder>,
        check: &Check,
        with: Option<Fingerprint>,
        place: u16,
    ) -> Option<SlotMessage> {
        let key = encoder.slot_key(check, with)?;
        let target = SlotTarget {
            encoder: Arc::<Encoder>::clone(encoder),
            check: *check,
        };
        // More never fit, and the script says so.
        let want = u32::try_from(check.cost()).unwrap_or(u32::MAX);
        let sent = self.shared.process_clock.now();
        let mut in_use = self.shared.engine.slots();
        let message = in_use.acquire(&key, target, want, sent)?;
        drop(in_use);
        self.acquires.push(Acquire {
            key,
            message,
            place,
            sent,
        });
        Some(message)
    }

    /// Redis has replied.
    pub(crate) fn on_reply(&mut self, reply: &ScriptReply) -> Acquired {
        let mut acquired = Acquired::AsReplied;
        self.change(|slots, in_use, now| {
            for it in std::mem::take(&mut slots.acquires) {
                let Some(answer) = reply.slots(it.place, &it.message) else {
                    // The server has refused it, or what it has is not ours.
                    in_use.give_up(&it.key, &it.message, now);
                    continue;
                };
                match in_use.on_acquired(&it.key, &it.message, &answer, (it.sent, now)) {
                    SlotStart::Started { fence } => slots.granted.push(Granted {
                        key: it.key,
                        number: fence,
                        slots: it.message.want,
                    }),
                    SlotStart::Denied { .. } => {}
                    SlotStart::Again => acquired = Acquired::Again,
                }
            }
        });
        acquired
    }

    /// Nothing was sent that Redis could have read.
    pub(crate) fn not_sent(&mut self) {
        self.change(|slots, in_use, now| {
            for it in std::mem::take(&mut slots.acquires) {
                in_use.not_sent(&it.key, &it.message, now);
            }
        });
    }

    /// The reply is lost: slots that may have been granted are reported as not in use.
    pub(crate) fn lose(&mut self) {
        self.change(|slots, in_use, now| {
            for it in std::mem::take(&mut slots.acquires) {
                in_use.give_up(&it.key, &it.message, now);
            }
        });
    }

    /// The decision has the slots that were granted, and its owner returns them.
    pub(crate) fn hand_over(&mut self) {
        self.granted.clear();
    }

    /// What is in flight counts as lost, and what was granted goes back.
    pub(crate) fn give_back(&mut self) {
        self.lose();
        self.change(|slots, in_use, now| {
            for it in std::mem::take(&mut slots.granted) {
                in_use.release(&it.key.rule, it.key.key, it.number, it.slots, now);
            }
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut Self, &mut ProcessSlots<'_>, Tick)) {
        if self.acquires.is_empty() && self.granted.is_empty() {
            return;
        }
        let (shared, now) = (Arc::clone(&self.shared), self.shared.process_clock.now());
        let mut in_use = shared.engine.slots();
        change(self, &mut in_use, now);
        report(&shared, in_use, now);
    }
}

impl Drop for RequestSlots {
    fn drop(&mut self) {
        self.give_back();
    }
}

tollgate_core::debug_fields!(RequestSlots, it =>
    acquires: it.acquires.len(), granted: it.granted.len()
);
