//! The store's side of slots.

use smallvec::SmallVec;
use tollgate_core::Tick;

use crate::slots::slot_message::{SlotMessage, SlotOutcome, SlotOwner, SlotReply};

/// Grants the slots of a key: what the script of a store does, line for line.
///
/// ```
/// use tollgate_prefilter::{SlotGrantor, SlotHolder, SlotOutcome, SlotOwner, SlotStart, SlotState, SlotTerms};
///
/// let terms = SlotTerms::new(15_000_000);
/// let grantor = SlotGrantor::new(1, terms.term());
/// let mut state = SlotState::default();
/// let (mut here, mut there) = (SlotHolder::new(SlotOwner(1)), SlotHolder::new(SlotOwner(2)));
/// let now = 1_700_000_000_000_000;
///
/// let message = here.acquire(1, 1, now, &terms);
/// let reply = grantor.decide(&mut state, now, &message);
/// assert!(matches!(here.on_acquired(&message, &reply, now, now, &terms), SlotStart::Started { .. }));
///
/// let message = there.acquire(1, 1, now, &terms);
/// assert_eq!(grantor.decide(&mut state, now, &message).outcome, SlotOutcome::Denied);
///
/// // A process that crashes loses its slots after a term.
/// let later = now + terms.term();
/// let message = there.acquire(2, 1, later, &terms);
/// let reply = grantor.decide(&mut state, later, &message);
/// assert!(matches!(there.on_acquired(&message, &reply, later, later, &terms), SlotStart::Started { .. }));
/// ```
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
}

impl SlotGrantor {
    /// A grantor of `limit` slots, and the term of an owner in µs.
    #[must_use]
    pub fn new(limit: u32, term: Tick) -> Self {
        Self { limit, term }
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
            let used = self.used(state, now);
            return SlotReply {
                outcome: SlotOutcome::Stale,
                free: self.free(used),
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
            },
        };
        record.count = message.lo.max(record.count.min(message.hi));
        record.seq = message.seq;
        // A message that does not know what is in use must not keep alive what was lost.
        if message.is_exact || known.is_none() {
            record.expires_at = now.saturating_add(self.term);
            record.term = self.term;
        }
        let want = u64::from(message.want);
        let mut used = self.used(state, now) + u64::from(record.count);
        let fits = used + want <= limit;
        if fits && want > 0 {
            // It also grows over a time in which the store kept nothing of the key.
            state.fence = now.max(state.fence + 1);
        }
        let is_granted = want == 0 || (fits && !is_denied);
        if is_granted {
            record.count += message.want;
            used += want;
        }
        // Also one without slots: it keeps out messages that arrive late.
        state.owners.push(record);
        SlotReply {
            outcome: match is_granted {
                true => SlotOutcome::Granted { fence: state.fence },
                false => SlotOutcome::Denied,
            },
            free: self.free(used),
            left: record.expires_at - now,
            is_new: known.is_none(),
        }
    }

    fn free(&self, used: u64) -> u32 {
        // At most the limit.
        u64::from(self.limit).saturating_sub(used) as u32
    }
}

