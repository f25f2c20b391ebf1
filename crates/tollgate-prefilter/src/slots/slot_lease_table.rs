//! A process's side of slots on lease, for all keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use smallvec::SmallVec;
use tollgate_core::{Tick, store::Fingerprint};

use crate::{
    slots::{
        slot_lease::SlotLease,
        slot_message::{SlotMessage, SlotOutcome, SlotOwner, SlotReply},
        slot_table::SlotKey,
        slot_terms::SlotTerms,
    },
    table::table_usage::TableUsage,
};

/// What one process has on lease of the slots of all keys, and the messages that are due: a [`SlotLease`] for each key.
///
/// A lease grows when requests find no slot in it. It shrinks when slots have been idle since the last renewal; and by a quarter at
/// each renewal that finds no slot free, so that processes that are denied get slots as well.
///
/// `T` says how a message about a key reaches the store. Times are by the process's own clock, which never goes back.
pub struct SlotLeaseTable<T> {
    owner: SlotOwner,
    terms: SlotTerms,
    /// The number of the last message about any key. It outlives what is known of a key.
    seq: u64,
    /// The number of the last request that was given slots.
    number: u64,
    entries: BTreeMap<SlotKey, Entry<T>>,
    due: BTreeSet<(Tick, SlotKey)>,
    outlived: u64,
    messages: u64,
}

/// What a lease says of a request.
// Exhaustive: a store that does not act on one of these loses units or slots, so a new one may not compile unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasedStart {
    /// It has its slots.
    Started {
        /// Tells the slots of this process apart. It is no fencing token: other processes count for themselves.
        number: u64,
        /// The slots that are free: those of this lease, and those that the store has last said to be.
        free: u32,
    },
    /// The store has denied more slots a moment ago.
    Denied {
        /// The slots that are free, too few for this request.
        free: u32,
    },
    /// The store has to grant more. Ask again after the next reply about this key.
    Wait,
}

/// What becomes of the requests that wait for a reply.
// Exhaustive: a store that does not act on one of these loses units or slots, so a new one may not compile unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// They start now, or are denied.
    Known,
    /// Fewer slots are asked for at once: they wait on.
    Again,
}

struct Entry<T> {
    lease: SlotLease,
    target: T,
    due_at: Option<Tick>,
    /// The slots that requests wait for which no message has asked for, and the fewest of any one of them.
    wanted: u32,
    least: u32,
    /// The most that a message may want, after one was denied.
    most: u32,
    /// The most that ran since the last renewal.
    peak: u32,
    /// The limit of the rule, above which no message asks.
    limit: u32,
    /// Slots beyond this number are not used, and go back.
    keep: u32,
    /// When it is next looked at whether the lease is too large.
    review_at: Tick,
    /// No slot was free then: others come first with those that go back.
    yields: bool,
    /// The slots that are free as far as the store has said.
    free: u32,
    /// The store has just denied slots: it is not asked before.
    denied_until: Tick,
    /// No message that asks for nothing is sent before: the last one is lost.
    paused_until: Tick,
    /// When the message in flight was sent, and the last number given then.
    sent: Option<(Tick, u64)>,
    /// Requests up to this number run on slots that the store had forgotten.
    outlived: u64,
    idle_since: Option<Tick>,
    /// The requests that run: their numbers and slots.
    running: SmallVec<[(u64, u32); 4]>,
}

impl<T: Clone> SlotLeaseTable<T> {
    /// The most keys with slots on lease at once, so that memory is bounded.
    pub const MOST_KEYS: usize = 65_536;

    /// A process that has just started. The owner must be another than that of slots which requests acquire themselves: each
    /// message says all that its owner has.
    #[must_use]
    pub fn new(owner: SlotOwner, terms: SlotTerms) -> Self {
        Self {
            owner,
            terms,
            seq: 0,
            number: 0,
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            outlived: 0,
            messages: 0,
        }
    }

    /// Whether slots of this many more keys can be leased.
    #[must_use]
    pub fn has_room(&self, keys: usize) -> bool {
        self.entries.len() + keys <= Self::MOST_KEYS
    }

