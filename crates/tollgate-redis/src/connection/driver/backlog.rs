//! Which calls wait, which were sent, and what becomes of each.

use std::{collections::VecDeque, iter, ptr, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::connection::{
    command::{Command, Script, push_asking},
    error::{CallError, CallErrorKind, Failure, code_of},
    node::{NodeState, QueuedCommand},
    options::{NodeEvent, Resent},
    resp::{Integers, Value},
};

/// The calls of one connection. Dropping it answers every one of them.
pub(super) struct Backlog {
    pub(super) shared: Arc<NodeState>,
    /// Commands without an answer, in the order in which their answers come.
    sent: VecDeque<SentCommand>,
    /// How many calls they carry.
    unanswered: usize,
    /// The first deadline of these calls, or a time before it.
    pub(super) earliest: Option<Instant>,
    /// Bytes that were written to the socket since the connection began.
    pub(super) written: u64,
    alone: RulesAlone,
    /// Why the calls that are left will not be answered.
    pub(super) lost: Option<Lost>,
    pub(super) results: Results,
    /// Always empty; kept for its memory.
    taken: VecDeque<QueuedCommand>,
}

/// Calls that were written, or will be, as one command.
struct SentCommand {
    /// Those whose deadline has passed are answered already. Their part of the answer will still come.
    calls: SmallVec<[QueuedCommand; 1]>,
    /// Where it begins and ends in the bytes of the connection.
    begin: u64,
    end: u64,
    /// Where somebody wants to know how long the answer takes.
    at: Option<Instant>,
}

/// Rules whose calls go alone for a while, because they would be refused together with others: the user may not touch their keys,
/// or their hash slot is on the move. A bit stands for several rules; a call that goes alone for another one costs a little more.
#[derive(Debug, Default)]
struct RulesAlone {
    rules: u64,
    until: Option<Instant>,
}

/// How long they go alone. Then one command is tried again with all, and costs one more if it is refused again.
const ALONE_FOR: Duration = Duration::from_secs(10);

impl RulesAlone {
    /// Those that go alone now.
    fn rules(&mut self) -> u64 {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            *self = Self::default();
        }
        self.rules
    }

    /// What is added later ends with the rest, so that bits do not gather.
    fn add(&mut self, rules: u64) {
        self.rules |= rules;
        self.until.get_or_insert_with(|| Instant::now() + ALONE_FOR);
    }
}

/// The numbers that the script returns for each check.
const NUMBERS: usize = 3;

/// What calls have shown of the server since the breaker was last told.
#[derive(Default)]
pub(super) struct Results {
    /// For how many calls it works.
    pub(super) answered: u32,
    /// For how many it fails.
    pub(super) failed: u32,
}

impl Backlog {
    pub(super) fn new(shared: Arc<NodeState>) -> Self {
        Self {
            shared,
            sent: VecDeque::new(),
            unanswered: 0,
            earliest: None,
            written: 0,
            alone: RulesAlone::default(),
            lost: None,
            results: Results::default(),
            taken: VecDeque::new(),
        }
    }

