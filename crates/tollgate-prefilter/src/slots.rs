//! Slots: a limit on how many requests of a key run at once, in all processes together. The store counts them; a process is known
//! to it for a term after its last message, which says what it has in use. If it crashes, its slots are free then.
//!
//! `docs/design/slots.md` has the protocol, and what it promises.

use std::{any::Any, collections::BTreeSet, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::{Check, Tick, store::Fingerprint};

/// What one process has in use of the slots of one key.
///
/// Times are by the process's own clock, which never goes back. Each message takes a number from one counter of the process, which
/// only grows, also while nothing is known of the key. The number has to be drawn in the same step as the message, under the lock
/// that keeps the holder.
///
/// A message is sent as soon as it is made. Its reply is processed with the time at which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHolder {
    owner: SlotOwner,
    /// The requests that run.
    running: u32,
    /// The slots wanted by acquires in flight that are not void. Wider than one of them may want: nothing is in flight at 0.
    pending: u64,
    /// Acquires with a smaller number are void.
    void_before: u64,
    /// Grants with a smaller number were forgotten by the store.
    outlived_before: u64,
    /// If all that is in flight reaches the store.
    state: ReportState,
    /// If the acquires in flight do not. What has happened since they were made counts here too.
    before: ReportState,
}

/// What a process has reported to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReportState {
    newest: u64,
    /// An exact message has reported what runs: nothing has ended since.
    is_reported: bool,
    /// The newest message was exact and nothing has ended since, and the store has replied to it.
    is_settled: bool,
    /// Only an exact message puts it off.
    renew_at: Tick,
}

impl SlotHolder {
    /// A process that has nothing in use.
    pub fn new(owner: SlotOwner) -> Self {
        let nothing = ReportState {
            newest: 0,
            is_reported: true,
            is_settled: true,
            renew_at: 0,
        };
        Self {
            owner,
            running: 0,
            pending: 0,
            void_before: 0,
            outlived_before: 0,
            state: nothing,
            before: nothing,
        }
    }

    /// The requests that run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Acquires slots for one request, at least one. [`on_acquired`](Self::on_acquired), [`give_up`](Self::give_up) or
    /// [`not_sent`](Self::not_sent) has to follow.
    pub fn acquire(&mut self, seq: u64, want: u32, now: Tick, terms: &SlotTerms) -> SlotMessage {
        if self.pending == 0 {
            self.before = self.state;
        }
        let message = self.message(seq, want, self.pending == 0, now, terms);
        self.pending += u64::from(want);
        message
    }

    /// Processes the reply to an acquire that was sent at `sent`, and says what becomes of its request. It is `Stale` also if a renewal was
    /// sent meanwhile, or the reply took longer than the slots are good for: the request may acquire again.
    pub fn on_acquired(
        &mut self,
        message: &SlotMessage,
        reply: &SlotReply,
        sent: Tick,
        now: Tick,
        terms: &SlotTerms,
    ) -> SlotOutcome {
        let is_void = self.is_void(message);
        self.take_out(message);
        self.note(message, reply, now, terms);
        if message.is_exact && !is_void {
            // It was sent, whatever becomes of those in flight after it.
            self.before = self.state;
        }
        match reply.outcome {
            SlotOutcome::Denied => SlotOutcome::Denied,
            // The renewal has told the store that it does not run.
            _ if is_void => SlotOutcome::Stale,
            SlotOutcome::Granted { fence } if now < terms.deadline(sent, reply.left) => {
                self.running += message.want;
                SlotOutcome::Granted { fence }
            }
            SlotOutcome::Granted { .. } => {
                // The store may count it still.
                self.in_both(|state| state.is_settled = false);
                self.renew_by(now);
                SlotOutcome::Stale
            }
            SlotOutcome::Stale => SlotOutcome::Stale,
        }
    }

    /// The reply to an acquire is lost, or its request has gone. The next renewal frees the slots if they were granted; it is due as
    /// after the [end](Self::end) of a request.
    pub fn give_up(&mut self, message: &SlotMessage, now: Tick, terms: &SlotTerms) {
        self.take_out(message);
        self.tell_soon(now, terms);
    }

    /// An acquire has certainly not reached the store: what there is to tell is what it would be if it had not been made, ends of
    /// requests since then included.
    pub fn not_sent(&mut self, message: &SlotMessage, now: Tick) {
        if self.is_void(message) {
            // The renewal since then says all that it said.
            return;
        }
        self.take_out(message);
        // Those in flight after an exact one neither say what has ended nor begin a term.
        if message.is_exact || self.pending == 0 {
            self.state = self.before;
        }
        self.tell_if_free(now);
    }

    /// Requests that held `slots` slots have ended. Any later exact message says so. A renewal does at once, unless it would void
    /// acquires in flight: these are mostly answered sooner.
    pub fn end(&mut self, slots: u32, now: Tick, terms: &SlotTerms) {
        self.running = self.running.saturating_sub(slots);
        self.tell_soon(now, terms);
    }

    /// The store may count slots that are not in use, and what is in flight does not say so.
    fn tell_soon(&mut self, now: Tick, terms: &SlotTerms) {
        self.in_both(|state| (state.is_reported, state.is_settled) = (false, false));
        let delay = if self.pending == 0 { 0 } else { terms.patience };
        self.renew_by(now.saturating_add(delay));
    }

