//! What a process and the store say to each other about slots.

use tollgate_core::Tick;

/// A process as an owner of slots: a random id that is drawn anew at each start.
///
/// It stands for one life of a process. With the same id after a restart, a message of the earlier life that arrives late would free
/// the slots of requests that run in the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotOwner(pub u64);

impl SlotOwner {
    /// A new random id.
    pub fn random() -> Self {
        Self(fastrand::u64(1..))
    }
}

/// A message about the slots of one key.
///
/// All counts are absolute, so a message that is lost leaves no error behind that a later one would not correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMessage {
    /// Who sends it.
    pub owner: SlotOwner,
    /// Its number: of the messages that an owner sends about a key, a later one has the larger number.
    pub seq: u64,
    /// The requests that run: the least that the owner has in use.
    pub lo: u32,
    /// The most that it has in use: those that run, and those that earlier messages in flight may still be granted.
    pub hi: u32,
    /// The slots wanted; 0 for a release or a renewal.
    pub want: u32,
    /// Whether `hi` counts no message in flight: the owner knows what it has in use, and its term begins anew.
    pub is_exact: bool,
}

/// What the store replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotReply {
    /// What became of the slots wanted.
    pub outcome: SlotOutcome,
    /// The slots that are free now.
    pub free: u32,
    /// How long the store knows the owner unless it hears from it again, in µs.
    pub left: Tick,
    /// Whether the store did not know the owner: it is new, or its term has ended, or the store has lost its states.
    pub is_new: bool,
}

/// What became of the slots wanted.
// Exhaustive: a store that does not act on one of these loses units or slots, so a new one may not compile unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOutcome {
    /// They were granted. Of none wanted, none were.
    Granted {
        /// A number that grows with each grant of a key: a fencing token.
        fence: u64,
    },
    /// They do not fit.
    Denied,
    /// A later message of the owner came first; nothing was changed.
    Stale,
}

// How long an owner of slots is known.

/// How long the store knows an owner of slots that it does not hear from, and how exactly clocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTerms {
    /// The term, in µs.
    pub term: Tick,
    /// How long the end of a request may go untold, in µs, so that acquires in flight are not void: 30 ms of 15 s, or the deadline
    /// of the store, but at most half a second of 15 s.
    pub patience: Tick,
    margin: Tick,
}

impl SlotTerms {
    /// A term in µs. A hundredth of it is kept as a margin for clocks that do not run at the same rate.
    pub fn new(term: Tick) -> Self {
        Self::with_margin(term, term / 100)
    }

    /// The same with a margin in µs: by how much the clock of a process may fall behind that of the store within a term.
    pub fn with_margin(term: Tick, margin: Tick) -> Self {
        Self {
            term,
            margin,
            patience: term / 500,
        }
    }

    /// The same, for a store that answers within `deadline` µs, or never. An acquire that a renewal makes void is sent again: a
    /// store that is far would be asked in vain, again and again, if ends of requests were told before it can have answered.
    pub fn of_store(mut self, deadline: Tick) -> Self {
        self.patience = self.patience.max(deadline).min(self.retry_after());
        self
    }

    /// The pause between two renewals, in µs: a third of the term, so that one of them may be lost.
    pub fn renew_after(&self) -> Tick {
        self.term / 3
    }

    /// The pause before a renewal whose reply was lost is sent again, in µs: half a second of 15 s.
    pub(crate) fn retry_after(&self) -> Tick {
        self.term / 30
    }

    /// Until when a request may start on a slot: counted from the time at which its message was **sent**. Counted from the reply, it
    /// would start on a slot that another process has by then.
    pub fn deadline(&self, sent: Tick, left: Tick) -> Tick {
        sent.saturating_add(left).saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lives_of_a_process_are_two_owners() {
        assert_ne!(SlotOwner::random(), SlotOwner::random());
    }

    #[test]
    fn all_times_are_parts_of_the_term() {
        let terms = SlotTerms::new(15_000_000);
        assert_eq!((terms.patience, terms.retry_after()), (30_000, 500_000));
        assert_eq!((terms.term, terms.renew_after()), (15_000_000, 5_000_000));
        let patience = |deadline| terms.of_store(deadline).patience;
        let patience = [10_000, 50_000, 2_000_000].map(patience);
        assert_eq!(patience, [30_000, 50_000, 500_000]);
    }

    #[test]
    fn no_request_starts_within_the_margin_of_the_end_of_its_slots() {
        let terms = SlotTerms::new(15_000_000);
        assert_eq!(terms.deadline(1_000_000, 15_000_000), 15_850_000);
        let wider = SlotTerms::with_margin(15_000_000, 1_000_000);
        assert_eq!(wider.deadline(1_000_000, 15_000_000), 15_000_000);
        assert_eq!(terms.deadline(0, 1), 0);
    }
}
