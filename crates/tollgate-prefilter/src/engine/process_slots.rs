//! A process's side of slots, for all keys: what it has in use lies in the entries of the keys.

use tollgate_core::{Tick, store::Fingerprint};

use crate::{
    engine::{
        engine::{Engine, EngineEvent},
        entry::Entry,
        limit::number_of,
        request::NoReply,
    },
    slots::{
        Grant, SlotKey, SlotMessage, SlotOutcome, SlotQueue, SlotReply, SlotTarget, StateSlots,
    },
    sync::{MutexGuard, lock},
    table::TableKey,
};

/// What the process has in use of the slots of all keys, locked, and what it has to tell the store: a [`SlotHolder`](crate::SlotHolder) for
/// each state.
pub struct ProcessSlots<'a> {
    engine: &'a Engine,
    queue: MutexGuard<'a, SlotQueue>,
}

impl Engine {
    /// The slots that requests of this process have in use.
    pub fn slots(&self) -> ProcessSlots<'_> {
        ProcessSlots {
            engine: self,
            queue: lock(&self.slots),
        }
    }
}

impl ProcessSlots<'_> {
    /// Acquires slots for one request. [`on_acquired`](Self::on_acquired) has to follow. `None`: the table of keys has no room, and nothing
    /// is acquired.
    pub fn acquire(
        &mut self,
        key: &SlotKey,
        target: SlotTarget,
        want: u32,
        now: Tick,
    ) -> Option<SlotMessage> {
        let owner = self.queue.owner;
        // The slots stay in the entry: only a holder of this lock takes them out.
        let may_go = |entry: &Entry| entry.may_go(now);
        (self.engine.keys).with_new(table_key(key), now, may_go, |entry| {
            let states = entry.slots.get_or_insert_default();
            if !states.iter().any(|it| it.key == *key) {
                states.push(StateSlots::new(key.clone(), owner, target.clone()));
            }
        })?;
        self.change(key, now, |state, queue| {
            state.target = target;
            queue.seq += 1;
            (state.holder).acquire(queue.seq, want, now, &queue.terms)
        })
    }

    /// Processes the reply to an acquire that was sent at `sent`, or why there is none: it is lost, or its request has gone; or the acquire
    /// has certainly not reached the store. `None`: there was no reply.
    pub fn on_acquired(
        &mut self,
        key: &SlotKey,
        message: &SlotMessage,
        reply: Result<SlotReply, NoReply>,
        sent: Tick,
        now: Tick,
    ) -> Option<SlotOutcome> {
        // Another server may give this number at the same instant, to a request whose state lies elsewhere: it could not be told from that.
        let is_other = |state: &StateSlots, _| state.key != *key;
        let is_given = match reply.map(|reply| reply.outcome) {
            Ok(SlotOutcome::Granted { fence }) => {
                self.with_grant(&key.rule, key.key, fence, is_other) == Some(true)
            }
            _ => false,
        };
        let start = self.change(key, now, |state, queue| {
            let holder = &mut state.holder;
            let reply = match &reply {
                Ok(reply) => reply,
                Err(NoReply::NoAnswer) => {
                    holder.give_up(message, now, &queue.terms);
                    return None;
                }
                Err(NoReply::NotSent | NoReply::NothingToSend) => {
                    holder.not_sent(message, now);
                    return None;
                }
            };
            let start = holder.on_acquired(message, reply, sent, now, &queue.terms);
            if let SlotOutcome::Granted { fence } = start {
                if is_given {
                    holder.end(message.want, now, &queue.terms);
                    return Some(SlotOutcome::Stale);
                }
                // Replies come in any order.
                let index = state.grants.partition_point(|it| it.number < fence);
                let grant = Grant {
                    number: fence,
                    seq: message.seq,
                    slots: message.want,
                };
                state.grants.insert(index, grant);
            }
            Some(start)
        });
        let reply = reply.ok()?;
        // One that was forgotten: the store has not replied for long.
        let start = start.flatten();
        let is_granted = matches!(reply.outcome, SlotOutcome::Granted { .. });
        if start == Some(SlotOutcome::Stale) && is_granted {
            self.engine.count(EngineEvent::SlotsVoided, 1);
        }
        Some(start.unwrap_or(SlotOutcome::Stale))
    }

    /// A request has ended whose slots have this number: they are free. Nothing happens if they were released before.
    pub fn end_request(
        &mut self,
        rule: &str,
        key: Fingerprint,
        number: u64,
        slots: u32,
        now: Tick,
    ) {
        let state_key = self.with_grant(rule, key, number, |state, _| state.key.clone());
        let Some(key) = state_key else { return };
        self.change(&key, now, |state, queue| {
            let Some(index) = state.index_of(number) else {
                return;
            };
            let slots = slots.min(state.grants[index].slots);
            state.grants[index].slots -= slots;
            if state.grants[index].slots == 0 {
                state.grants.remove(index);
            }
            state.holder.end(slots, now, &queue.terms);
        });
    }

    /// Whether the store has forgotten slots with this number while their request ran: others may have been given them.
    pub fn is_outlived(&self, rule: &str, key: Fingerprint, number: u64) -> bool {
        let is_outlived = |state: &StateSlots, seq| state.holder.is_outlived(seq);
        self.with_grant(rule, key, number, is_outlived) == Some(true)
    }

    /// The messages to the store that are due now, about at most `most` states. The task that sends has to look again, and to
    /// [rest](Self::rest) once there are none.
    pub fn poll(&mut self, now: Tick, most: usize) -> Vec<(SlotKey, SlotTarget, SlotMessage)> {
        // It sees below what comes up meanwhile.
        self.queue.looks_at = Some(now);
        let mut messages = Vec::new();
        while messages.len() < most
            && self.queue.due.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.queue.due.pop_first()
        {
            let message = self.change(&key, now, |state, queue| {
                state.due_at = None;
                if state.is_abandoned(now, &queue.terms) {
                    return None;
                }
                queue.seq += 1;
                let message = state.holder.renew(queue.seq, now, &queue.terms);
                Some((state.target.clone(), message))
            });
            let message = message.flatten();
            messages.extend(message.map(|(target, message)| (key, target, message)));
        }
        self.engine
            .count(EngineEvent::SlotsReported, messages.len() as u64);
        messages
    }

    /// Processes the reply to a message of [`poll`](Self::poll); `None`: it is lost, and the message is said again soon.
    pub fn on_renewed(
        &mut self,
        key: &SlotKey,
        message: &SlotMessage,
        reply: Option<&SlotReply>,
        now: Tick,
    ) {
        self.change(key, now, |state, queue| match reply {
            Some(reply) => (state.holder).on_renewed(message, reply, now, &queue.terms),
            None => (state.holder).renew_by(now + queue.terms.retry_after()),
        });
    }

    /// Until when the task that sends may rest. `None`: the store knows of no slots of this process.
    pub fn rest(&mut self) -> Option<Tick> {
        self.queue.looks_at = self.queue.due.first().map(|(at, _)| *at);
        self.queue.looks_at
    }

    /// Whether something is due before the task that sends looks. Then it has to be woken.
    pub fn wakes(mut self, now: Tick) -> bool {
        // A time that has passed: the machine slept, and the task sleeps on, by a clock that stood still.
        let looks_at = self.queue.looks_at.filter(|at| *at > now);
        let due_at = self.queue.due.first().map(|(at, _)| *at);
        let wakes = due_at.is_some_and(|due| looks_at.is_none_or(|at| at > due));
        if wakes {
            self.queue.looks_at = due_at;
        }
        wakes
    }

    /// Whether the store knows of all requests that have ended.
    pub fn is_reported(&self) -> bool {
        self.queue.due.iter().all(|(_, key)| {
            let runs = |state: &StateSlots| state.key == *key && state.holder.running() > 0;
            let any_runs = |entry: &mut Entry| entry.states().iter().any(runs);
            self.engine.keys.with(table_key(key), any_runs) == Some(true)
        })
    }

    /// Something happens to a state, if it is there: it may be due at another time then, and requests may be outlived.
    fn change<R>(
        &mut self,
        key: &SlotKey,
        now: Tick,
        change: impl FnOnce(&mut StateSlots, &mut SlotQueue) -> R,
    ) -> Option<R> {
        let (queue, engine) = (&mut *self.queue, self.engine);
        let change = |entry: &mut Entry| {
            let states = entry.slots.as_mut()?;
            let place = states.iter().position(|it| it.key == *key)?;
            let state = &mut states[place];
            let outlived = state.outlived();
            let done = change(state, queue);
            engine.count(
                EngineEvent::SlotsOutlived,
                state.outlived().saturating_sub(outlived),
            );
            if !queue.schedule(state, now) {
                states.swap_remove(place);
                entry.slots.take_if(|states| states.is_empty());
            }
            Some(done)
        };
        engine.keys.with(table_key(key), change)?
    }

    /// The state with this grant: there are several where something else says where the state lies.
    fn with_grant<R>(
        &self,
        rule: &str,
        key: Fingerprint,
        number: u64,
        see: impl FnOnce(&StateSlots, u64) -> R,
    ) -> Option<R> {
        let at = TableKey::new(number_of(rule), key);
        self.engine.keys.with(at, |entry| {
            let mut of_rule = entry.states().iter().filter(|it| *it.key.rule == *rule);
            let (state, index) = of_rule.find_map(|it| Some((it, it.index_of(number)?)))?;
            Some(see(state, state.grants[index].seq))
        })?
    }
}

fn table_key(key: &SlotKey) -> TableKey {
    TableKey::new(number_of(&key.rule), key.key)
}

tollgate_core::debug_fields!(ProcessSlots<'a>, it => states: it.queue.due.len());