    /// Whether anything is known of a key.
    #[must_use]
    pub fn knows(&self, key: &SlotKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Starts a request that needs a number of slots, at most the limit.
    pub fn start(
        &mut self,
        key: &SlotKey,
        target: T,
        (slots, limit): (u32, u32),
        now: Tick,
    ) -> LeasedStart {
        let owner = self.owner;
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            lease: SlotLease::new(owner),
            target: target.clone(),
            due_at: None,
            wanted: 0,
            least: u32::MAX,
            most: u32::MAX,
            peak: 0,
            limit,
            keep: u32::MAX,
            review_at: now.saturating_add(self.terms.renew_after()),
            yields: false,
            free: 0,
            denied_until: 0,
            paused_until: 0,
            sent: None,
            outlived: 0,
            idle_since: None,
            running: SmallVec::new(),
        });
        (entry.target, entry.limit) = (target, limit);
        let is_kept = entry.lease.running().saturating_add(slots) <= entry.keep;
        let is_overdue = entry.is_overdue(now, &self.terms);
        let start = if is_kept && !is_overdue && entry.lease.start(slots, now) {
            self.number += 1;
            entry.running.push((self.number, slots));
            entry.peak = entry.peak.max(entry.lease.running());
            LeasedStart::Started {
                number: self.number,
                free: entry.free_now(now),
            }
        } else if now < entry.denied_until {
            LeasedStart::Denied {
                free: entry.free_now(now).min(slots.saturating_sub(1)),
            }
        } else {
            // What is idle is used as soon as it is renewed.
            if !(is_overdue && entry.has_idle(slots, now)) {
                entry.wanted = entry.wanted.saturating_add(slots);
                entry.least = entry.least.min(slots);
            }
            LeasedStart::Wait
        };
        self.schedule(key, now);
        start
    }

    /// A request has ended whose slots have this number: they are free. Nothing happens if they were
    /// returned before.
    pub fn end(&mut self, rule: &str, key: Fingerprint, number: u64, slots: u32, now: Tick) {
        let Some(key) = self.key_of(rule, key, number) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(index) = entry.running.iter().position(|it| it.0 == number) else {
            return;
        };
        let slots = slots.min(entry.running[index].1);
        entry.running[index].1 -= slots;
        if entry.running[index].1 == 0 {
            entry.running.swap_remove(index);
        }
        entry.lease.end(slots);
        self.schedule(&key, now);
    }

    /// Whether the store has forgotten slots with this number while their request ran: others may have been given them.
    #[must_use]
    pub fn is_outlived(&self, rule: &str, key: Fingerprint, number: u64) -> bool {
        let found = self.key_of(rule, key, number);
        let entry = found.and_then(|key| self.entries.get(&key));
        entry.is_some_and(|entry| number <= entry.outlived)
    }

    /// What is due now, of at most `most` keys. [`on_reply`](Self::on_reply) or [`on_lost`](Self::on_lost) has to follow for each.
    pub fn poll(&mut self, now: Tick, most: usize) -> Vec<(SlotKey, T, SlotMessage)> {
        let mut messages = Vec::new();
        while messages.len() < most
            && let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, key)) = self.due.pop_first()
        {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            entry.due_at = None;
            if entry.is_abandoned(now, &self.terms) {
                self.entries.remove(&key);
                continue;
            }
            self.seq += 1;
            if entry.next_message(now).is_some_and(|at| at <= now)
                && let Some(message) = entry.message(self.seq, self.number, now, &self.terms)
            {
                self.messages += 1;
                messages.push((key.clone(), entry.target.clone(), message));
            }
            self.schedule(&key, now);
        }
        messages
    }

    /// Processes the reply to a message of [`poll`](Self::poll).
    pub fn on_reply(
        &mut self,
        key: &SlotKey,
        message: &SlotMessage,
        reply: &SlotReply,
        now: Tick,
    ) -> LeaseAnswer {
        let terms = self.terms;
        let Some(entry) = self.entries.get_mut(key) else {
            return LeaseAnswer::Known;
        };
        let Some((sent, number)) = entry.sent.take() else {
            return LeaseAnswer::Known;
        };
        entry.lease.on_reply(message, reply, sent, now, &terms);
        let mut answer = LeaseAnswer::Known;
        match reply.outcome {
            SlotOutcome::Stale => {
                entry.wanted = entry.wanted.max(message.want);
                answer = LeaseAnswer::Again;
            }
            SlotOutcome::Denied => {
                entry.free = reply.free;
                if reply.free >= entry.least && message.want > entry.least {
                    entry.wanted = entry.wanted.max(message.want);
                    entry.most = reply.free.min(message.want - 1);
                    answer = LeaseAnswer::Again;
                } else {
                    entry.denied_until = now + terms.deny_for();
                }
            }
            SlotOutcome::Granted { .. } => {
                entry.free = reply.free;
                if message.want > 0 {
                    // It may use what it was just granted.
                    entry.keep = u32::MAX;
                }
            }
        }
        if answer == LeaseAnswer::Known {
            // Those that wait still ask again.
            (entry.wanted, entry.least, entry.most) = (0, u32::MAX, u32::MAX);
        }
        if reply.is_new && reply.outcome != SlotOutcome::Stale {
            let outlived = entry.outlived.max(number);
            let newly = entry.running.iter();
            let newly = newly.filter(|it| it.0 > entry.outlived && it.0 <= outlived);
            self.outlived += newly.count() as u64;
            entry.outlived = outlived;
        }
        self.schedule(key, now);
        answer
    }

    /// The reply to a message of [`poll`](Self::poll) is lost, or, with `is_sent` false, the store has certainly not read it. It is
    /// said again soon.
    pub fn on_lost(&mut self, key: &SlotKey, is_sent: bool, now: Tick) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.sent = None;
            match is_sent {
                true => entry.lease.give_up(now),
                false => entry.lease.not_sent(),
            }
            (entry.wanted, entry.least, entry.most) = (0, u32::MAX, u32::MAX);
            entry.paused_until = now + self.terms.retry_after();
            self.schedule(key, now);
        }
    }

    /// All idle slots go back with the next messages, which are due now.
    pub fn return_idle(&mut self, now: Tick) {
        let keys: Vec<_> = self.entries.keys().cloned().collect();
        for key in keys {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.keep = entry.lease.running();
                self.schedule(&key, now);
            }
        }
    }

    /// When a message is due next.
    #[must_use]
    pub fn due_at(&self) -> Option<Tick> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether no slot is on lease that is idle, as far as the store knows.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        let mut entries = self.entries.values();
        entries.all(|entry| entry.lease.running() > 0 || !entry.lease.is_listed())
    }

    /// The requests whose slots the store had forgotten while they ran. It only grows.
    #[must_use]
    pub fn outlived(&self) -> u64 {
        self.outlived
    }

    /// The messages that were sent. It only grows.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// How many keys it knows, and the memory of that, by what the entries take in trees that are two thirds full.
    #[must_use]
    pub fn usage(&self) -> TableUsage {
        let entry = size_of::<SlotKey>() + size_of::<Entry<T>>();
        let due = size_of::<(Tick, SlotKey)>();
        let inline = (self.entries.len() * entry + self.due.len() * due) * 3 / 2;
        let requests = self.entries.values().map(|entry| &entry.running);
        let spilled = requests
            .filter(|it| it.spilled())
            .map(|it| size_of_val(&**it));
        TableUsage {
            keys: self.entries.len() as u64,
            bytes: (inline + spilled.sum::<usize>()) as u64,
        }
    }

    /// The slots in use, and those on lease.
    #[must_use]
    pub fn in_use(&self) -> (u64, u64) {
        let entries = self.entries.values().map(|entry| {
            let running = entry.lease.running();
            (
                u64::from(running),
                u64::from(entry.lease.usable().max(running)),
            )
        });
        entries.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    fn key_of(&self, rule: &str, key: Fingerprint, number: u64) -> Option<SlotKey> {
        let from = SlotKey {
            key,
            rule: "".into(),
            place: None,
        };
        let mut of_key = self
            .entries
            .range(from..)
            .take_while(|(it, _)| it.key == key);
        let found = of_key
            .find(|(it, entry)| &*it.rule == rule && entry.running.iter().any(|it| it.0 == number));
        found.map(|(key, _)| key.clone())
    }

    /// Puts a key where it is due, or forgets it.
    fn schedule(&mut self, key: &SlotKey, now: Tick) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let forget_at = Some(entry.denied_until).filter(|at| *at > now && entry.sent.is_none());
        let due_at = entry.next_message(now).or(forget_at);
        if due_at != entry.due_at {
            if let Some(before) = entry.due_at {
                self.due.remove(&(before, key.clone()));
            }
            entry.due_at = due_at;
            if let Some(at) = due_at {
                self.due.insert((at, key.clone()));
            }
        }
        if entry.sent.is_none() && due_at.is_none() {
            self.entries.remove(key);
        } else if entry.lease.running() > 0 || entry.wanted > 0 {
            entry.idle_since = None;
        } else {
            entry.idle_since.get_or_insert(now);
        }
    }
}