    /// The next renewal is due then, unless it is sooner.
    pub(crate) fn renew_by(&mut self, at: Tick) {
        self.in_both(|state| state.renew_at = state.renew_at.min(at));
    }

    /// A renewal voids nothing any more.
    fn tell_if_free(&mut self, now: Tick) {
        if self.pending == 0 && !self.state.is_reported {
            self.renew_by(now);
        }
    }

    fn in_both(&mut self, change: impl Fn(&mut ReportState)) {
        change(&mut self.state);
        change(&mut self.before);
    }

    /// An acquire is in flight no more.
    fn take_out(&mut self, message: &SlotMessage) {
        if !self.is_void(message) {
            self.pending = self.pending.saturating_sub(u64::from(message.want));
        }
    }

    /// Whether slots are in use, or wanted.
    pub(crate) fn is_in_use(&self) -> bool {
        self.running > 0 || self.pending > 0
    }

    /// Whether the store may know of slots of this process, so that it has to be renewed. Otherwise the holder may be forgotten.
    pub fn is_listed(&self) -> bool {
        self.is_in_use() || !self.state.is_settled
    }

    /// When the next renewal is due, if one is.
    pub fn renew_at(&self) -> Option<Tick> {
        self.is_listed().then_some(self.state.renew_at)
    }

    /// Says exactly what is in use. Acquires in flight are void from now on: a grant that still comes is not used.
    pub fn renew(&mut self, seq: u64, now: Tick, terms: &SlotTerms) -> SlotMessage {
        self.pending = 0;
        self.message(seq, 0, true, now, terms)
    }

    /// Processes the reply to a release or a renewal.
    pub fn on_renewed(
        &mut self,
        message: &SlotMessage,
        reply: &SlotReply,
        now: Tick,
        terms: &SlotTerms,
    ) {
        self.note(message, reply, now, terms);
        if reply.outcome == SlotOutcome::Stale && message.seq == self.state.newest {
            // No message of this life is newer: the number has to grow.
            self.renew_by(now);
        }
    }

    /// Whether a grant to this acquire would not be used: a renewal was sent since.
    pub fn is_void(&self, message: &SlotMessage) -> bool {
        message.seq < self.void_before
    }

    /// Whether the store has forgotten the grant with this number while its request ran. The request goes on, and occupies its
    /// slots again, but others may have been granted them meanwhile.
    pub fn is_outlived(&self, seq: u64) -> bool {
        seq < self.outlived_before
    }

    fn message(
        &mut self,
        seq: u64,
        want: u32,
        is_exact: bool,
        now: Tick,
        terms: &SlotTerms,
    ) -> SlotMessage {
        debug_assert!(seq > self.state.newest, "the numbers of messages grow");
        self.state.newest = seq;
        self.state.is_settled = false;
        if is_exact {
            self.state.is_reported = true;
            self.void_before = seq;
            self.state.renew_at = now.saturating_add(terms.renew_after());
        }
        SlotMessage {
            owner: self.owner,
            seq,
            lo: self.running,
            hi: self
                .running
                .saturating_add(u32::try_from(self.pending).unwrap_or(u32::MAX)),
            want,
            is_exact,
        }
    }

    fn note(&mut self, message: &SlotMessage, reply: &SlotReply, now: Tick, terms: &SlotTerms) {
        let is_stale = reply.outcome == SlotOutcome::Stale;
        if is_stale && message.is_exact {
            // The store has not read it, and later ones may not be exact.
            self.tell_soon(now, terms);
        } else {
            self.tell_if_free(now);
        }
        if is_stale {
            return;
        }
        self.in_both(|state| {
            if message.seq == state.newest && message.is_exact && state.is_reported {
                state.is_settled = true;
            }
        });
        if reply.is_new {
            self.outlived_before = self.outlived_before.max(message.seq);
        }
    }
}

// What a process and the store say to each other about slots.

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
    /// By how much the clock of a process may fall behind that of the store within a term, in µs: a hundredth of it.
    pub margin: Tick,
}

impl SlotTerms {
    /// Those of a term in µs.
    pub fn new(term: Tick) -> Self {
        Self {
            term,
            patience: term / 500,
            margin: term / 100,
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

// The slots of one state, in the entry of its key, and when which state is due.

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
        let due_at = state
            .holder
            .renew_at()
            .filter(|_| !state.is_abandoned(now, &self.terms));
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
        let patience_of = |deadline| terms.of_store(deadline).patience;
        let patience = [10_000, 50_000, 2_000_000].map(patience_of);
        assert_eq!(patience, [30_000, 50_000, 500_000]);
    }

    #[test]
    fn no_request_starts_within_the_margin_of_the_end_of_its_slots() {
        let terms = SlotTerms::new(15_000_000);
        assert_eq!(terms.deadline(1_000_000, 15_000_000), 15_850_000);
        let margin = 1_000_000;
        let wider = SlotTerms { margin, ..terms };
        assert_eq!(wider.deadline(1_000_000, 15_000_000), 15_000_000);
        assert_eq!(terms.deadline(0, 1), 0);
    }
}
