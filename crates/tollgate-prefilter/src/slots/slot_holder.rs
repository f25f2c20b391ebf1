//! A process's side of slots, where each request acquires its own.

use tollgate_core::Tick;

use crate::slots::slot_message::{SlotMessage, SlotOutcome, SlotOwner, SlotReply, SlotTerms};

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

/// What becomes of a request whose acquire has been answered.
// Exhaustive: a store that does not act on one of these loses units or slots, so a new one may not compile unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStart {
    /// It has its slots.
    Started {
        /// The fencing token.
        fence: u64,
    },
    /// They do not fit; this number is free.
    Denied {
        /// The slots that are free.
        free: u32,
    },
    /// The reply counts for nothing: a later message of this process came first, or a renewal was sent meanwhile, or the reply took
    /// longer than the slots are good for. The request may acquire again.
    Again,
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

    /// Processes the reply to an acquire that was sent at `sent`.
    pub fn on_acquired(
        &mut self,
        message: &SlotMessage,
        reply: &SlotReply,
        sent: Tick,
        now: Tick,
        terms: &SlotTerms,
    ) -> SlotStart {
        let is_void = self.is_void(message);
        self.take_out(message);
        self.note(message, reply, now, terms);
        if message.is_exact && !is_void {
            // It was sent, whatever becomes of those in flight after it.
            self.before = self.state;
        }
        match reply.outcome {
            SlotOutcome::Denied => SlotStart::Denied { free: reply.free },
            // The renewal has told the store that it does not run.
            _ if is_void => SlotStart::Again,
            SlotOutcome::Granted { fence } if now < terms.deadline(sent, reply.left) => {
                self.running += message.want;
                SlotStart::Started { fence }
            }
            SlotOutcome::Granted { .. } => {
                // The store may count it still.
                self.in_both(|state| state.is_settled = false);
                self.renew_by(now);
                SlotStart::Again
            }
            SlotOutcome::Stale => SlotStart::Again,
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
