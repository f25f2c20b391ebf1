//! The store's side of slots.

use smallvec::SmallVec;
use tollgate_core::Tick;
use tollgate_prefilter::{SlotMessage, SlotOutcome, SlotOwner, SlotReply};

/// Grants the slots of a key: what the script of a store does, line for line.
///
/// # Accuracy
///
/// No request starts above the limit while the slots of all that run are known to the store. A slot that was lost, by a crash or
/// with a reply, is missing for at most the term and the longest delay of a message. Requests that outlive their owner's term go on,
/// at most as many as held slots then; they occupy slots again as soon as the store hears from their process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotGrantor {
    limit: u32,
    term: Tick,
    waits: bool,
}

/// What the store keeps of a key. The default is fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// The number of the last grant.
    pub fence: u64,
    /// The owners that are known.
    // Of a library, but a list without an allocation: a model of slots clones this for each of millions of states.
    pub owners: SmallVec<[SlotRecord; 2]>,
}

/// What the store keeps of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// Who it is.
    pub owner: SlotOwner,
    /// The number of the last message that was processed.
    pub seq: u64,
    /// When it is forgotten.
    pub expires_at: Tick,
    /// The term that it was given, in µs.
    pub term: Tick,
    /// The slots it has.
    pub count: u32,
    /// Whether its last message wanted slots that did not fit, under a rule that waits.
    pub waits: bool,
}

impl SlotGrantor {
    /// A grantor of `limit` slots, and the term of an owner in µs.
    #[must_use]
    pub fn new(limit: u32, term: Tick) -> Self {
        Self {
            limit,
            term,
            waits: false,
        }
    }

    /// The same of a rule that waits, or not.
    #[must_use]
    pub fn waits(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Processes a message.
    pub fn decide(&self, state: &mut SlotState, now: Tick, message: &SlotMessage) -> SlotReply {
        self.process(state, now, message, false)
    }

    /// Processes a message of a request that another rule denies: what it says is noted, and nothing is granted.
    pub fn deny(&self, state: &mut SlotState, now: Tick, message: &SlotMessage) -> SlotReply {
        self.process(state, now, message, true)
    }

    /// The slots in use now.
    #[must_use]
    pub fn used(&self, state: &SlotState, now: Tick) -> u64 {
        let alive = state.owners.iter().filter(|it| end_of(it, now) > now);
        alive.map(|it| u64::from(it.count)).sum()
    }

    /// In how many µs the state equals a fresh one: when its last owner is forgotten.
    #[must_use]
    pub fn fresh_after(&self, state: &SlotState, now: Tick) -> Tick {
        let ends = state.owners.iter().map(|it| end_of(it, now));
        ends.max().unwrap_or(0).saturating_sub(now)
    }

    fn process(
        &self,
        state: &mut SlotState,
        now: Tick,
        message: &SlotMessage,
        is_denied: bool,
    ) -> SlotReply {
        let limit = u64::from(self.limit);
        let mut owners = state.owners.iter();
        if let Some(known) = owners.find(|it| it.owner == message.owner && end_of(it, now) > now)
            && message.seq <= known.seq
        {
            return SlotReply {
                outcome: SlotOutcome::Stale,
                left: end_of(known, now) - now,
                is_new: false,
            };
        }
        // All that have expired: with a bound on their number, requests would be denied while slots are free.
        for record in &mut state.owners {
            record.expires_at = end_of(record, now);
        }
        state.owners.retain(|record| record.expires_at > now);
        let mut owners = state.owners.iter();
        let known = owners.position(|record| record.owner == message.owner);
        let mut record = match known {
            Some(index) => state.owners.remove(index),
            None => SlotRecord {
                owner: message.owner,
                seq: 0,
                expires_at: 0,
                term: 0,
                count: 0,
                waits: false,
            },
        };
        // Who waits and is still there, with fewer slots, finds one free: for the time in which it asks, in every half second.
        let is_ahead = |it: &SlotRecord| {
            it.waits && it.expires_at - it.term + 250_000 > now && it.count < record.count
        };
        let is_left = self.waits && now % 500_000 < 120_000 && state.owners.iter().any(is_ahead);
        record.count = message.lo.max(record.count.min(message.hi));
        record.seq = message.seq;
        // A message that does not know what is in use must not keep alive what was lost.
        if message.is_exact || known.is_none() {
            record.expires_at = now.saturating_add(self.term);
            record.term = self.term;
        }
        let want = u64::from(message.want);
        let used = self.used(state, now) + u64::from(record.count);
        let fits = used + want + u64::from(is_left) <= limit;
        record.waits = self.waits && want > 0 && want <= limit && !fits;
        if fits && want > 0 {
            // It also grows over a time in which the store kept nothing of the key.
            state.fence = now.max(state.fence + 1);
        }
        let is_granted = want == 0 || (fits && !is_denied);
        if is_granted {
            record.count += message.want;
        }
        // Also one without slots: it keeps out messages that arrive late.
        state.owners.push(record);
        SlotReply {
            outcome: match is_granted {
                true => SlotOutcome::Granted { fence: state.fence },
                false => SlotOutcome::Denied,
            },
            left: record.expires_at - now,
            is_new: known.is_none(),
        }
    }
}

/// When an owner is forgotten: not later than its term from now, if the store's clock was set back.
fn end_of(record: &SlotRecord, now: Tick) -> Tick {
    record.expires_at.min(now.saturating_add(record.term))
}
