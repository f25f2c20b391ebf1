//! A process's side of slots, for all keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use smallvec::SmallVec;
use tollgate_core::{Tick, store::Fingerprint};

use crate::{
    slots::{
        slot_holder::{SlotHolder, SlotStart},
        slot_message::{SlotMessage, SlotOwner, SlotReply, SlotTerms},
    },
    table::key_table::TableUsage,
};

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

/// What one process has in use of the slots of all keys, and what it has to tell the store: a [`SlotHolder`] for each key.
///
/// `T` says how a message about a key reaches the store. Times are by the process's own clock, which never goes back.
pub struct SlotTable<T> {
    owner: SlotOwner,
    terms: SlotTerms,
    /// The number of the last message about any key. It outlives what is known of a key.
    seq: u64,
    entries: BTreeMap<SlotKey, Entry<T>>,
    /// When a message about which key is due.
    due: BTreeSet<(Tick, SlotKey)>,
    counts: SlotCounts,
}

/// What has happened to the slots of a process. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Messages about keys that were sent without a request: releases and renewals.
    pub renewals: u64,
    /// Grants that were not used: a renewal was sent meanwhile, or the reply came too late.
    pub voided: u64,
    /// Requests whose slots the store had forgotten while they ran.
    pub outlived: u64,
}

struct Entry<T> {
    holder: SlotHolder,
    target: T,
    /// Where it is in `due`.
    due_at: Option<Tick>,
    /// Since when nothing is in use and the store has not confirmed it.
    idle_since: Option<Tick>,
    /// The grants whose requests run, by number.
    grants: SmallVec<[Grant; 1]>,
}

/// Slots of one request.
#[derive(Clone, Copy)]
struct Grant {
    number: u64,
    seq: u64,
    slots: u32,
}

impl<T: Clone> SlotTable<T> {
    /// The most keys in use at once, so that memory is bounded.
    pub const MOST_KEYS: usize = 65_536;

    /// A process that has just started.
    pub fn new(owner: SlotOwner, terms: SlotTerms) -> Self {
        Self {
            owner,
            terms,
            seq: 0,
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            counts: SlotCounts::default(),
        }
    }

    /// Whether slots of this many more keys can be acquired.
    pub fn has_room(&self, keys: usize) -> bool {
        self.entries.len() + keys <= Self::MOST_KEYS
    }

    /// Acquires slots for one request. [`on_acquired`](Self::on_acquired), [`give_up`](Self::give_up) or
    /// [`not_sent`](Self::not_sent) has to follow.
    pub fn acquire(&mut self, key: &SlotKey, target: T, want: u32, now: Tick) -> SlotMessage {
        self.seq += 1;
        let (seq, terms) = (self.seq, self.terms);
        let entry = self.entries.entry(key.clone()).or_insert_with(|| Entry {
            holder: SlotHolder::new(self.owner),
            target: target.clone(),
            due_at: None,
            idle_since: None,
            grants: SmallVec::new(),
        });
        entry.target = target;
        entry.idle_since = None;
        let message = entry.holder.acquire(seq, want, now, &terms);
        self.schedule(key, now);
        message
    }

    /// Processes the reply to an acquire that was sent at `sent`.
    pub fn on_acquired(
        &mut self,
        key: &SlotKey,
        message: &SlotMessage,
        reply: &SlotReply,
        (sent, now): (Tick, Tick),
    ) -> SlotStart {
        let start = self.change(key, now, |holder, terms| {
            holder.on_acquired(message, reply, sent, now, terms)
        });
        // One that was forgotten: the store has not replied for long.
        let start = start.unwrap_or(SlotStart::Again);
        match (start, self.entries.get_mut(key)) {
            (SlotStart::Started { fence }, Some(entry)) => {
                // Replies come in any order.
                let index = entry.grants.partition_point(|it| it.number < fence);
                let grant = Grant {
                    number: fence,
                    seq: message.seq,
                    slots: message.want,
                };
                entry.grants.insert(index, grant);
            }
            (SlotStart::Again, Some(_)) if reply.is_granted() => self.counts.voided += 1,
            _ => {}
        }
        start
    }

    /// The reply to an acquire is lost, or its request has gone.
    pub fn give_up(&mut self, key: &SlotKey, message: &SlotMessage, now: Tick) {
        self.change(key, now, |holder, terms| {
            holder.give_up(message, now, terms)
        });
    }

    /// An acquire has certainly not reached the store.
    pub fn not_sent(&mut self, key: &SlotKey, message: &SlotMessage, now: Tick) {
        self.change(key, now, |holder, _| holder.not_sent(message, now));
    }

    /// A request has ended whose slots have this number: they are free. Nothing happens if they were
    /// returned before.
    pub fn end(&mut self, rule: &str, key: Fingerprint, number: u64, slots: u32, now: Tick) {
        let Some(key) = self.key_of(rule, key, number) else {
            return;
        };
        let terms = self.terms;
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(index) = entry.index_of(number) else {
            return;
        };
        let slots = slots.min(entry.grants[index].slots);
        entry.grants[index].slots -= slots;
        if entry.grants[index].slots == 0 {
            entry.grants.remove(index);
        }
        entry.holder.end(slots, now, &terms);
        self.schedule(&key, now);
    }

