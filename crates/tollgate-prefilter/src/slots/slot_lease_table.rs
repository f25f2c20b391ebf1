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
            // What is idle is used as soon as it is renewed, which is at once.
            if is_overdue && entry.has_idle(slots, now) {
                entry.paused_until = entry.paused_until.min(now);
            } else {
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
mod tests;
