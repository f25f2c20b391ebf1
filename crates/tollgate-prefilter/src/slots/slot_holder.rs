//! A process's side of slots, where each request acquires its own.

use tollgate_core::Tick;

use crate::slots::{
    slot_message::{SlotMessage, SlotOutcome, SlotOwner, SlotReply},
    slot_terms::SlotTerms,
};

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
    #[must_use]
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
    #[must_use]
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
        let delay = if self.pending == 0 {
            0
        } else {
            terms.patience()
        };
        self.renew_by(now.saturating_add(delay));
    }

    /// The next renewal is due then, unless it is sooner.
    pub fn renew_by(&mut self, at: Tick) {
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
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.running > 0 || self.pending > 0
    }

    /// Whether the store may know of slots of this process, so that it has to be renewed. Otherwise the holder may be forgotten.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.is_in_use() || !self.state.is_settled
    }

    /// When the next renewal is due, if one is.
    #[must_use]
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
    #[must_use]
    pub fn is_void(&self, message: &SlotMessage) -> bool {
        message.seq < self.void_before
    }

    /// Whether the store has forgotten the grant with this number while its request ran. The request goes on, and occupies its
    /// slots again, but others may have been granted them meanwhile.
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_grantor::{SlotGrantor, SlotState};

    const TERM: Tick = 15_000_000;
    const NOW: Tick = 1_700_000_000_000_000;

    fn terms() -> SlotTerms {
        SlotTerms::new(TERM)
    }

    /// A process with one request that runs, and the store.
    fn running() -> (SlotHolder, SlotState) {
        let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
        let message = holder.acquire(1, 1, NOW, &terms());
        let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
        let start = holder.on_acquired(&message, &reply, NOW, NOW, &terms());
        assert!(matches!(start, SlotStart::Started { .. }));
        (holder, state)
    }

    #[test]
    fn an_owner_that_lives_survives_one_renewal_that_is_lost_and_not_two() {
        let grantor = SlotGrantor::new(1, TERM);
        let second = 1_000_000;
        for lost in 0..3 {
            for delay in 0..15 {
                let (mut holder, mut state) = running();
                let due = holder.renew_at().expect("a request runs");
                assert_eq!(due, NOW + TERM / 3);
                let sent = due + lost * TERM / 3;
                let message = holder.renew(2, sent, &terms());
                let reply = grantor.decide(&mut state, sent + delay * second, &message);
                let survives = TERM / 3 * (lost + 1) + delay * second < TERM;
                assert_eq!(reply.is_new, !survives, "{lost} lost, {delay} s on its way");
                holder.on_renewed(&message, &reply, sent + delay * second, &terms());
                assert_eq!(holder.is_outlived(1), !survives);
                // It occupies its slot again.
                assert_eq!(grantor.used(&state, sent + delay * second), 1);
            }
        }
    }

    #[test]
    fn a_key_is_listed_until_the_store_has_replied_to_the_release() {
        let (mut holder, mut state) = running();
        holder.end(1, NOW, &terms());
        assert_eq!(holder.renew_at(), Some(NOW));
        let message = holder.renew(2, NOW, &terms());
        assert!(holder.is_listed());
        let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
        assert_eq!(reply.free, 1);
        holder.on_renewed(&message, &reply, NOW, &terms());
        assert!(!holder.is_listed());
    }

    #[test]
    fn a_request_that_gives_up_frees_its_slot_with_a_renewal_that_is_due_at_once() {
        let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
        let grantor = SlotGrantor::new(1, TERM);
        let message = holder.acquire(1, 1, NOW, &terms());
        let _lost = grantor.decide(&mut state, NOW, &message);
        holder.give_up(&message, NOW + 1, &terms());
        assert_eq!(holder.renew_at(), Some(NOW + 1));
        let message = holder.renew(2, NOW + 1, &terms());
        assert_eq!(grantor.decide(&mut state, NOW + 1, &message).free, 1);
    }

    #[test]
    fn grants_have_numbers_that_grow_over_a_time_in_which_nothing_is_kept() {
        let grantor = SlotGrantor::new(2, TERM);
        let fence = |state: &mut SlotState, now| {
            let mut holder = SlotHolder::new(SlotOwner(fastrand::u64(..)));
            let message = holder.acquire(1, 1, now, &terms());
            match grantor.decide(state, now, &message).outcome {
                SlotOutcome::Granted { fence } => fence,
                other => panic!("{other:?}"),
            }
        };
        let mut state = SlotState::default();
        let first = fence(&mut state, NOW);
        let second = fence(&mut state, NOW);
        let third = fence(&mut SlotState::default(), NOW + TERM);
        assert!(first < second && second < third);
    }

    #[test]
    fn a_reply_that_comes_after_the_slots_are_forgotten_starts_nothing() {
        let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
        let message = holder.acquire(1, 1, NOW, &terms());
        let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
        let late = terms().deadline(NOW, TERM);
        let start = holder.on_acquired(&message, &reply, NOW, late, &terms());
        assert_eq!((start, holder.running()), (SlotStart::Again, 0));
        assert!(holder.is_listed());
    }

    #[test]
    fn an_end_that_is_hidden_by_acquires_in_flight_is_reported_when_they_are_answered_or_soon() {
        let grantor = SlotGrantor::new(1, TERM);
        let (mut holder, mut state) = running();
        let first = holder.acquire(2, 1, NOW, &terms());
        let _denied = grantor.decide(&mut state, NOW, &first);
        holder.end(1, NOW, &terms());
        // It would void an acquire in flight, which is not held up for that.
        assert_eq!(holder.renew_at(), Some(NOW + terms().patience()));
        let second = holder.acquire(3, 1, NOW, &terms());
        let denied = grantor.decide(&mut state, NOW, &second);
        for message in [first, second] {
            let start = holder.on_acquired(&message, &denied, NOW, NOW, &terms());
            assert_eq!(start, SlotStart::Denied { free: 0 });
        }
        // It might be the first one's, for all that the store knows.
        assert_eq!((holder.running(), grantor.used(&state, NOW)), (0, 1));
        assert_eq!(holder.renew_at(), Some(NOW));
        let message = holder.renew(4, NOW, &terms());
        grantor.decide(&mut state, NOW, &message);
        assert_eq!(grantor.used(&state, NOW), 0);
    }

    #[test]
    fn an_end_is_reported_although_an_earlier_message_is_answered_after_it() {
        let (mut holder, mut state) = running();
        let message = holder.renew(2, NOW, &terms());
        holder.end(1, NOW, &terms());
        let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
        holder.on_renewed(&message, &reply, NOW, &terms());
        assert_eq!(holder.renew_at(), Some(NOW));
    }

    #[test]
    fn an_exact_message_that_a_later_one_has_overtaken_is_said_again() {
        let grantor = SlotGrantor::new(1, TERM);
        let (mut holder, mut state) = running();
        holder.end(1, NOW, &terms());
        let first = holder.acquire(2, 1, NOW, &terms());
        let second = holder.acquire(3, 1, NOW, &terms());
        assert!(first.is_exact && !second.is_exact);
        for message in [second, first] {
            let reply = grantor.decide(&mut state, NOW, &message);
            let _ = holder.on_acquired(&message, &reply, NOW, NOW, &terms());
        }
        // The second has hidden the end, and the first, which says it, came too late.
        assert_eq!((holder.running(), grantor.used(&state, NOW)), (0, 1));
        assert_eq!(holder.renew_at(), Some(NOW));
    }

    #[test]
    fn what_becomes_of_a_void_acquire_leaves_those_after_it_as_they_are() {
        let grantor = SlotGrantor::new(9, TERM);
        for case in 0..3 {
            let (mut holder, mut state) = running();
            let void = holder.acquire(2, 1, NOW, &terms());
            let granted = grantor.decide(&mut state, NOW, &void);
            let renewal = holder.renew(3, NOW + 5, &terms());
            assert!(holder.is_void(&void) && !holder.is_void(&renewal));
            let due = NOW + 5 + TERM / 3;
            assert_eq!(holder.renew_at(), Some(due));
            if case == 0 {
                // Nor is the renewal taken back.
                let mut early = holder;
                early.not_sent(&void, NOW + 5);
                assert_eq!(early.renew_at(), Some(due));
            }
            let next = holder.acquire(4, 2, NOW + 6, &terms());
            assert!(next.is_exact && holder.is_in_use());
            match case {
                0 => {
                    let start = holder.on_acquired(&void, &granted, NOW, NOW + 5, &terms());
                    assert_eq!(start, SlotStart::Again);
                }
                1 => holder.give_up(&void, NOW + 5, &terms()),
                _ => holder.not_sent(&void, NOW + 5),
            }
            if case != 1 {
                assert_eq!(holder.renew_at(), Some(due + 1));
                let mut without = holder;
                without.not_sent(&next, NOW + 6);
                assert_eq!(without.renew_at(), Some(due));
            }
            let last = holder.acquire(5, 1, NOW + 6, &terms());
            assert_eq!((last.lo, last.hi, last.is_exact), (1, 3, false), "{case}");
        }
    }

    #[test]
    fn an_acquire_in_flight_is_in_use_and_its_renewal_due_as_it_was_before_if_it_was_not_sent() {
        let mut holder = SlotHolder::new(SlotOwner(1));
        assert!(!holder.is_in_use() && !holder.is_listed());
        let message = holder.acquire(1, 1, NOW, &terms());
        assert!(holder.is_in_use() && holder.is_listed());
        holder.not_sent(&message, NOW);
        assert!(!holder.is_in_use() && !holder.is_listed());
    }

    /// Acquires in flight. The first one is exact.
    fn in_flight<const N: usize>(holder: &mut SlotHolder, now: Tick) -> [SlotMessage; N] {
        let mut seq = holder.state.newest;
        let messages = [(); N].map(|()| {
            seq += 1;
            holder.acquire(seq, 1, now, &terms())
        });
        assert!(messages[0].is_exact);
        messages
    }

    #[test]
    fn the_end_of_a_request_is_reported_although_an_acquire_in_flight_was_not_sent() {
        let (mut holder, _) = running();
        let [message] = in_flight(&mut holder, NOW + 1);
        holder.end(1, NOW + 2, &terms());
        holder.not_sent(&message, NOW + 3);
        assert_eq!(holder.renew_at(), Some(NOW + 3));
    }

    #[test]
    fn acquires_none_of_which_was_sent_leave_what_would_be_without_them() {
        let orders = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        let later = NOW + TERM / 4;
        for is_running in [true, false] {
            for order in orders {
                // The fourth: nothing ends.
                for end in 0..4 {
                    let (mut holder, mut without) = match is_running {
                        true => (running().0, running().0),
                        false => [(); 2].map(|()| SlotHolder::new(SlotOwner(1))).into(),
                    };
                    let messages: [_; 3] = in_flight(&mut holder, later);
                    for (index, message) in order.iter().enumerate() {
                        if index == end && is_running {
                            holder.end(1, later, &terms());
                            without.end(1, later, &terms());
                        }
                        holder.not_sent(&messages[*message], later);
                    }
                    assert_eq!(holder.state, without.state, "{order:?}, an end at {end}");
                    assert_eq!(holder.is_listed(), is_running);
                }
            }
        }
    }

    #[test]
    fn acquires_in_flight_after_one_that_was_not_sent_tell_nothing_in_its_place() {
        let grantor = SlotGrantor::new(1, TERM);
        let later = NOW + TERM / 4;
        for ends in [true, false] {
            for is_answered_first in [true, false] {
                let (mut holder, mut state) = running();
                if ends {
                    holder.end(1, later, &terms());
                }
                let due = holder.renew_at();
                assert_eq!(due, Some(if ends { later } else { NOW + TERM / 3 }));
                let [exact, other] = in_flight(&mut holder, later + 1);
                let denied = grantor.decide(&mut state, later + 1, &other);
                if !is_answered_first {
                    holder.not_sent(&exact, later + 2);
                    assert_eq!(holder.renew_at(), due);
                }
                let start = holder.on_acquired(&other, &denied, later + 1, later + 2, &terms());
                assert!(matches!(start, SlotStart::Denied { .. }));
                if is_answered_first {
                    holder.not_sent(&exact, later + 2);
                }
                assert_eq!(holder.renew_at(), due);
            }
        }
    }

    #[test]
    fn an_acquire_that_was_answered_counts_although_a_later_one_was_not_sent() {
        let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
        let [exact, other] = in_flight(&mut holder, NOW);
        let granted = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &exact);
        let _started = holder.on_acquired(&exact, &granted, NOW, NOW, &terms());
        holder.not_sent(&other, NOW);
        assert_eq!(holder.renew_at(), Some(NOW + TERM / 3));
    }

    #[test]
    fn what_becomes_of_a_renewal_counts_although_an_acquire_after_it_was_not_sent() {
        let (mut holder, mut state) = running();
        holder.end(1, NOW, &terms());
        let renewal = holder.renew(2, NOW, &terms());
        let mut lost = holder;
        let [message] = in_flight(&mut holder, NOW);
        let reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &renewal);
        holder.on_renewed(&renewal, &reply, NOW, &terms());
        holder.not_sent(&message, NOW);
        assert!(!holder.is_listed());
        // One that is lost is said again soon.
        let [message] = in_flight(&mut lost, NOW);
        lost.renew_by(NOW + terms().retry_after());
        lost.not_sent(&message, NOW);
        assert_eq!(lost.renew_at(), Some(NOW + terms().retry_after()));
    }

    #[test]
    fn an_acquire_of_more_than_ever_fits_hides_none_in_flight() {
        let mut holder = SlotHolder::new(SlotOwner(1));
        let most = holder.acquire(1, u32::MAX, NOW, &terms());
        let one = holder.acquire(2, 1, NOW, &terms());
        assert_eq!((one.hi, one.is_exact), (u32::MAX, false));
        holder.not_sent(&most, NOW);
        assert!(holder.is_in_use());
        holder.not_sent(&one, NOW);
        assert!(!holder.is_listed());
    }

    #[test]
    fn a_grant_that_came_too_late_goes_back_at_once() {
        let (mut holder, mut state) = (SlotHolder::new(SlotOwner(1)), SlotState::default());
        let message = holder.acquire(1, 1, NOW, &terms());
        let mut reply = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &message);
        // Before its renewal is due.
        reply.left = TERM / 6;
        let late = terms().deadline(NOW, reply.left);
        let _again = holder.on_acquired(&message, &reply, NOW, late, &terms());
        assert_eq!(holder.renew_at(), Some(late));
    }

    #[test]
    fn a_renewal_that_is_due_is_not_put_off_by_a_further_end() {
        let (mut holder, _) = running();
        let _acquire = holder.acquire(2, 1, NOW, &terms());
        for later in [0, 1_000] {
            holder.end(0, NOW + later, &terms());
            assert_eq!(holder.renew_at(), Some(NOW + terms().patience()));
        }
    }

    #[test]
    fn an_earlier_renewal_that_came_too_late_voids_no_acquire_in_flight() {
        let (mut holder, _) = running();
        let renewal = holder.renew(2, NOW, &terms());
        let _acquire = holder.acquire(3, 1, NOW, &terms());
        let stale = SlotReply {
            outcome: SlotOutcome::Stale,
            free: 0,
            left: TERM,
            is_new: false,
        };
        holder.on_renewed(&renewal, &stale, NOW, &terms());
        assert_eq!(holder.renew_at(), Some(NOW + terms().patience()));
    }

    #[test]
    fn a_renewal_waits_for_all_acquires_in_flight_and_is_none_the_sooner_for_one_that_came_too_late()
     {
        let (mut holder, mut state) = running();
        let acquires = [2, 3, 4].map(|seq| holder.acquire(seq, 1, NOW, &terms()));
        holder.end(1, NOW, &terms());
        let denied = SlotGrantor::new(1, TERM).decide(&mut state, NOW, &acquires[0]);
        let stale = SlotReply {
            outcome: SlotOutcome::Stale,
            ..denied
        };
        let due = NOW + terms().patience();
        for (message, reply) in [(acquires[0], denied), (acquires[1], stale)] {
            assert_eq!(holder.renew_at(), Some(due));
            let _none = holder.on_acquired(&message, &reply, NOW, NOW + 5, &terms());
        }
        assert_eq!(holder.renew_at(), Some(due));
    }

    #[test]
    fn an_acquire_that_did_not_know_what_is_in_use_and_came_too_late_is_not_said_again() {
        let (mut holder, _) = running();
        let _first = holder.acquire(2, 1, NOW, &terms());
        let second = holder.acquire(3, 1, NOW, &terms());
        let stale = SlotReply {
            outcome: SlotOutcome::Stale,
            free: 0,
            left: TERM,
            is_new: false,
        };
        let start = holder.on_acquired(&second, &stale, NOW, NOW, &terms());
        assert_eq!(start, SlotStart::Again);
        assert_eq!(holder.renew_at(), Some(NOW + TERM / 3));
    }
}