impl<T> Entry<T> {
    fn free_now(&self, now: Tick) -> u32 {
        let usable = match now < self.lease.deadline() {
            true => self.lease.usable().min(self.keep),
            false => 0,
        };
        usable
            .saturating_sub(self.lease.running())
            .saturating_add(self.free)
    }

    /// Whether two renewals in a row have not arrived: the process stood still, or the store is away. A request that started now
    /// might outlive its slot at once.
    fn is_overdue(&self, now: Tick, terms: &SlotTerms) -> bool {
        now >= self
            .lease
            .deadline()
            .saturating_sub(terms.renew_after() / 2)
    }

    fn has_idle(&self, slots: u32, now: Tick) -> bool {
        let needed = self.lease.running().saturating_add(slots);
        now < self.lease.deadline() && needed <= self.lease.usable().min(self.keep)
    }

    /// When the next message is due; none while one is in flight.
    fn next_message(&self, now: Tick) -> Option<Tick> {
        if self.sent.is_some() {
            return None;
        }
        let kept = self.keep.max(self.lease.running());
        if self.wanted > 0 && now >= self.denied_until {
            return Some(now);
        }
        let at = match self.lease.usable() > kept {
            true => now,
            false => self.lease.renew_at()?,
        };
        Some(at.max(self.paused_until))
    }

    fn message(
        &mut self,
        seq: u64,
        number: u64,
        now: Tick,
        terms: &SlotTerms,
    ) -> Option<SlotMessage> {
        let (running, usable) = (self.lease.running(), self.lease.usable());
        if now >= self.review_at {
            self.review_at = now.saturating_add(terms.renew_after());
            // What was not needed since the last time goes back; where none is free, a quarter in any case.
            self.keep = self.peak;
            if self.free == 0 && usable > 0 {
                self.keep = self.keep.min(usable - usable.div_ceil(4));
                self.yields = true;
            }
            self.peak = running;
        }
        let returned = usable.saturating_sub(self.keep.max(running));
        if returned > 0 && std::mem::take(&mut self.yields) {
            // Others ask before this process takes them again.
            self.denied_until = now.saturating_add(terms.deny_for() + terms.patience());
        }
        let want = match self.wanted {
            // They are denied.
            _ if now < self.denied_until => 0,
            0 => 0,
            // Some more than wanted, as long as plenty are free.
            wanted => {
                let more = wanted.saturating_add(usable / 4).min(self.free / 4);
                wanted.saturating_add(more).min(self.most).min(self.limit)
            }
        };
        self.wanted = 0;
        let message = self.lease.message(seq, (want, returned), now, terms)?;
        self.sent = Some((now, number));
        Some(message)
    }

    /// Whether nothing runs, and the store has forgotten it by itself: no message about it got through for two terms.
    fn is_abandoned(&self, now: Tick, terms: &SlotTerms) -> bool {
        let idle = self.idle_since.map(|since| now.saturating_sub(since));
        idle.is_some_and(|idle| idle > 2 * terms.term())
    }
}