/// When an owner is forgotten: not later than its term from now, if the store's clock was set back.
fn end_of(record: &SlotRecord, now: Tick) -> Tick {
    record.expires_at.min(now.saturating_add(record.term))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Tick = 15_000_000;
    const NOW: Tick = 1_700_000_000_000_000;

    /// A message of an owner that has nothing in use.
    fn wants(owner: u64, seq: u64, want: u32) -> SlotMessage {
        SlotMessage {
            owner: SlotOwner(owner),
            seq,
            lo: 0,
            hi: 0,
            want,
            is_exact: true,
        }
    }

    #[test]
    fn what_another_rule_denies_is_granted_nothing_and_its_owner_is_known() {
        let (grantor, mut state) = (SlotGrantor::new(2, TERM), SlotState::default());
        let reply = grantor.deny(&mut state, NOW, &wants(1, 1, 1));
        assert_eq!(reply.outcome, SlotOutcome::Denied);
        assert_eq!((reply.free, reply.is_new), (2, true));
        // One that wants nothing has all it wants.
        let reply = grantor.deny(&mut state, NOW, &wants(1, 2, 0));
        assert!(reply.is_granted() && !reply.is_new);
    }

    #[test]
    fn a_state_is_fresh_when_the_last_owner_is_forgotten() {
        let (grantor, mut state) = (SlotGrantor::new(3, TERM), SlotState::default());
        assert_eq!(grantor.fresh_after(&state, NOW), 0);
        for (owner, at) in [(1, NOW), (2, NOW + 5)] {
            grantor.decide(&mut state, at, &wants(owner, 1, 1));
        }
        assert_eq!(grantor.fresh_after(&state, NOW + 10), TERM - 5);
        let used = [TERM - 1, TERM, TERM + 4, TERM + 5].map(|at| grantor.used(&state, NOW + at));
        assert_eq!(used, [2, 1, 1, 0]);
    }

    #[test]
    fn a_message_that_comes_twice_changes_nothing_and_says_what_is_counted() {
        let (grantor, mut state) = (SlotGrantor::new(3, TERM), SlotState::default());
        let message = wants(1, 1, 2);
        assert!(grantor.decide(&mut state, NOW, &message).is_granted());
        let before = state.clone();
        let reply = grantor.decide(&mut state, NOW + 5, &message);
        assert_eq!((reply.outcome, reply.is_new), (SlotOutcome::Stale, false));
        assert_eq!((reply.free, reply.left), (1, TERM - 5));
        assert_eq!(state, before);
    }

    #[test]
    fn nothing_more_is_granted_above_a_lowered_limit() {
        let mut state = SlotState::default();
        SlotGrantor::new(3, TERM).decide(&mut state, NOW, &wants(1, 1, 3));
        let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &wants(2, 1, 1));
        assert_eq!(reply.outcome, SlotOutcome::Denied);
        assert_eq!(reply.free, 0);
    }

    /// A clock that is set back by an hour.
    const BACK: Tick = NOW - 3_600_000_000;

    #[test]
    fn an_owner_is_forgotten_a_term_after_the_clock_was_set_back() {
        let (grantor, mut state) = (SlotGrantor::new(3, TERM), SlotState::default());
        let message = wants(1, 1, 1);
        grantor.decide(&mut state, NOW, &message);
        assert_eq!(grantor.fresh_after(&state, BACK), TERM);
        let reply = grantor.decide(&mut state, BACK, &message);
        assert_eq!((reply.outcome, reply.left), (SlotOutcome::Stale, TERM));
        // From the first message on that the store has then, whomever it is of.
        grantor.decide(&mut state, BACK, &wants(2, 1, 1));
        let used = [TERM - 1, TERM].map(|later| grantor.used(&state, BACK + later));
        assert_eq!(used, [2, 0]);
    }

    #[test]
    fn an_owner_that_was_forgotten_begins_anew_with_any_number() {
        let (grantor, mut state) = (SlotGrantor::new(1, TERM), SlotState::default());
        grantor.decide(&mut state, NOW, &wants(1, 5, 1));
        let reply = grantor.decide(&mut state, NOW + TERM, &wants(1, 3, 1));
        assert!(reply.is_granted() && reply.is_new);
    }

    #[test]
    fn grants_alone_have_numbers_and_what_they_take_is_not_free() {
        let (grantor, mut state) = (SlotGrantor::new(3, TERM), SlotState::default());
        let reply = grantor.decide(&mut state, NOW, &wants(1, 1, 2));
        assert_eq!(reply.outcome, SlotOutcome::Granted { fence: NOW });
        assert_eq!(reply.free, 1);
        // Neither what is denied nor a renewal.
        let denied = grantor.decide(&mut state, NOW + 1, &wants(2, 1, 2));
        let renewed = grantor.decide(&mut state, NOW + 2, &wants(2, 2, 0));
        assert_eq!((denied.free, renewed.free, state.fence), (1, 1, NOW));
        let next = grantor.decide(&mut state, NOW, &wants(2, 3, 1));
        assert_eq!(next.outcome, SlotOutcome::Granted { fence: NOW + 1 });
    }

    #[test]
    fn a_message_that_does_not_know_what_is_in_use_leaves_the_term_as_it_is() {
        let (grantor, mut state) = (SlotGrantor::new(3, TERM), SlotState::default());
        grantor.decide(&mut state, NOW, &wants(1, 1, 1));
        let inexact = SlotMessage {
            hi: 1,
            is_exact: false,
            ..wants(1, 2, 1)
        };
        let reply = grantor.decide(&mut state, NOW + 5, &inexact);
        assert_eq!((grantor.used(&state, NOW), reply.left), (2, TERM - 5));
    }
}
