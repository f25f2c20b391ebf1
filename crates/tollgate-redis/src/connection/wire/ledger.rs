//! Which calls wait, which were sent, and what becomes of each.

use std::{collections::VecDeque, sync::Arc, task::Context};

use redis::Value;
use tokio::time::Instant;

use crate::connection::{
    call::Waiting,
    error::{CallError, CallErrorKind, code_of},
    queue::Queue,
    resp::Reply,
    script::Script,
    wire::{lost::Lost, sent::Sent},
};

/// The calls of one connection. Dropping it answers every one of them.
#[derive(Debug)]
pub(super) struct Ledger {
    queue: Arc<Queue>,
    /// Calls whose script the server did not know.
    again: VecDeque<Waiting>,
    sent: Sent,
    room: usize,
    lost: Option<Lost>,
    /// Always empty; kept for its memory.
    taken: Vec<Waiting>,
}

/// What an answer says about the server.
#[derive(Debug)]
pub(super) enum Heard {
    /// It works.
    Answer,
    /// It is in trouble.
    Trouble,
    /// Nothing.
    Nothing,
}

impl Ledger {
    pub(super) fn new(queue: Arc<Queue>, room: usize) -> Self {
        Self {
            queue,
            again: VecDeque::new(),
            sent: Sent::default(),
            room: room.max(1),
            lost: None,
            taken: Vec::new(),
        }
    }

    /// Whether the server owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Appends what waits to the empty `out`, first what was asked before; as many calls as there is room for.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) {
        let mut room = self.room.saturating_sub(self.sent.len());
        let mut known: Vec<Arc<Script>> = Vec::new();
        while room > 0
            && let Some(call) = self.again.pop_front()
        {
            if call.is_dropped() {
                continue;
            }
            // The first one brings the text, and the others find it there.
            let with_body = !known
                .iter()
                .any(|script| Arc::ptr_eq(script, call.script()));
            if with_body {
                known.push(Arc::clone(call.script()));
            }
            self.sent.put(call, out, with_body);
            room -= 1;
        }
        self.queue.take(room, &mut self.taken);
        for call in self.taken.drain(..) {
            self.sent.put(call, out, false);
        }
    }

    /// Notes how much of what was filled in has left.
    pub(super) fn written(&mut self, bytes: usize) {
        self.sent.written(bytes);
    }

    /// Hands an answer to its call.
    pub(super) fn answer(&mut self, reply: Reply) -> Result<Heard, Lost> {
        let reply = match reply {
            Reply::Push => return Ok(Heard::Nothing),
            Reply::Value(value) => Ok(value),
            Reply::Error(line) => Err(line),
        };
        match self.sent.answered() {
            None => Err(Lost::Malformed("there was an answer without a question")),
            // Too late is what it was counted as already.
            Some(None) => Ok(Heard::Nothing),
            Some(Some(call)) => self.settle(call, reply),
        }
    }

    fn settle(&mut self, call: Waiting, reply: Result<Value, String>) -> Result<Heard, Lost> {
        let line = match reply {
            Ok(value) => {
                call.answer(Ok(value));
                return Ok(Heard::Answer);
            }
            Err(line) => line,
        };
        let error = CallError::of_server(&line);
        let code = code_of(&line);
        let call = match code {
            "NOSCRIPT" => match call.again() {
                Ok(call) => {
                    self.again.push_back(call);
                    return Ok(Heard::Nothing);
                }
                Err(call) => call,
            },
            _ => call,
        };
        let heard = heard(&error);
        call.answer(Err(error));
        match code {
            // Another server decides now, or this one wants to know again who we are.
            "READONLY" | "MASTERDOWN" | "NOAUTH" => Err(Lost::Refused(code.to_owned())),
            _ => Ok(heard),
        }
    }

    /// Answers the calls whose deadline has passed, and says how many. An error is one that has not left as a whole.
    pub(super) fn expire(&mut self, now: Instant) -> (u32, Result<(), Lost>) {
        self.queue.take_expired(now, &mut self.taken);
        for _ in 0..self.again.len() {
            match self.again.pop_front() {
                Some(call) if call.deadline() <= now => self.taken.push(call),
                Some(call) => self.again.push_back(call),
                None => break,
            }
        }
        let mut expired = 0;
        for call in self.taken.drain(..) {
            expired += 1;
            call.fail(
                CallErrorKind::Expired,
                "Redis was not free to be asked in time",
            );
        }
        let stuck = self.sent.expire(now, |call| {
            expired += 1;
            call.fail(CallErrorKind::Unknown, "Redis did not answer in time");
        });
        (expired, if stuck { Err(Lost::Silent) } else { Ok(()) })
    }

    /// The first deadline of all calls. If nothing waits, the next call wakes the task of `cx`.
    pub(super) fn poll_first_deadline(&self, cx: &Context<'_>) -> Option<Instant> {
        let waiting = self.queue.poll_first(cx);
        let again = self.again.iter().map(Waiting::deadline).min();
        let sent = self.sent.first_deadline();
        [waiting, again, sent].into_iter().flatten().min()
    }

    /// If nothing waits, the next call wakes the task of `cx`.
    pub(super) fn poll_waiting(&self, cx: &Context<'_>) {
        self.queue.poll_first(cx);
    }

    /// Why the calls that are left will not be answered.
    pub(super) fn lose(&mut self, lost: Lost) {
        self.lost.get_or_insert(lost);
    }
}

fn heard(error: &CallError) -> Heard {
    if error.weighs() {
        Heard::Trouble
    } else {
        Heard::Nothing
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let lost = self.lost.take().unwrap_or(Lost::Dropped);
        let not_sent = CallError::new(
            CallErrorKind::Unavailable,
            format!("the connection to Redis was lost before it was asked: {lost}"),
        );
        self.queue.close(&not_sent);
        for call in self.again.drain(..) {
            call.answer(Err(not_sent.clone()));
        }
        let unknown = CallError::new(
            CallErrorKind::Unknown,
            format!("the connection to Redis was lost before it answered: {lost}"),
        );
        self.sent.drain(|call, began| {
            call.answer(Err(if began { &unknown } else { &not_sent }.clone()));
        });
    }
}