    /// Whether the store has forgotten slots with this number while their request ran: others may have been given them.
    pub fn is_outlived(&self, rule: &str, key: Fingerprint, number: u64) -> bool {
        let found = self.key_of(rule, key, number);
        let entry = found.and_then(|key| self.entries.get(&key));
        entry.is_some_and(|entry| {
            let grant = entry.index_of(number).map(|index| entry.grants[index]);
            grant.is_some_and(|grant| entry.holder.is_outlived(grant.seq))
        })
    }

    /// The messages to the store that are due now, about at most `most` keys.
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
            self.counts.renewals += 1;
            let message = entry.holder.renew(self.seq, now, &self.terms);
            messages.push((key.clone(), entry.target.clone(), message));
            self.schedule(&key, now);
        }
        messages
    }

    /// Processes the reply to a message of [`poll`](Self::poll).
    pub fn on_renewed(
        &mut self,
        key: &SlotKey,
        message: &SlotMessage,
        reply: &SlotReply,
        now: Tick,
    ) {
        self.change(key, now, |holder, terms| {
            holder.on_renewed(message, reply, now, terms);
        });
    }

    /// The reply to a message of [`poll`](Self::poll) is lost. It is said again soon.
    pub fn on_lost(&mut self, key: &SlotKey, now: Tick) {
        self.change(key, now, |holder, terms| {
            holder.renew_by(now + terms.retry_after());
        });
    }

    /// Something happens to a key, if it is there: it may be due at another time then, and requests may be outlived.
    fn change<R>(
        &mut self,
        key: &SlotKey,
        now: Tick,
        change: impl FnOnce(&mut SlotHolder, &SlotTerms) -> R,
    ) -> Option<R> {
        let entry = self.entries.get_mut(key)?;
        let outlived = entry.outlived();
        let done = change(&mut entry.holder, &self.terms);
        self.counts.outlived += entry.outlived().saturating_sub(outlived);
        self.schedule(key, now);
        Some(done)
    }

    /// When the next message to the store is due.
    pub fn due_at(&self) -> Option<Tick> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether the store knows of no slots of this process.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the store knows of all requests that have ended.
    pub fn is_reported(&self) -> bool {
        self.entries
            .values()
            .all(|entry| entry.holder.running() > 0)
    }

    /// What has happened so far.
    pub fn counts(&self) -> SlotCounts {
        self.counts
    }

    /// The number of keys in the table, and an estimate of their memory: tree nodes are taken to be two thirds full.
    pub fn usage(&self) -> TableUsage {
        let entry = size_of::<SlotKey>() + size_of::<Entry<T>>();
        let due = size_of::<(Tick, SlotKey)>();
        let inline = (self.entries.len() * entry + self.due.len() * due) * 3 / 2;
        let requests = self.entries.values().map(|entry| &entry.grants);
        let spilled = requests
            .filter(|it| it.spilled())
            .map(|it| size_of_val(&**it));
        TableUsage {
            keys: self.entries.len() as u64,
            bytes: (inline + spilled.sum::<usize>()) as u64,
        }
    }

    /// The slots in use, and the keys they are of.
    pub fn in_use(&self) -> (u64, usize) {
        let running = self.entries.values().map(|it| it.holder.running());
        let running = running.map(u64::from).filter(|slots| *slots > 0);
        running.fold((0, 0), |(slots, keys), it| (slots + it, keys + 1))
    }

    /// The key with this grant: there are several where something else says where the state lies.
    fn key_of(&self, rule: &str, key: Fingerprint, number: u64) -> Option<SlotKey> {
        let from = SlotKey {
            key,
            rule: Arc::from(""),
            place: None,
        };
        let of_key = self.entries.range(from..);
        let mut of_key = of_key.take_while(|(it, _)| it.key == key);
        let found =
            of_key.find(|(it, entry)| &*it.rule == rule && entry.index_of(number).is_some());
        found.map(|(key, _)| key.clone())
    }

    /// Puts a key where it is due, or forgets it.
    fn schedule(&mut self, key: &SlotKey, now: Tick) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let due_at = entry.holder.renew_at();
        if due_at != entry.due_at {
            if let Some(before) = entry.due_at {
                self.due.remove(&(before, key.clone()));
            }
            entry.due_at = due_at;
            if let Some(at) = due_at {
                self.due.insert((at, key.clone()));
            }
        }
        if due_at.is_none() {
            self.entries.remove(key);
        } else if entry.holder.is_in_use() {
            entry.idle_since = None;
        } else {
            entry.idle_since.get_or_insert(now);
        }
    }
}

impl<T> Entry<T> {
    fn index_of(&self, number: u64) -> Option<usize> {
        self.grants
            .binary_search_by_key(&number, |it| it.number)
            .ok()
    }

    /// The requests that run on slots that the store has forgotten: a message makes them more.
    fn outlived(&self) -> u64 {
        let grants = self.grants.iter();
        let outlived = grants.filter(|it| self.holder.is_outlived(it.seq));
        outlived.count() as u64
    }

    /// Whether nothing is in use, and the store has forgotten it by itself: no message about it got through for two terms.
    fn is_abandoned(&self, now: Tick, terms: &SlotTerms) -> bool {
        let idle = self.idle_since.map(|since| now.saturating_sub(since));
        idle.is_some_and(|idle| idle > 2 * terms.term())
    }
}

impl<T> fmt::Debug for SlotTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable")
            .field("keys", &self.entries.len())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
