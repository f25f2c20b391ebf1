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
        slot_message::{SlotMessage, SlotOwner, SlotReply},
        slot_terms::SlotTerms,
    },
    table::table_usage::TableUsage,
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
#[non_exhaustive]
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
    #[must_use]
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
    #[must_use]
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
        let terms = self.terms;
        let Some(entry) = self.entries.get_mut(key) else {
            // It was forgotten: the store has not replied for long.
            return SlotStart::Again;
        };
        let outlived = entry.outlived();
        let start = entry.holder.on_acquired(message, reply, sent, now, &terms);
        self.counts.outlived += entry.outlived().saturating_sub(outlived);
        match start {
            SlotStart::Started { fence } => {
                // Replies come in any order.
                let index = entry.grants.partition_point(|it| it.number < fence);
                let grant = Grant {
                    number: fence,
                    seq: message.seq,
                    slots: message.want,
                };
                entry.grants.insert(index, grant);
            }
            SlotStart::Again if reply.is_granted() => self.counts.voided += 1,
            SlotStart::Again | SlotStart::Denied { .. } => {}
        }
        self.schedule(key, now);
        start
    }

    /// The reply to an acquire is lost, or its request has gone.
    pub fn give_up(&mut self, key: &SlotKey, message: &SlotMessage, now: Tick) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.holder.give_up(message, now, &self.terms);
            self.schedule(key, now);
        }
    }

    /// An acquire has certainly not reached the store.
    pub fn not_sent(&mut self, key: &SlotKey, message: &SlotMessage, now: Tick) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.holder.not_sent(message, now);
            self.schedule(key, now);
        }
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
    #[must_use]
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
        if let Some(entry) = self.entries.get_mut(key) {
            let outlived = entry.outlived();
            entry.holder.on_renewed(message, reply, now, &self.terms);
            self.counts.outlived += entry.outlived().saturating_sub(outlived);
            self.schedule(key, now);
        }
    }

    /// The reply to a message of [`poll`](Self::poll) is lost. It is said again soon.
    pub fn on_lost(&mut self, key: &SlotKey, now: Tick) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.holder.renew_by(now + self.terms.retry_after());
            self.schedule(key, now);
        }
    }

    /// When the next message to the store is due.
    #[must_use]
    pub fn due_at(&self) -> Option<Tick> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether the store knows of no slots of this process.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the store knows of all requests that have ended.
    #[must_use]
    pub fn is_reported(&self) -> bool {
        self.entries
            .values()
            .all(|entry| entry.holder.running() > 0)
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> SlotCounts {
        self.counts
    }

    /// The number of keys in the table, and an estimate of their memory: tree nodes are taken to be two thirds full.
    #[must_use]
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
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{
        slot_grantor::{SlotGrantor, SlotState},
        slot_message::SlotOutcome,
    };

    const TERM: Tick = 15_000_000;
    const NOW: Tick = 1_700_000_000_000_000;

    fn table() -> SlotTable<()> {
        SlotTable::new(SlotOwner(7), SlotTerms::new(TERM))
    }

    fn key() -> SlotKey {
        SlotKey {
            key: Fingerprint::from_bits(1),
            rule: "exports".into(),
            place: None,
        }
    }

    /// A request that runs with so many slots of ten: their number.
    fn start(table: &mut SlotTable<()>, state: &mut SlotState, slots: u32, now: Tick) -> u64 {
        let message = table.acquire(&key(), (), slots, now);
        let reply = SlotGrantor::new(10, TERM).decide(state, now, &message);
        match table.on_acquired(&key(), &message, &reply, (now, now)) {
            SlotStart::Started { fence } => fence,
            other => panic!("{other:?}"),
        }
    }

    fn end(table: &mut SlotTable<()>, number: u64, slots: u32) {
        table.end("exports", key().key, number, slots, NOW);
    }

    /// Tells the store what is due.
    fn tell(table: &mut SlotTable<()>, state: &mut SlotState, now: Tick) -> usize {
        let messages = table.poll(now, 9);
        for (key, (), message) in &messages {
            let reply = SlotGrantor::new(10, TERM).decide(state, now, message);
            table.on_renewed(key, message, &reply, now);
        }
        messages.len()
    }

    #[test]
    fn slots_go_back_once_and_in_parts() {
        let (mut table, mut state) = (table(), SlotState::default());
        let other = start(&mut table, &mut state, 4, NOW);
        let number = start(&mut table, &mut state, 3, NOW);
        for (slots, left) in [(1, 6), (2, 4), (1, 4), (9, 4)] {
            end(&mut table, number, slots);
            tell(&mut table, &mut state, NOW);
            assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW), left);
        }
        table.end("imports", key().key, other, 4, NOW);
        assert_eq!(table.in_use(), (4, 1));
    }

    #[test]
    fn slots_go_back_in_whatever_order_their_grants_are_answered() {
        let (mut table, mut state) = (table(), SlotState::default());
        let messages = [(); 5].map(|()| table.acquire(&key(), (), 1, NOW));
        let replies = messages.map(|message| {
            let reply = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
            (message, reply)
        });
        let mut numbers = Vec::new();
        for index in [3, 0, 4, 2, 1] {
            let (message, reply) = replies[index];
            match table.on_acquired(&key(), &message, &reply, (NOW, NOW)) {
                SlotStart::Started { fence } => numbers.push(fence),
                other => panic!("{other:?}"),
            }
        }
        for number in numbers {
            end(&mut table, number, 1);
        }
        tell(&mut table, &mut state, NOW);
        assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW), 0);
    }

    #[test]
    fn keys_are_kept_while_the_store_may_know_of_them_and_renewed_in_one_go() {
        let (mut table, mut state) = (table(), SlotState::default());
        let number = start(&mut table, &mut state, 1, NOW);
        assert_eq!(
            (table.due_at(), table.is_reported()),
            (Some(NOW + TERM / 3), true)
        );
        assert_eq!(tell(&mut table, &mut state, NOW + TERM / 3 - 1), 0);
        assert_eq!(tell(&mut table, &mut state, NOW + TERM / 3), 1);
        assert_eq!(table.due_at(), Some(NOW + 2 * (TERM / 3)));
        end(&mut table, number, 1);
        assert!(!table.is_reported() && !table.is_empty());
        assert_eq!(tell(&mut table, &mut state, NOW + TERM / 3), 1);
        assert!(table.is_reported() && table.is_empty());
        assert_eq!((table.due_at(), table.counts().renewals), (None, 2));
    }

    #[test]
    fn acquires_that_were_not_sent_leave_nothing_behind() {
        let mut table = table();
        let one = table.acquire(&key(), (), 1, NOW);
        table.not_sent(&key(), &one, NOW);
        assert!(table.is_empty() && table.due_at().is_none());
        for first in [0, 1] {
            let messages = [(); 2].map(|()| table.acquire(&key(), (), 1, NOW));
            table.not_sent(&key(), &messages[first], NOW);
            let third = table.acquire(&key(), (), 1, NOW);
            table.not_sent(&key(), &messages[1 - first], NOW);
            assert!(!table.is_empty());
            table.not_sent(&key(), &third, NOW);
            assert!(table.is_empty() && table.due_at().is_none());
        }
        // Nor do they keep the store from being told of what runs.
        let mut state = SlotState::default();
        start(&mut table, &mut state, 1, NOW);
        for later in 1..10 {
            let message = table.acquire(&key(), (), 1, NOW + later);
            table.not_sent(&key(), &message, NOW + later);
        }
        assert_eq!(table.due_at(), Some(NOW + TERM / 3));
    }

    #[test]
    fn a_key_that_cannot_be_reported_of_is_tried_again_soon_and_forgotten_after_two_terms() {
        let (mut table, mut state) = (table(), SlotState::default());
        let number = start(&mut table, &mut state, 1, NOW);
        end(&mut table, number, 1);
        let mut tries = 0;
        let mut now = NOW;
        while let Some(at) = table.due_at() {
            now = at;
            for (key, ..) in table.poll(now, 9) {
                tries += 1;
                table.on_lost(&key, now);
            }
        }
        assert!(table.is_empty() && tries == 61, "{tries}");
        assert_eq!(now, NOW + 2 * TERM + TERM / 30);
    }

    #[test]
    fn requests_that_outlive_what_the_store_knows_are_counted_and_recognised() {
        let (mut table, mut state) = (table(), SlotState::default());
        let number = start(&mut table, &mut state, 1, NOW);
        let is_outlived = |table: &SlotTable<()>| table.is_outlived("exports", key().key, number);
        assert!(!is_outlived(&table));
        state = SlotState::default();
        let second = start(&mut table, &mut state, 1, NOW + 1);
        assert!(is_outlived(&table) && !table.is_outlived("exports", key().key, second));
        assert_eq!(table.counts().outlived, 1);
        // They occupy their slots again.
        assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW + 1), 2);
    }

    #[test]
    fn the_keys_of_a_process_are_bounded() {
        let mut table = table();
        let of = |bits: usize| SlotKey {
            key: Fingerprint::from_bits(bits as u128),
            ..key()
        };
        for bits in 0..SlotTable::<()>::MOST_KEYS {
            assert!(table.has_room(1));
            let _ = table.acquire(&of(bits), (), 1, NOW);
        }
        assert!(!table.has_room(1));
    }

    #[test]
    fn a_request_that_gives_up_leaves_a_renewal_that_frees_its_slots() {
        let (mut table, mut state) = (table(), SlotState::default());
        let message = table.acquire(&key(), (), 2, NOW);
        let _lost = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
        table.give_up(&key(), &message, NOW + 1);
        assert_eq!(table.due_at(), Some(NOW + 1));
        assert_eq!(tell(&mut table, &mut state, NOW + 1), 1);
        assert_eq!(SlotGrantor::new(10, TERM).used(&state, NOW + 1), 0);
        assert!(table.is_empty());
    }

    #[test]
    fn a_grant_that_a_renewal_has_voided_is_counted_and_not_used() {
        let (mut table, mut state) = (table(), SlotState::default());
        start(&mut table, &mut state, 1, NOW);
        let number = start(&mut table, &mut state, 1, NOW);
        let message = table.acquire(&key(), (), 2, NOW);
        let granted = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
        end(&mut table, number, 1);
        let later = NOW + SlotTerms::new(TERM).patience();
        assert_eq!(tell(&mut table, &mut state, later), 1);
        let start = table.on_acquired(&key(), &message, &granted, (NOW, later));
        assert_eq!(start, SlotStart::Again);
        assert_eq!((table.counts().voided, table.in_use()), (1, (1, 1)));
        // One that was denied is none.
        let message = table.acquire(&key(), (), 11, later);
        let denied = SlotGrantor::new(10, TERM).decide(&mut state, later, &message);
        let start = table.on_acquired(&key(), &message, &denied, (later, later));
        assert_eq!(start, SlotStart::Denied { free: 9 });
        assert_eq!(table.counts().voided, 1);
    }

    #[test]
    fn messages_reach_the_store_as_the_last_request_has_said() {
        let mut table = SlotTable::new(SlotOwner(7), SlotTerms::new(TERM));
        let _first = table.acquire(&key(), 'a', 1, NOW);
        let _second = table.acquire(&key(), 'b', 1, NOW);
        let due = NOW + TERM / 3;
        assert_eq!(table.due_at(), Some(due));
        let targets: Vec<_> = table.poll(due, 9).into_iter().map(|it| it.1).collect();
        assert_eq!((targets, table.due_at()), (vec!['b'], Some(due + TERM / 3)));
    }

    #[test]
    fn no_more_messages_are_sent_at_once_than_may_be() {
        let mut table = table();
        for bits in 1..=3 {
            let key = SlotKey {
                key: Fingerprint::from_bits(bits),
                ..key()
            };
            let _ = table.acquire(&key, (), 1, NOW);
        }
        let sent = [2, 2, 2].map(|most| table.poll(NOW + TERM / 3, most).len());
        assert_eq!(sent, [2, 1, 0]);
    }

    #[test]
    fn a_key_whose_only_acquire_was_denied_is_forgotten() {
        let (mut table, mut state) = (table(), SlotState::default());
        let message = table.acquire(&key(), (), 11, NOW);
        assert_eq!((table.in_use(), table.is_reported()), ((0, 0), false));
        let denied = SlotGrantor::new(10, TERM).decide(&mut state, NOW, &message);
        let _denied = table.on_acquired(&key(), &message, &denied, (NOW, NOW));
        assert!(table.is_empty() && table.is_reported());
    }

    #[test]
    fn a_message_that_came_too_late_is_no_grant_that_was_not_used() {
        let mut table = table();
        let message = table.acquire(&key(), (), 1, NOW);
        let stale = SlotReply {
            outcome: SlotOutcome::Stale,
            free: 9,
            left: TERM,
            is_new: false,
        };
        let start = table.on_acquired(&key(), &message, &stale, (NOW, NOW));
        assert_eq!((start, table.counts().voided), (SlotStart::Again, 0));
    }

    #[test]
    fn no_more_slots_go_back_than_a_request_has_and_none_of_another_key() {
        let (mut table, mut state) = (table(), SlotState::default());
        start(&mut table, &mut state, 4, NOW);
        let number = start(&mut table, &mut state, 3, NOW);
        end(&mut table, number, 9);
        assert_eq!(table.in_use(), (4, 1));
        // Numbers are those of a key: others have the same.
        let (mut table, mut others) = (self::table(), [(); 3].map(|()| SlotState::default()));
        let keys = [(1, None), (1, Some(5)), (2, None)].map(|(bits, place)| SlotKey {
            key: Fingerprint::from_bits(bits),
            place: place.map(Fingerprint::from_bits),
            ..key()
        });
        for ((key, state), at) in keys.iter().zip(&mut others).zip([NOW, NOW + 1, NOW]) {
            let message = table.acquire(key, (), 1, at);
            let reply = SlotGrantor::new(10, TERM).decide(state, at, &message);
            let start = table.on_acquired(key, &message, &reply, (at, at));
            assert_eq!(start, SlotStart::Started { fence: at });
        }
        let running = |table: &SlotTable<()>| {
            let entries = keys.iter().map(|key| table.entries.get(key));
            let running = entries.map(|it| it.map_or(0, |it| it.holder.running()));
            running.collect::<Vec<_>>()
        };
        table.end("exports", keys[0].key, NOW + 1, 1, NOW + 1);
        assert_eq!(running(&table), [1, 0, 1]);
        for _ in 0..2 {
            table.end("exports", keys[0].key, NOW, 1, NOW + 1);
            assert_eq!(running(&table), [0, 0, 1]);
        }
    }

    #[test]
    fn requests_that_were_outlived_are_counted_when_a_renewal_says_so_and_once() {
        let (mut table, mut state) = (table(), SlotState::default());
        start(&mut table, &mut state, 1, NOW);
        let mut now = NOW;
        for (forgets, outlived) in [(true, 1), (false, 1), (true, 1)] {
            now += TERM / 3;
            if forgets {
                state = SlotState::default();
            }
            assert_eq!(tell(&mut table, &mut state, now), 1);
            assert_eq!(table.counts().outlived, outlived);
        }
    }

    #[test]
    fn a_key_in_use_is_kept_however_long_the_store_is_away() {
        let (mut table, mut state) = (table(), SlotState::default());
        start(&mut table, &mut state, 1, NOW);
        while let Some(at) = table.due_at().filter(|at| *at < NOW + 4 * TERM) {
            let messages = table.poll(at, 9);
            assert_eq!(messages.len(), 1);
            table.on_lost(&messages[0].0, at);
        }
        assert_eq!(table.in_use(), (1, 1));
    }

    #[test]
    fn the_memory_of_a_table_is_that_of_its_keys_and_of_further_requests() {
        let (mut table, mut state) = (table(), SlotState::default());
        assert_eq!(table.usage(), TableUsage::default());
        start(&mut table, &mut state, 1, NOW);
        let entry = size_of::<SlotKey>() + size_of::<Entry<()>>() + size_of::<(Tick, SlotKey)>();
        let one = table.usage();
        assert_eq!((one.keys, one.bytes), (1, (entry * 3 / 2) as u64));
        for _ in 0..100 {
            let number = start(&mut table, &mut state, 1, NOW);
            let two = table.usage().bytes - one.bytes;
            assert_eq!(two, 2 * size_of::<Grant>() as u64);
            end(&mut table, number, 1);
        }
    }
}