impl<T> fmt::Debug for SlotLeaseTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotLeaseTable")
            .field("keys", &self.entries.len())
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::slot_grantor::{SlotGrantor, SlotState};

    const TERM: Tick = 15_000_000;
    const NOW: Tick = 1_700_000_000_000_000;

    /// Processes, the store, and the time.
    struct Fleet {
        processes: Vec<SlotLeaseTable<()>>,
        state: SlotState,
        limit: u32,
        now: Tick,
    }

    fn key() -> SlotKey {
        SlotKey {
            key: Fingerprint::from_bits(1),
            rule: "exports".into(),
            place: None,
        }
    }

    impl Fleet {
        fn new(processes: u64, limit: u32) -> Self {
            let table = |owner| SlotLeaseTable::new(SlotOwner(owner), SlotTerms::new(TERM));
            Self {
                processes: (1..=processes).map(table).collect(),
                state: SlotState::default(),
                limit,
                now: NOW,
            }
        }

        fn ask(&mut self, process: usize, slots: u32) -> LeasedStart {
            let needs = (slots, self.limit);
            self.processes[process].start(&key(), (), needs, self.now)
        }

        /// Sends what is due: how many messages, and what becomes of who waits.
        fn send(&mut self, process: usize) -> Vec<LeaseAnswer> {
            let grantor = SlotGrantor::new(self.limit, TERM);
            let messages = self.processes[process].poll(self.now, 9);
            let answers = messages.into_iter().map(|(key, (), message)| {
                assert!(message.want <= self.limit);
                let reply = grantor.decide(&mut self.state, self.now, &message);
                self.processes[process].on_reply(&key, &message, &reply, self.now)
            });
            answers.collect()
        }

        /// The number of a request that starts, with the calls that it takes.
        fn start(&mut self, process: usize, slots: u32) -> Option<u64> {
            // Each round asks for less.
            for _ in 0..9 {
                match self.ask(process, slots) {
                    LeasedStart::Started { number, .. } => return Some(number),
                    LeasedStart::Denied { .. } => return None,
                    LeasedStart::Wait => while self.send(process).contains(&LeaseAnswer::Again) {},
                }
            }
            panic!("it waits for ever")
        }

        fn end(&mut self, process: usize, number: u64, slots: u32) {
            self.processes[process].end("exports", key().key, number, slots, self.now);
        }

        fn used(&self) -> u64 {
            SlotGrantor::new(self.limit, TERM).used(&self.state, self.now)
        }
    }

    #[test]
    fn a_lease_serves_requests_without_messages_and_goes_back_when_it_is_idle() {
        let mut fleet = Fleet::new(1, 10);
        for _ in 0..100 {
            let numbers = [(); 3].map(|()| fleet.start(0, 1).expect("it is free"));
            for number in numbers {
                fleet.end(0, number, 1);
                fleet.end(0, number, 1);
            }
        }
        assert!(fleet.processes[0].messages() <= 3 && fleet.used() >= 3);
        assert_eq!(fleet.processes[0].in_use().0, 0);
        // What was needed since the last renewal stays, and goes back with the next one.
        for left in [3, 0] {
            fleet.now += TERM / 3;
            fleet.send(0);
            assert_eq!(fleet.used(), left);
        }
        let table = &fleet.processes[0];
        assert!(table.due_at().is_none() && !table.knows(&key()));
    }

    #[test]
    fn a_denial_is_remembered_and_then_asked_for_again() {
        let mut fleet = Fleet::new(2, 2);
        let running = fleet.start(0, 2).expect("they are free");
        assert_eq!(fleet.start(1, 1), None);
        let messages = fleet.processes[1].messages();
        for _ in 0..9 {
            assert_eq!(fleet.ask(1, 1), LeasedStart::Denied { free: 0 });
        }
        assert_eq!(fleet.processes[1].messages(), messages);
        fleet.end(0, running, 2);
        fleet.processes[0].return_idle(fleet.now);
        fleet.send(0);
        assert_eq!(fleet.ask(1, 1), LeasedStart::Denied { free: 0 });
        fleet.now += TERM / 150;
        assert!(fleet.start(1, 1).is_some());
        // What is known of a denial alone is forgotten.
        let mut fleet = Fleet::new(2, 1);
        assert!(fleet.start(0, 1).is_some() && fleet.start(1, 1).is_none());
        fleet.now = fleet.processes[1].due_at().expect("it is forgotten");
        assert_eq!(fleet.send(1).len(), 0);
        assert!(!fleet.processes[1].knows(&key()));
    }

    #[test]
    fn requests_that_do_not_fit_together_are_granted_as_far_as_they_do() {
        let mut fleet = Fleet::new(2, 10);
        assert!(fleet.start(0, 7).is_some());
        for _ in 0..5 {
            assert_eq!(fleet.ask(1, 1), LeasedStart::Wait);
        }
        assert_eq!(fleet.send(1), [LeaseAnswer::Again]);
        assert_eq!(fleet.send(1), [LeaseAnswer::Known]);
        assert_eq!((0..3).filter(|_| fleet.start(1, 1).is_some()).count(), 3);
        assert_eq!((fleet.start(1, 1), fleet.used()), (None, 10));
        // Nor does one that needs more than are free.
        let mut fleet = Fleet::new(2, 10);
        assert!(fleet.start(0, 7).is_some());
        assert_eq!(fleet.start(1, 4), None);
        assert_eq!(fleet.used(), 7);
    }

    #[test]
    fn processes_that_are_always_busy_leave_slots_to_each_other() {
        let mut fleet = Fleet::new(3, 4);
        let mut running: Vec<(usize, u64)> = Vec::new();
        let mut started = [0; 3];
        for step in 0..40_000 {
            fleet.now += 1_000;
            // One after the other: the first has taken all slots by then.
            let joined = 1 + step / 5_000;
            for (process, started) in started.iter_mut().enumerate().take(joined) {
                fleet.send(process);
                if let Some(number) = fleet.start(process, 1) {
                    running.push((process, number));
                    *started += 1;
                }
            }
            assert!(running.len() <= 4 && fleet.used() <= 4);
            if step % 3 == 0 && !running.is_empty() {
                let (process, number) = running.remove(0);
                fleet.end(process, number, 1);
            }
        }
        let least = started.iter().min().expect("there are three");
        assert!(least * 20 > started.iter().sum::<u64>(), "{started:?}");
    }

    /// Both processes learn the lower limit at once, and Redis with their next messages: a message takes half of D to the store, and
    /// its reply the other half.
    #[test]
    fn under_a_lowered_limit_requests_start_above_it_for_a_third_of_the_term_and_a_delay() {
        const STEP: Tick = 10_000;
        const D: Tick = 400_000;
        const LOWER: u32 = 4;
        // From different moments of a renewal on.
        for lowered_at in (0..TERM / 3).step_by(290_000).map(|at| NOW + TERM + at) {
            let mut fleet = Fleet::new(2, 12);
            let mut running: Vec<(usize, u64, Tick)> = Vec::new();
            let mut replies = Vec::new();
            let mut messages = Vec::new();
            let (mut last_above, mut starts) = (0, 0);
            while fleet.now < lowered_at + TERM {
                fleet.now += STEP;
                let now = fleet.now;
                if now >= lowered_at {
                    fleet.limit = LOWER;
                }
                for process in 0..2 {
                    let due = fleet.processes[process].poll(now, 9).into_iter();
                    messages.extend(due.map(|(_, (), it)| (now, process, it)));
                }
                let grantor = SlotGrantor::new(fleet.limit, TERM);
                messages.retain(|(sent, process, message)| {
                    let is_there = sent + D / 2 <= now;
                    if is_there {
                        let reply = grantor.decide(&mut fleet.state, now, message);
                        replies.push((*sent, *process, *message, reply));
                    }
                    !is_there
                });
                let processes = &mut fleet.processes;
                replies.retain(|(sent, process, message, reply)| {
                    let is_there = sent + D <= now;
                    if is_there {
                        processes[*process].on_reply(&key(), message, reply, now);
                    }
                    !is_there
                });
                while let Some(index) = running.iter().position(|it| it.2 <= now) {
                    let (process, number, _) = running.swap_remove(index);
                    fleet.end(process, number, 1);
                }
                for process in 0..2 {
                    // As short as requests on lease are, so that slots are used again and again.
                    if let LeasedStart::Started { number, .. } = fleet.ask(process, 1) {
                        running.push((process, number, now + 200_000));
                        let is_above = running.len() > fleet.limit as usize;
                        assert!(!is_above || now >= lowered_at, "above {}", fleet.limit);
                        if is_above {
                            last_above = now;
                        } else if now >= lowered_at {
                            starts += 1;
                        }
                    }
                }
            }
            assert!(starts > 0, "the lower limit is used");
            // The step, and what a process waits for before it renews.
            let end = lowered_at + TERM / 3 + D + 2 * STEP;
            assert!(
                last_above > lowered_at && last_above <= end,
                "{} µs after {lowered_at}, not within {}",
                last_above - lowered_at,
                end - lowered_at
            );
        }
    }

    #[test]
    fn a_message_that_was_not_sent_leaves_nothing_behind_and_a_lost_one_is_said_again() {
        let mut fleet = Fleet::new(1, 2);
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        let messages = fleet.processes[0].poll(NOW, 9);
        fleet.processes[0].on_lost(&messages[0].0, false, NOW);
        assert!(!fleet.processes[0].knows(&key()));
        // The store has granted it, and the reply is lost.
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        let messages = fleet.processes[0].poll(NOW, 9);
        let _lost = SlotGrantor::new(2, TERM).decide(&mut fleet.state, NOW, &messages[0].2);
        fleet.processes[0].on_lost(&messages[0].0, true, NOW);
        assert_eq!(fleet.used(), 1);
        assert_eq!(fleet.processes[0].due_at(), Some(NOW + TERM / 30));
        fleet.now += TERM / 30;
        fleet.send(0);
        assert_eq!(fleet.used(), 0);
        // While it cannot be said, the key is kept for two terms.
        assert!(fleet.start(0, 1).is_some_and(|number| {
            fleet.end(0, number, 1);
            true
        }));
        let mut tries = 0;
        while let Some(at) = fleet.processes[0].due_at() {
            fleet.now = at;
            for (key, ..) in fleet.processes[0].poll(at, 9) {
                tries += 1;
                assert!(tries < 100, "it is not forgotten");
                fleet.processes[0].on_lost(&key, true, at);
            }
        }
        assert!(!fleet.processes[0].knows(&key()) && tries > 40, "{tries}");
    }

    #[test]
    fn a_return_that_was_not_sent_is_said_again() {
        let mut fleet = Fleet::new(1, 2);
        let number = fleet.start(0, 1).expect("it is free");
        fleet.end(0, number, 1);
        fleet.processes[0].return_idle(NOW);
        let messages = fleet.processes[0].poll(NOW, 9);
        fleet.processes[0].on_lost(&messages[0].0, false, NOW);
        assert_eq!(fleet.used(), 1);
        fleet.now += TERM / 30;
        assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
        assert_eq!(fleet.used(), 0);
    }

    #[test]
    fn a_lease_is_renewed_before_it_is_used_after_its_process_stood_still() {
        let mut fleet = Fleet::new(1, 9);
        let number = fleet.start(0, 2).expect("they are free");
        fleet.end(0, number, 2);
        // Of the term, 150 ms and the margin are left.
        fleet.now += TERM - TERM / 100 - 150_000;
        assert_eq!(fleet.ask(0, 2), LeasedStart::Wait);
        let messages = fleet.processes[0].messages();
        assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
        assert!(matches!(fleet.ask(0, 2), LeasedStart::Started { .. }));
        assert_eq!(fleet.processes[0].messages(), messages + 1);
        assert_eq!(fleet.used(), 2, "and no more than those are asked for");
    }

    #[test]
    fn requests_that_outlive_what_the_store_knows_are_counted_and_recognised() {
        let mut fleet = Fleet::new(1, 2);
        let number = fleet.start(0, 1).expect("it is free");
        let is_outlived =
            |fleet: &Fleet, number| fleet.processes[0].is_outlived("exports", key().key, number);
        assert!(!is_outlived(&fleet, number));
        fleet.state = SlotState::default();
        let second = fleet.start(0, 1).expect("it is free");
        assert!(is_outlived(&fleet, number) && !is_outlived(&fleet, second));
        assert_eq!((fleet.processes[0].outlived(), fleet.used()), (1, 2));
    }

    #[test]
    fn the_keys_of_a_process_are_bounded() {
        let mut table = SlotLeaseTable::new(SlotOwner(7), SlotTerms::new(TERM));
        for bits in 0..SlotLeaseTable::<()>::MOST_KEYS {
            assert!(table.has_room(1));
            let key = SlotKey {
                key: Fingerprint::from_bits(bits as u128),
                ..key()
            };
            assert_eq!(table.start(&key, (), (1, 1), NOW), LeasedStart::Wait);
        }
        assert!(table.has_room(0) && !table.has_room(1));
    }

    #[test]
    fn a_process_has_reported_when_no_slot_is_idle_that_the_store_counts_for_it() {
        let mut fleet = Fleet::new(1, 4);
        assert!(fleet.processes[0].is_reported());
        let number = fleet.start(0, 2).expect("they are free");
        assert!(fleet.processes[0].is_reported());
        fleet.end(0, number, 2);
        assert!(!fleet.processes[0].is_reported());
        fleet.processes[0].return_idle(fleet.now);
        assert!(!fleet.processes[0].is_reported());
        fleet.send(0);
        assert!(fleet.processes[0].is_reported());
    }

    #[test]
    fn requests_wait_on_for_as_many_slots_where_a_later_message_came_first() {
        let mut fleet = Fleet::new(1, 4);
        assert_eq!(fleet.ask(0, 3), LeasedStart::Wait);
        let messages = fleet.processes[0].poll(NOW, 9);
        let (of, (), message) = &messages[0];
        let stale = SlotReply {
            outcome: SlotOutcome::Stale,
            count: 0,
            free: 4,
            over: 0,
            left: TERM,
            is_new: false,
        };
        let answer = fleet.processes[0].on_reply(of, message, &stale, NOW);
        assert_eq!(answer, LeaseAnswer::Again);
        let again = fleet.processes[0].poll(NOW, 9);
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].2.want, again[0].2.seq), (3, message.seq + 1));
    }

    /// What the store says that has denied what was wanted, although so many are free.
    fn denial(free: u32) -> SlotReply {
        SlotReply {
            outcome: SlotOutcome::Denied,
            count: 0,
            free,
            over: 0,
            left: TERM,
            is_new: false,
        }
    }

    #[test]
    fn messages_reach_the_store_as_the_last_request_has_said_and_ask_for_no_more_than_its_limit() {
        let mut table = SlotLeaseTable::new(SlotOwner(1), SlotTerms::new(TERM));
        for (target, limit) in [('a', 9), ('b', 9), ('c', 2)] {
            assert_eq!(
                table.start(&key(), target, (1, limit), NOW),
                LeasedStart::Wait
            );
        }
        let messages = table.poll(NOW, 9);
        let seen: Vec<_> = messages.iter().map(|it| (it.1, it.2.want)).collect();
        assert_eq!((seen, table.due_at()), (vec![('c', 2)], None));
    }

    #[test]
    fn no_more_messages_are_sent_at_once_than_may_be() {
        let mut table = SlotLeaseTable::new(SlotOwner(1), SlotTerms::new(TERM));
        for bits in 1..=3 {
            let key = SlotKey {
                key: Fingerprint::from_bits(bits),
                ..key()
            };
            table.start(&key, (), (1, 1), NOW);
        }
        let sent = [2, 2, 2].map(|most| table.poll(NOW, most).len());
        assert_eq!(sent, [2, 1, 0]);
    }

    #[test]
    fn slots_on_their_way_back_are_not_used() {
        let mut fleet = Fleet::new(1, 4);
        let numbers = [(); 2].map(|()| fleet.start(0, 1).expect("it is free"));
        fleet.end(0, numbers[0], 1);
        fleet.processes[0].return_idle(NOW);
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        // What runs stays on lease when it ends.
        let mut fleet = Fleet::new(1, 4);
        let numbers = [(); 2].map(|()| fleet.start(0, 1).expect("it is free"));
        fleet.end(0, numbers[0], 1);
        fleet.processes[0].return_idle(NOW);
        fleet.send(0);
        fleet.end(0, numbers[1], 1);
        assert_eq!(fleet.processes[0].due_at(), Some(NOW + TERM / 3));
        assert!(matches!(fleet.ask(0, 1), LeasedStart::Started { .. }));
        assert_eq!(fleet.used(), 1);
    }

    #[test]
    fn what_is_free_is_said_as_the_store_has_said_it() {
        let mut fleet = Fleet::new(2, 10);
        assert_eq!(fleet.ask(0, 7), LeasedStart::Wait);
        fleet.send(0);
        let started = LeasedStart::Started { number: 1, free: 3 };
        assert_eq!(fleet.ask(0, 7), started);
        assert_eq!(fleet.start(1, 4), None);
        for (slots, free) in [(9, 3), (4, 3), (2, 1), (1, 0)] {
            assert_eq!(fleet.ask(1, slots), LeasedStart::Denied { free }, "{slots}");
        }
    }

    #[test]
    fn requests_that_wait_ask_again_for_what_is_free_if_one_of_them_fits() {
        // Of ten, eight are taken.
        for (asked, again) in [
            (&[1, 3][..], Some(2)),
            (&[3, 2], Some(2)),
            (&[3, 3], None),
            (&[3], None),
        ] {
            let mut fleet = Fleet::new(2, 10);
            assert!(fleet.start(0, 8).is_some());
            for slots in asked {
                assert_eq!(fleet.ask(1, *slots), LeasedStart::Wait);
            }
            let answer = match again {
                Some(_) => LeaseAnswer::Again,
                None => LeaseAnswer::Known,
            };
            assert_eq!(fleet.send(1), [answer], "{asked:?}");
            let messages = fleet.processes[1].poll(NOW, 9);
            let wants: Option<u32> = messages.first().map(|it| it.2.want);
            assert_eq!(wants, again, "{asked:?}");
        }
    }

    #[test]
    fn what_another_rule_has_denied_is_asked_for_again_in_a_smaller_part_or_not_at_all() {
        // More than all that are waited for are free.
        for (asked, again) in [(&[1, 3][..], Some(3)), (&[1], None)] {
            let mut fleet = Fleet::new(1, 10);
            for slots in asked {
                assert_eq!(fleet.ask(0, *slots), LeasedStart::Wait);
            }
            let table = &mut fleet.processes[0];
            let messages = table.poll(NOW, 9);
            let answer = table.on_reply(&key(), &messages[0].2, &denial(9), NOW);
            assert_eq!(answer == LeaseAnswer::Again, again.is_some());
            let messages = table.poll(NOW, 9);
            let wants: Option<u32> = messages.first().map(|it| it.2.want);
            assert_eq!(wants, again, "{asked:?}");
        }
    }

    #[test]
    fn a_message_is_no_smaller_because_an_earlier_one_was_denied() {
        let mut fleet = Fleet::new(2, 10);
        let running = fleet.start(0, 7).expect("they are free");
        for _ in 0..5 {
            assert_eq!(fleet.ask(1, 1), LeasedStart::Wait);
        }
        while fleet.send(1).contains(&LeaseAnswer::Again) {}
        fleet.end(0, running, 7);
        fleet.processes[0].return_idle(NOW);
        fleet.send(0);
        assert_eq!(fleet.ask(1, 8), LeasedStart::Wait);
        assert_eq!(fleet.processes[1].poll(NOW, 9)[0].2.want, 8);
    }

    #[test]
    fn who_has_asked_meanwhile_asks_again_after_a_reply_or_when_it_is_lost() {
        for (is_lost, due) in [(false, NOW + TERM / 3), (true, NOW + TERM / 30)] {
            let mut fleet = Fleet::new(1, 4);
            assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
            let messages = fleet.processes[0].poll(NOW, 9);
            assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
            let message = messages[0].2;
            let reply = SlotGrantor::new(4, TERM).decide(&mut fleet.state, NOW, &message);
            let table = &mut fleet.processes[0];
            match is_lost {
                true => table.on_lost(&key(), true, NOW),
                false => assert_eq!(
                    table.on_reply(&key(), &message, &reply, NOW),
                    LeaseAnswer::Known
                ),
            }
            assert_eq!(table.due_at(), Some(due));
            assert!(!table.is_reported(), "the store may count it");
        }
    }

    #[test]
    fn some_more_are_asked_for_than_are_wanted_as_long_as_plenty_are_free() {
        // By the limit, of which eight run, and what is wanted: a quarter of the lease more, and a quarter of what is free at most.
        for (limit, wanted, asked) in [(40, 1, 4), (12, 3, 4), (8, 1, 1)] {
            let mut fleet = Fleet::new(1, limit);
            assert!(fleet.start(0, 8).is_some());
            assert_eq!(fleet.ask(0, wanted), LeasedStart::Wait);
            let messages = fleet.processes[0].poll(NOW, 9);
            assert_eq!(messages[0].2.want, asked, "{limit}");
            // In the place of the renewal that was due.
            assert_eq!(fleet.processes[0].due_at(), None);
        }
    }

    #[test]
    fn a_lease_without_a_free_slot_leaves_one_of_four_to_others_when_its_request_ends() {
        let full = || {
            let mut fleet = Fleet::new(2, 4);
            let numbers = [(); 4].map(|()| fleet.start(0, 1).expect("it is free"));
            fleet.now += TERM / 3;
            assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
            // Nothing is to be said before the next renewal.
            assert_eq!(fleet.processes[0].due_at(), Some(fleet.now + TERM / 3));
            (fleet, numbers[0])
        };
        // While all are in use there is none to leave.
        let (mut fleet, _) = full();
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        let (mut fleet, number) = full();
        fleet.end(0, number, 1);
        assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
        assert_eq!(
            (fleet.used(), fleet.ask(0, 1)),
            (3, LeasedStart::Denied { free: 0 })
        );
        assert!(fleet.start(1, 1).is_some());
        let terms = SlotTerms::new(TERM);
        fleet.now += terms.deny_for() + terms.patience() - 1;
        assert!(matches!(fleet.ask(0, 1), LeasedStart::Denied { .. }));
        fleet.now += 1;
        assert_eq!(fleet.ask(0, 1), LeasedStart::Wait);
        // It does not ask for more with the message that leaves it.
        let (mut fleet, number) = full();
        fleet.end(0, number, 1);
        assert_eq!(fleet.ask(0, 2), LeasedStart::Wait);
        let messages = fleet.processes[0].poll(fleet.now, 9);
        assert_eq!((messages[0].2.want, messages[0].2.hi), (0, 3));
    }

    #[test]
    fn it_is_looked_once_in_a_third_of_the_term_whether_a_lease_is_too_large() {
        let mut fleet = Fleet::new(1, 9);
        let number = fleet.start(0, 3).expect("they are free");
        fleet.end(0, number, 3);
        fleet.now += TERM / 3;
        assert_eq!(fleet.send(0), [LeaseAnswer::Known]);
        assert_eq!((fleet.ask(0, 4), fleet.used()), (LeasedStart::Wait, 3));
        let messages = fleet.processes[0].poll(fleet.now, 9);
        assert_eq!(messages[0].2.hi, 3);
    }

    #[test]
    fn requests_are_outlived_once_and_none_that_started_after_the_message() {
        let mut fleet = Fleet::new(1, 4);
        let numbers = [(); 2].map(|()| fleet.start(0, 1).expect("it is free"));
        fleet.end(0, numbers[1], 1);
        for (forgets, outlived) in [(true, 1), (false, 1), (true, 2), (true, 2)] {
            fleet.now += TERM / 3;
            if forgets {
                fleet.state = SlotState::default();
            }
            let messages = fleet.processes[0].poll(fleet.now, 9);
            let later = match fleet.ask(0, 1) {
                LeasedStart::Started { number, .. } => Some(number),
                _ => None,
            };
            let message = messages[0].2;
            let grantor = SlotGrantor::new(4, TERM);
            let reply = grantor.decide(&mut fleet.state, fleet.now, &message);
            let table = &mut fleet.processes[0];
            table.on_reply(&key(), &message, &reply, fleet.now);
            assert_eq!(table.outlived(), outlived);
            let is_outlived = |number| table.is_outlived("exports", key().key, number);
            assert!(is_outlived(numbers[0]) && !later.is_some_and(is_outlived));
        }
    }

    #[test]
    fn no_more_slots_go_back_than_a_request_has_and_none_of_another_rule_or_place() {
        let mut fleet = Fleet::new(1, 9);
        let numbers = [3, 4].map(|slots| fleet.start(0, slots).expect("they are free"));
        fleet.end(0, numbers[0], 9);
        assert_eq!(fleet.processes[0].in_use().0, 4);
        let ends = |fleet: &mut Fleet, rule: &str, bits| {
            let key = Fingerprint::from_bits(bits);
            fleet.processes[0].end(rule, key, numbers[1], 4, NOW);
            fleet.processes[0].in_use().0
        };
        assert_eq!(ends(&mut fleet, "imports", 1), 4);
        assert_eq!(ends(&mut fleet, "exports", 0), 4);
        assert_eq!(ends(&mut fleet, "exports", 1), 0);
        // Two places of one rule and key.
        let mut table = SlotLeaseTable::new(SlotOwner(1), SlotTerms::new(TERM));
        let keys = [None, Some(5)].map(|place| SlotKey {
            place: place.map(Fingerprint::from_bits),
            ..key()
        });
        for key in &keys {
            assert_eq!(table.start(key, (), (1, 9), NOW), LeasedStart::Wait);
        }
        for (key, (), message) in table.poll(NOW, 9) {
            let reply = SlotGrantor::new(9, TERM).decide(&mut SlotState::default(), NOW, &message);
            table.on_reply(&key, &message, &reply, NOW);
        }
        let numbers = keys
            .each_ref()
            .map(|key| match table.start(key, (), (1, 9), NOW) {
                LeasedStart::Started { number, .. } => number,
                other => panic!("{other:?}"),
            });
        table.end("exports", key().key, numbers[1], 1, NOW);
        let running = keys
            .each_ref()
            .map(|key| table.entries[key].lease.running());
        assert_eq!(running, [1, 0]);
    }

    #[test]
    fn what_the_store_counts_above_a_lowered_limit_is_in_use() {
        let mut fleet = Fleet::new(1, 2);
        assert!(fleet.start(0, 2).is_some());
        fleet.limit = 1;
        fleet.now += TERM / 3;
        fleet.send(0);
        assert_eq!(fleet.processes[0].in_use(), (2, 2));
    }

    #[test]
    fn a_key_in_use_is_kept_however_long_the_store_is_away() {
        let mut fleet = Fleet::new(1, 2);
        assert!(fleet.start(0, 1).is_some());
        let table = &mut fleet.processes[0];
        while let Some(at) = table.due_at().filter(|at| *at < NOW + 4 * TERM) {
            assert_eq!(table.poll(at, 9).len(), 1);
            table.on_lost(&key(), true, at);
        }
        assert_eq!(table.in_use().0, 1);
    }

    #[test]
    fn the_memory_of_a_table_is_that_of_its_keys_and_of_further_requests() {
        let mut fleet = Fleet::new(1, 9);
        assert_eq!(fleet.processes[0].usage(), TableUsage::default());
        let entry = size_of::<SlotKey>() + size_of::<Entry<()>>() + size_of::<(Tick, SlotKey)>();
        for _ in 0..100 {
            let number = fleet.start(0, 1).expect("it is free");
            let one = fleet.processes[0].usage();
            assert_eq!((one.keys, one.bytes), (1, (entry * 3 / 2) as u64));
            fleet.end(0, number, 1);
        }
        let _five = [(); 5].map(|()| fleet.start(0, 1).expect("it is free"));
        let bytes = entry * 3 / 2 + 5 * size_of::<(u64, u32)>();
        assert_eq!(fleet.processes[0].usage().bytes, bytes as u64);
    }
}
