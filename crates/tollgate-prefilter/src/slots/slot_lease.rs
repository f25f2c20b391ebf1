//! A process's side of slots that are leased: it hands them out itself.

use tollgate_core::Tick;

use crate::slots::{
    slot_message::{SlotMessage, SlotOutcome, SlotOwner, SlotReply},
    slot_terms::SlotTerms,
};

/// The slots of one key that a process has on lease, and those in use.
///
/// One message is in flight at a time. Times and numbers are those of a [`SlotHolder`](crate::SlotHolder).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLease {
    owner: SlotOwner,
    running: u32,
    /// The slots that may be in use. Fewer than run where the store has taken some back.
    usable: u32,
    /// No request starts from here on.
    deadline: Tick,
    newest: u64,
    is_in_flight: bool,
    is_settled: bool,
    renew_at: Tick,
    /// `is_settled` and `renew_at` before the message in flight.
    before: (bool, Tick),
}

impl SlotLease {
    /// A process that has nothing on lease.
    #[must_use]
    pub fn new(owner: SlotOwner) -> Self {
        Self {
            owner,
            running: 0,
            usable: 0,
            deadline: 0,
            newest: 0,
            is_in_flight: false,
            is_settled: true,
            renew_at: 0,
            before: (true, 0),
        }
    }

    /// The requests that run.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running
    }

    /// The slots that may be used now.
    #[must_use]
    pub fn usable(&self) -> u32 {
        self.usable
    }

    /// No request starts on the lease from here on.
    #[must_use]
    pub fn deadline(&self) -> Tick {
        self.deadline
    }

    /// Starts a request on the lease, if it has slots left.
    pub fn start(&mut self, slots: u32, now: Tick) -> bool {
        self.expire(now);
        let fits = now < self.deadline && self.running.saturating_add(slots) <= self.usable;
        if fits {
            self.running += slots;
        }
        fits
    }

    /// Requests that held `slots` slots have ended. The slots stay on lease.
    pub fn end(&mut self, slots: u32) {
        if self.running > self.usable {
            // The store counts it still, and it does not stay on lease.
            self.is_settled = false;
        }
        self.running = self.running.saturating_sub(slots);
    }

    /// A message that wants `want` slots more and returns `returned` idle ones; with neither, a renewal. None while another is
    /// in flight. [`on_reply`](Self::on_reply) or [`give_up`](Self::give_up) has to follow.
    pub fn message(
        &mut self,
        seq: u64,
        (want, returned): (u32, u32),
        now: Tick,
        terms: &SlotTerms,
    ) -> Option<SlotMessage> {
        if self.is_in_flight {
            return None;
        }
        debug_assert!(seq > self.newest, "the numbers of messages grow");
        self.expire(now);
        // Lowered before it is sent: a slot on its way back is not used any more.
        let kept = self.usable.saturating_sub(returned);
        let usable = self.usable.min(kept.max(self.running));
        self.before = match usable == self.usable {
            true => (self.is_settled, self.renew_at),
            false => (false, now),
        };
        self.usable = usable;
        self.newest = seq;
        (self.is_in_flight, self.is_settled) = (true, false);
        self.renew_at = now.saturating_add(terms.renew_after());
        Some(SlotMessage {
            owner: self.owner,
            seq,
            lo: self.running,
            // Those that have outlived their lease run as well.
            hi: self.usable.max(self.running),
            want,
            is_exact: true,
        })
    }

    /// Processes the reply to a message that was sent at `sent`.
    pub fn on_reply(
        &mut self,
        message: &SlotMessage,
        reply: &SlotReply,
        sent: Tick,
        now: Tick,
        terms: &SlotTerms,
    ) {
        if message.seq != self.newest || !self.is_in_flight {
            return;
        }
        self.is_in_flight = false;
        if reply.outcome == SlotOutcome::Stale {
            self.renew_at = now;
            return;
        }
        let granted = match reply.outcome {
            SlotOutcome::Granted { .. } => message.want,
            _ => 0,
        };
        // What the store does not count is not used, and what it counts above the limit neither.
        let kept = reply.count.saturating_sub(reply.over);
        self.usable = self.usable.saturating_add(granted).min(kept);
        self.deadline = self.deadline.max(terms.deadline(sent, reply.left));
        self.expire(now);
        // Otherwise the store counts slots that are not used any more.
        self.is_settled = self.usable.max(self.running) >= reply.count;
        if !self.is_settled {
            self.renew_at = now;
        }
    }

    /// The reply is lost. Slots that were granted come back with the next message, which is due now.
    pub fn give_up(&mut self, now: Tick) {
        self.is_in_flight = false;
        self.is_settled = false;
        self.renew_at = now;
    }

    /// The message in flight has certainly not reached the store: all is as before it, but for slots that it was to return, which
    /// stay out of use.
    pub fn not_sent(&mut self) {
        if std::mem::take(&mut self.is_in_flight) {
            (self.is_settled, self.renew_at) = self.before;
        }
    }

    /// Whether the store may know of slots of this process.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.running > 0 || self.usable > 0 || self.is_in_flight || !self.is_settled
    }

    /// When the next message is due, if one is.
    #[must_use]
    pub fn renew_at(&self) -> Option<Tick> {
        (self.is_listed() && !self.is_in_flight).then_some(self.renew_at)
    }

    /// At its end, the lease loses the slots that are idle; other processes may have them.
    fn expire(&mut self, now: Tick) {
        if now >= self.deadline {
            self.usable = self.usable.min(self.running);
        }
    }
}