    /// Whether the server owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether there is no call, sent or waiting.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_owed() && self.shared.queue.len() == 0
    }

    /// How many bytes are to be written until the first command has left.
    pub(super) fn first_command(&self) -> usize {
        let end = self.sent.front().map_or(0, |first| first.end);
        // A buffer is filled in memory.
        end.saturating_sub(self.written) as usize
    }

    /// Appends what waits to the empty `out`, those that were asked before among them; as many calls as there is room for. Those that go
    /// with one another become one command.
    ///
    /// Calls whose deadline has passed, while this process stood still, are answered instead.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) {
        let room = self
            .shared
            .options
            .unanswered
            .saturating_sub(self.unanswered);
        // Outside of the lock of the queue they are answered.
        let (expired, now) = self.shared.queue.take(room, &mut self.taken);
        self.not_asked(expired);
        let alone = self.alone.rules();
        for call in &mut self.taken {
            if call.command.rules & alone != 0 {
                call.alone = true;
            }
        }
        // Those that go alone are not to stand between the others.
        let place =
            |call: &QueuedCommand| (call.command.hash_slot, call.command.rules & alone != 0);
        if !self.taken.iter().is_sorted_by_key(place) {
            // Calls on the same keys stay in order.
            self.taken.make_contiguous().sort_by_key(place);
        }
        let now = now.filter(|_| cfg!(feature = "metrics"));
        // Whose text one of these calls brings: the next ones find it there.
        let mut brought: SmallVec<[&Script; 1]> = SmallVec::new();
        while let Some(first) = self.taken.front() {
            if let Some(now) = now
                && !first.was_unknown()
            {
                self.shared
                    .options
                    .tell(&NodeEvent::Queued(self.waited(first, now)));
            }
            let count = self.company(first);
            let mut with_body = self.taken.range(..count).any(QueuedCommand::brings_script);
            if let Some(script) = first.command.script
                && self.taken.range(..count).any(QueuedCommand::was_unknown)
                && !brought.iter().any(|known| ptr::eq(*known, script))
            {
                brought.push(script);
                with_body = true;
            }
            if first.asking {
                // No call waits for its reply; the reply to the next call shows what became of it.
                push_asking(out);
                self.push_sent(0, out.len(), None);
            }
            let commands = self.taken.range(..count).map(|call| &*call.command);
            Command::write_all(commands, with_body, out);
            self.push_sent(count, out.len(), now);
        }
    }

    /// The first of the calls that were taken were added, as one command, to a buffer that now has `length` bytes, none of them written.
    fn push_sent(&mut self, calls: usize, length: usize, at: Option<Instant>) {
        let calls: SmallVec<[_; 1]> = self.taken.drain(..calls).collect();
        let deadlines = calls.iter().map(|call| call.deadline);
        self.earliest = self.earliest.into_iter().chain(deadlines).min();
        self.unanswered += calls.len();
        // The command before may have been answered and be gone from the list.
        let before = self.sent.back().map_or(0, |last| last.end);
        self.sent.push_back(SentCommand {
            calls,
            begin: before.max(self.written),
            end: self.written + length as u64,
            at,
        });
    }

    /// Whether one more call may be without an answer.
    pub(super) fn has_room(&self) -> bool {
        self.unanswered < self.shared.options.unanswered
    }

    /// How long a call has waited, by its deadline: of several that one request waits for, since the first of them.
    fn waited(&self, call: &QueuedCommand, now: Instant) -> Duration {
        let began = call.deadline.checked_sub(self.shared.options.deadline);
        began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// How many of the calls that were taken become one command, beginning with the first.
    fn company(&self, first: &QueuedCommand) -> usize {
        let mut checks = first.command.count();
        let mut time = first.command.server_time();
        let others = self.taken.iter().skip(1).take_while(|call| {
            checks += call.command.count();
            time += call.command.server_time();
            checks <= self.shared.options.together
                && time <= self.shared.options.batch_time
                && first.goes_with(call)
        });
        1 + others.count()
    }

    /// Hands an answer to its calls.
    pub(super) fn answer(&mut self, reply: Value, now: Instant) -> Result<(), Lost> {
        let Some(SentCommand { calls, at, .. }) = self.sent.pop_front() else {
            let why = "there was an answer without a question";
            return Err(Lost::other(why));
        };
        self.unanswered -= calls.len();
        if let Some(at) = at {
            self.shared
                .options
                .tell(&NodeEvent::RoundTrip(now.saturating_duration_since(at)));
        }
        match reply {
            Value::Error(line) => self.refuse(calls, &line),
            reply => {
                self.hand_out(calls, reply);
                Ok(())
            }
        }
    }

    /// Hands the answer to a command to its calls.
    fn hand_out(&mut self, mut calls: SmallVec<[QueuedCommand; 1]>, reply: Value) {
        if let [call] = &mut calls[..] {
            // A call that was sent alone gets whatever reply there is.
            self.results.answered += u32::from(call.answer(Ok(reply)));
            return;
        }
        // The time, and then what the script says to each check, in order; otherwise another script has run.
        let numbers = |call: &QueuedCommand| NUMBERS * call.command.answers;
        let all: usize = calls.iter().map(numbers).sum();
        let integers = match reply {
            Value::Integers(integers) if integers.len() == 1 + all => integers,
            _ => Integers::new(),
        };
        let mut begin = 1;
        for mut call in calls {
            let end = begin + numbers(&call);
            let answer = match integers.first().zip(integers.get(begin..end)) {
                Some((time, own)) => {
                    let integers = iter::once(time).chain(own).copied();
                    Ok(Value::Integers(integers.collect()))
                }
                None => Err(CallError::new(
                    CallErrorKind::NoAnswer,
                    "Redis answered a call with something else than the script does",
                )),
            };
            begin = end;
            // Too late is what it was counted as already.
            self.results.answered += u32::from(call.answer(answer));
        }
    }

    /// Answers calls that were not sent before their deadline.
    fn not_asked(&mut self, calls: impl IntoIterator<Item = QueuedCommand>) {
        for mut call in calls {
            self.results.failed += 1;
            call.fail(
                CallErrorKind::NotSent,
                "Redis was not free to be asked in time",
            );
        }
    }

    fn refuse(&mut self, calls: SmallVec<[QueuedCommand; 1]>, line: &str) -> Result<(), Lost> {
        let error = CallError::of_server(line);
        let code = code_of(line);
        let travelled_together = calls.len() > 1;
        let mut failed = 0;
        for mut call in calls.into_iter().filter(|call| !call.is_answered()) {
            let again = match code {
                "NOSCRIPT" => call.is_unknown_again().then_some(Resent::WithScript),
                // The key of another was missing while their hash slot moves.
                "TRYAGAIN" if travelled_together => {
                    self.alone.add(call.command.rules);
                    call.alone = true;
                    Some(Resent::Alone)
                }
                // The user may not touch a key of another: servers look at all keys of a script before they run it.
                "NOPERM" if travelled_together => {
                    call.alone = true;
                    Some(Resent::Alone)
                }
                "NOPERM" => {
                    self.alone.add(call.command.rules);
                    None
                }
                _ => None,
            };
            if let Some(why) = again {
                self.shared.options.tell(&NodeEvent::Resent(why));
                self.shared.queue.put_back(call);
            } else {
                failed += u32::from(error.weighs());
                call.answer(Err(error.clone()));
            }
        }
        match code {
            // Another server decides now, or this one wants to know again who we are.
            "READONLY" | "MASTERDOWN" | "NOAUTH" => {
                Err(Lost::other(format!("the server answered {code}")))
            }
            _ => {
                self.results.failed += failed;
                Ok(())
            }
        }
    }

    /// Answers the calls whose deadline has passed. An error is one that has not left as a whole.
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), Lost> {
        let expired = self.shared.queue.take_expired(now);
        self.not_asked(expired);
        self.earliest = None;
        for command in &mut self.sent {
            for call in command.calls.iter_mut().filter(|call| !call.is_answered()) {
                if call.deadline > now {
                    self.earliest = self.earliest.into_iter().chain([call.deadline]).min();
                } else if command.end > self.written {
                    return Err(Lost::silent());
                } else {
                    self.results.failed += 1;
                    call.fail(CallErrorKind::NoAnswer, "Redis did not answer in time");
                }
            }
        }
        Ok(())
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        let lost = self.lost.take().unwrap_or_else(Lost::dropped);
        let not_sent = CallError::new(
            CallErrorKind::Unavailable,
            format!("the connection to Redis was lost before it was asked: {lost}"),
        );
        self.shared.queue.close(&not_sent);
        let unknown = CallError::new(
            CallErrorKind::NoAnswer,
            format!("the connection to Redis was lost before it answered: {lost}"),
        );
        for command in self.sent.drain(..) {
            let error = match command.begin < self.written {
                true => &unknown,
                false => &not_sent,
            };
            for mut call in command.calls {
                call.answer(Err(error.clone()));
            }
        }
    }
}

// Why a connection ended.

/// Why a connection is of no use any more.
pub(in crate::connection) type Lost = Failure<LostKind>;

/// Who has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum LostKind {
    /// The server closed it, or the socket failed.
    Closed,
    /// This process: the server is silent, is no master, or says what cannot be read; or nobody needs it.
    Other,
}

impl Lost {
    /// This process ends it.
    pub(in crate::connection) fn other(why: impl Into<Arc<str>>) -> Self {
        Self::new(LostKind::Other, why)
    }

    /// The server stands still.
    pub(super) fn silent() -> Self {
        Self::other("the server was silent for too long")
    }

    /// All its callers are gone.
    pub(in crate::connection) fn dropped() -> Self {
        Self::other("it is no longer needed")
    }
}
