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

impl SlotReply {
    /// Whether the slots wanted were granted.
    pub fn is_granted(&self) -> bool {
        matches!(self.outcome, SlotOutcome::Granted { .. })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lives_of_a_process_are_two_owners() {
        assert_ne!(SlotOwner::random(), SlotOwner::random());
    }

    #[test]
    fn a_reply_that_came_too_late_has_granted_nothing() {
        let of = |outcome| SlotReply {
            outcome,
            free: 1,
            left: 1,
            is_new: false,
        };
        let outcomes = [
            SlotOutcome::Granted { fence: 1 },
            SlotOutcome::Denied,
            SlotOutcome::Stale,
        ];
        let granted = outcomes.map(|outcome| of(outcome).is_granted());
        assert_eq!(granted, [true, false, false]);
    }
}
