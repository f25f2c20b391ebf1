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
            // The store counts it still, and it does not stay on lease. A message in flight does not say so.
            self.is_settled = false;
            self.before.0 = false;
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

    /// The message in flight has certainly not reached the store: all is as if it had not been made, but for slots that it was to
    /// return, which stay out of use.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_grantor::{SlotGrantor, SlotState};

    const TERM: Tick = 15_000_000;
    const NOW: Tick = 1_700_000_000_000_000;

    fn terms() -> SlotTerms {
        SlotTerms::new(TERM)
    }

    fn message(lease: &mut SlotLease, seq: u64, change: (u32, u32), now: Tick) -> SlotMessage {
        let message = lease.message(seq, change, now, &terms());
        message.expect("none is in flight")
    }

    fn reply(lease: &mut SlotLease, message: &SlotMessage, reply: &SlotReply, now: Tick) {
        lease.on_reply(message, reply, now, now, &terms());
    }

    /// A lease of two slots of which so many are in use, and the store.
    fn leased(running: u32) -> (SlotLease, SlotState) {
        let (mut lease, mut state) = (SlotLease::new(SlotOwner(1)), SlotState::default());
        let wants = message(&mut lease, 1, (2, 0), NOW);
        let granted = SlotGrantor::new(2, TERM).decide(&mut state, NOW, &wants);
        reply(&mut lease, &wants, &granted, NOW);
        assert!(running == 0 || lease.start(running, NOW));
        (lease, state)
    }

    /// The same after a renewal under another limit.
    fn lowered(running: u32, limit: u32) -> (SlotLease, SlotState) {
        let (mut lease, mut state) = leased(running);
        let renewal = message(&mut lease, 2, (0, 2), NOW);
        let lowered = SlotGrantor::new(limit, TERM).decide(&mut state, NOW, &renewal);
        reply(&mut lease, &renewal, &lowered, NOW);
        (lease, state)
    }

    #[test]
    fn a_lease_is_used_until_its_deadline_and_idle_slots_are_lost_then() {
        let end = terms().deadline(NOW, TERM);
        let (mut lease, _) = leased(1);
        assert_eq!((lease.deadline(), lease.usable()), (end, 2));
        assert!(!lease.start(2, end - 1), "one is free");
        assert!(lease.start(1, end - 1));
        let (mut lease, _) = leased(1);
        assert!(!lease.start(1, end));
        assert_eq!((lease.running(), lease.usable()), (1, 1));
        // A message says so as well.
        let (mut lease, _) = leased(1);
        let renewal = message(&mut lease, 2, (0, 0), end);
        assert_eq!((renewal.lo, renewal.hi, lease.usable()), (1, 1, 1));
    }

    #[test]
    fn one_message_is_in_flight_at_a_time() {
        let (mut lease, _) = leased(1);
        assert_eq!(lease.renew_at(), Some(NOW + TERM / 3));
        let renewal = message(&mut lease, 2, (0, 0), NOW);
        assert_eq!(lease.message(3, (0, 0), NOW, &terms()), None);
        assert!(lease.renew_at().is_none() && lease.is_listed());
        assert_eq!((renewal.lo, renewal.hi), (1, 2));
    }

    #[test]
    fn no_more_is_returned_than_is_idle() {
        let (mut lease, _) = leased(1);
        let returns = message(&mut lease, 2, (0, 9), NOW);
        assert_eq!((returns.lo, returns.hi, lease.usable()), (1, 1, 1));
    }

    #[test]
    fn what_the_store_counts_above_its_limit_runs_on_and_is_not_used_again() {
        let (mut lease, mut state) = lowered(2, 1);
        assert_eq!((lease.running(), lease.usable()), (2, 1));
        // The store knows of both: nothing is to be said before the next renewal.
        assert_eq!(lease.renew_at(), Some(NOW + TERM / 3));
        let renewal = message(&mut lease, 3, (0, 0), NOW + 1);
        assert_eq!((renewal.lo, renewal.hi, lease.usable()), (2, 2, 1));
        let renewed = SlotGrantor::new(1, TERM).decide(&mut state, NOW + 1, &renewal);
        reply(&mut lease, &renewal, &renewed, NOW + 1);
        lease.end(1);
        assert!(!lease.start(1, NOW + 1));
    }

    #[test]
    fn the_end_of_what_was_above_the_limit_is_reported() {
        let (mut lease, mut state) = lowered(1, 0);
        assert_eq!((lease.running(), lease.usable()), (1, 0));
        assert!(lease.is_listed());
        lease.end(1);
        assert!(lease.is_listed(), "the store counts it");
        let report = message(&mut lease, 3, (0, 0), NOW);
        let reply_to_it = SlotGrantor::new(0, TERM).decide(&mut state, NOW, &report);
        reply(&mut lease, &report, &reply_to_it, NOW);
        assert_eq!((reply_to_it.count, lease.is_listed()), (0, false));
    }

    #[test]
    fn the_end_of_what_was_above_the_limit_is_reported_if_a_message_in_flight_was_not_sent() {
        let (mut lease, _) = lowered(1, 0);
        let due = lease.renew_at();
        let _renewal = message(&mut lease, 3, (0, 0), NOW + 1);
        lease.end(1);
        lease.not_sent();
        assert_eq!((lease.is_listed(), lease.renew_at()), (true, due));
    }

    #[test]
    fn what_the_store_has_forgotten_by_itself_is_not_reported() {
        let (mut lease, _) = leased(2);
        lease.end(2);
        assert!(lease.is_listed());
        assert!(!lease.start(1, terms().deadline(NOW, TERM)));
        assert!(!lease.is_listed());
    }

    #[test]
    fn a_return_that_came_too_late_is_said_again_at_once() {
        let (mut lease, _) = leased(0);
        let returns = message(&mut lease, 2, (0, 2), NOW);
        let stale = SlotReply {
            outcome: SlotOutcome::Stale,
            count: 2,
            free: 0,
            over: 0,
            left: TERM,
            is_new: false,
        };
        reply(&mut lease, &returns, &stale, NOW + 7);
        assert_eq!((lease.usable(), lease.renew_at()), (0, Some(NOW + 7)));
    }

    #[test]
    fn a_reply_counts_if_it_is_that_to_the_message_in_flight() {
        let (mut lease, mut state) = (SlotLease::new(SlotOwner(1)), SlotState::default());
        let grantor = SlotGrantor::new(4, TERM);
        let lost = message(&mut lease, 1, (2, 0), NOW);
        let granted = grantor.decide(&mut state, NOW, &lost);
        lease.give_up(NOW + 1);
        reply(&mut lease, &lost, &granted, NOW + 1);
        assert_eq!((lease.usable(), lease.renew_at()), (0, Some(NOW + 1)));
        let next = message(&mut lease, 2, (1, 0), NOW + 2);
        reply(&mut lease, &lost, &granted, NOW + 2);
        assert_eq!((lease.usable(), lease.renew_at()), (0, None));
        let granted = grantor.decide(&mut state, NOW + 2, &next);
        reply(&mut lease, &next, &granted, NOW + 2);
        assert_eq!(lease.usable(), 1);
        // Nor is one that has been answered unsent.
        let due = lease.renew_at();
        lease.not_sent();
        assert_eq!((lease.renew_at(), lease.usable()), (due, 1));
    }

    #[test]
    fn a_deadline_counts_from_when_the_message_was_sent_and_is_never_an_earlier_one() {
        let (mut lease, mut state) = (SlotLease::new(SlotOwner(1)), SlotState::default());
        let wants = message(&mut lease, 1, (2, 0), NOW);
        let granted = SlotGrantor::new(2, TERM).decide(&mut state, NOW, &wants);
        lease.on_reply(&wants, &granted, NOW, NOW + TERM / 2, &terms());
        let end = terms().deadline(NOW, TERM);
        assert_eq!((lease.deadline(), lease.usable()), (end, 2));
        let renewal = message(&mut lease, 2, (0, 0), NOW + 1);
        let shorter = SlotReply {
            left: TERM / 2,
            ..granted
        };
        reply(&mut lease, &renewal, &shorter, NOW + 1);
        assert_eq!(lease.deadline(), end);
    }

    #[test]
    fn slots_that_were_granted_too_late_go_back_at_once() {
        let (mut lease, mut state) = (SlotLease::new(SlotOwner(1)), SlotState::default());
        let wants = message(&mut lease, 1, (2, 0), NOW);
        let granted = SlotGrantor::new(2, TERM).decide(&mut state, NOW, &wants);
        let late = terms().deadline(NOW, TERM);
        lease.on_reply(&wants, &granted, NOW, late, &terms());
        assert_eq!((lease.usable(), lease.renew_at()), (0, Some(late)));
    }
}
