//! Which calls wait, which were sent, and what becomes of each.

use std::{collections::VecDeque, fmt, io, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::connection::{
    command::{Command, Script, push_asking},
    error::{CallError, CallErrorKind, code_of},
    node::{CommandQueue, QueuedCommand},
    options::{EventSink, NodeEvent, NodeOptions, Resent},
    resp::{RespReply, Value},
};

/// The calls of one connection. Dropping it answers every one of them.
pub(super) struct Backlog {
    pub(super) queue: Arc<CommandQueue>,
    pub(super) inflight: SentCommands,
    room: usize,
    /// How many checks may travel together.
    together: usize,
    /// For how long one command may keep the server.
    batch_time: Duration,
    deadline: Duration,
    events: EventSink,
    name: Arc<str>,
    alone: RulesAlone,
    lost: Option<Lost>,
    /// Always empty; kept for its memory.
    taken: VecDeque<QueuedCommand>,
    /// As `taken`.
    entries: Vec<Entry>,
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

/// What an answer says about the server.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// For how many calls it works.
    pub(super) answered: u32,
    /// For how many it fails.
    pub(super) failed: u32,
}

impl Backlog {
    pub(super) fn new(queue: Arc<CommandQueue>, options: &NodeOptions) -> Self {
        Self {
            queue,
            inflight: SentCommands::default(),
            room: options.unanswered.max(1),
            together: options.together,
            batch_time: options.batch_time,
            deadline: options.deadline,
            events: Arc::clone(&options.events),
            name: Arc::clone(&options.name),
            alone: RulesAlone::default(),
            lost: None,
            taken: VecDeque::new(),
            entries: Vec::new(),
        }
    }

    /// Whether the server owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        !self.inflight.is_empty()
    }

    /// Whether there is no call, sent or waiting.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_owed() && self.queue.len() == 0
    }

    /// Appends what waits to the empty `out`, those that were asked before among them; as many calls as there is room for. Those that go
    /// with one another become one command.
    ///
    /// Calls whose deadline has passed, while this process stood still, are answered instead. Says how many.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) -> u32 {
        let mut now = None;
        let is_over = |call: &QueuedCommand| call.deadline <= *now.get_or_insert_with(Instant::now);
        // Outside of the lock of the queue they are answered.
        let mut expired = Vec::new();
        let room = self.room.saturating_sub(self.inflight.len());
        (self.queue).take(room, &mut self.taken, &mut expired, is_over);
        let expired = not_asked(expired);
        let alone = self.alone.rules();
        for call in &mut self.taken {
            if call.command.rules & alone != 0 {
                call.alone = true;
            }
        }
        // Those that go alone are not to stand between the others.
        let place =
            |call: &QueuedCommand| (call.command.hash_slot(), call.command.rules & alone != 0);
        if !self.taken.iter().is_sorted_by_key(place) {
            // Calls on the same keys stay in order.
            self.taken.make_contiguous().sort_by_key(place);
        }
        let now = now.filter(|_| cfg!(feature = "metrics"));
        // Whose text one of these calls brings: the next ones find it there.
        let mut brought: SmallVec<[Arc<Script>; 1]> = SmallVec::new();
        while let Some(first) = self.taken.front() {
            if let Some(now) = now
                && !first.was_unknown()
            {
                self.tell(&NodeEvent::Queued(self.waited(first, now)));
            }
            let count = self.company(first);
            let is_asking = first.asking;
            let mut with_body = self.taken.range(..count).any(QueuedCommand::brings_script);
            if let Some(script) = &first.command.script
                && self.taken.range(..count).any(QueuedCommand::was_unknown)
                && !brought.iter().any(|known| Arc::ptr_eq(known, script))
            {
                brought.push(Arc::clone(script));
                with_body = true;
            }
            if is_asking {
                // No call waits for its reply; the reply to the next call shows what became of it.
                push_asking(out);
                self.inflight.push(std::iter::empty(), out.len(), None);
            }
            let commands = self.taken.range(..count).map(|call| &call.command);
            Command::write_all(commands, with_body, out);
            self.inflight
                .push(self.taken.drain(..count), out.len(), now);
        }
        expired
    }

    /// Whether one more call may be without an answer.
    pub(super) fn has_room(&self) -> bool {
        self.inflight.len() < self.room
    }

    /// How long a call has waited, by its deadline: of several that one request waits for, since the first of them.
    fn waited(&self, call: &QueuedCommand, now: Instant) -> Duration {
        let began = call.deadline.checked_sub(self.deadline);
        began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// How many of the calls that were taken become one command, beginning with the first.
    fn company(&self, first: &QueuedCommand) -> usize {
        let mut checks = first.command.count().unwrap_or(0);
        let mut time = first.command.server_time();
        let others = self.taken.iter().skip(1).take_while(|call| {
            checks += call.command.count().unwrap_or(0);
            time += call.command.server_time();
            checks <= self.together && time <= self.batch_time && first.goes_with(call)
        });
        1 + others.count()
    }

    /// Hands an answer to its calls.
    pub(super) fn answer(&mut self, reply: RespReply<'_>, now: Instant) -> Result<Received, Lost> {
        let Some((sent, entries)) = self.inflight.answered() else {
            return Err(Lost::Malformed("there was an answer without a question"));
        };
        self.entries.extend(entries);
        if let Some(sent) = sent {
            self.tell(&NodeEvent::RoundTrip(now.saturating_duration_since(sent)));
        }
        match reply {
            RespReply::Error(line) => self.refuse(&line),
            reply => Ok(self.hand_out(reply)),
        }
    }

    fn tell(&self, event: &NodeEvent) {
        (self.events)(&self.name, event);
    }

    fn hand_out(&mut self, reply: RespReply<'_>) -> Received {
        let mut received = Received::default();
        if self.entries.len() == 1 {
            // A call that was sent alone gets whatever reply there is.
            let call = self.entries.pop().and_then(|entry| entry.call);
            if let Some((call, value)) = call.zip(reply.into_value()) {
                received.answered += 1;
                call.answer(Ok(value));
            }
            return received;
        }
        // The time, and then what the script says to each check, in order; otherwise another script has run.
        let numbers = |entry: &Entry| NUMBERS * entry.checks;
        let all: usize = self.entries.iter().map(numbers).sum();
        let mut answers = match reply {
            RespReply::Integers([time, answers @ ..]) if answers.len() == all => {
                Some((*time, answers))
            }
            _ => None,
        };
        for entry in self.entries.drain(..) {
            let answer = match &mut answers {
                Some((time, answers)) => {
                    // There are as many as all entries have.
                    let (own, rest) = answers.split_at(numbers(&entry).min(answers.len()));
                    *answers = rest;
                    let integers = std::iter::once(*time).chain(own.iter().copied());
                    Ok(Value::Integers(integers.collect()))
                }
                None => Err(CallError::new(
                    CallErrorKind::Unknown,
                    "Redis answered a call with something else than the script does",
                )),
            };
            // Too late is what it was counted as already.
            if let Some(call) = entry.call {
                received.answered += 1;
                call.answer(answer);
            }
        }
        received
    }

    fn refuse(&mut self, line: &str) -> Result<Received, Lost> {
        let error = CallError::of_server(line);
        let code = code_of(line);
        let travelled_together = self.entries.len() > 1;
        let mut received = Received::default();
        for mut call in self.entries.drain(..).filter_map(|entry| entry.call) {
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
                (self.events)(&self.name, &NodeEvent::Resent(why));
                self.queue.put_back(call);
            } else {
                received.failed += u32::from(error.weighs());
                call.answer(Err(error.clone()));
            }
        }
        match code {
            // Another server decides now, or this one wants to know again who we are.
            "READONLY" | "MASTERDOWN" | "NOAUTH" => Err(Lost::Refused(code.to_owned())),
            _ => Ok(received),
        }
    }

    /// Answers the calls whose deadline has passed, and says how many. An error is one that has not left as a whole.
    pub(super) fn expire(&mut self, now: Instant) -> (u32, Result<(), Lost>) {
        self.queue.take_expired(now, &mut self.taken);
        let mut expired = not_asked(self.taken.drain(..));
        let stuck = self.inflight.expire(now, |call| {
            expired += 1;
            call.fail(CallErrorKind::Unknown, "Redis did not answer in time");
        });
        (expired, if stuck { Err(Lost::Silent) } else { Ok(()) })
    }

    /// The first deadline of all calls; `waiting` is that of those in the queue.
    pub(super) fn first_deadline(&self, waiting: Option<Instant>) -> Option<Instant> {
        let sent = self.inflight.first_deadline();
        waiting.into_iter().chain(sent).min()
    }

    /// Why the calls that are left will not be answered.
    pub(super) fn lose(&mut self, lost: Lost) {
        self.lost.get_or_insert(lost);
    }
}

/// Answers calls that were not sent before their deadline, and says how many.
fn not_asked(calls: impl IntoIterator<Item = QueuedCommand>) -> u32 {
    let mut count = 0;
    for call in calls {
        count += 1;
        call.fail(
            CallErrorKind::Expired,
            "Redis was not free to be asked in time",
        );
    }
    count
}

impl Drop for Backlog {
    fn drop(&mut self) {
        let lost = self.lost.take().unwrap_or(Lost::Dropped);
        let not_sent = CallError::new(
            CallErrorKind::Unavailable,
            format!("the connection to Redis was lost before it was asked: {lost}"),
        );
        self.queue.close(&not_sent);
        let unknown = CallError::new(
            CallErrorKind::Unknown,
            format!("the connection to Redis was lost before it answered: {lost}"),
        );
        self.inflight.drain(|call, began| {
            call.answer(Err(if began { &unknown } else { &not_sent }.clone()));
        });
    }
}

// Why a connection ended.

/// Why a connection is of no use any more.
#[derive(Clone, Debug)]
pub(in crate::connection) enum Lost {
    /// The server closed it.
    Closed,
    /// The socket failed.
    Io(Arc<io::Error>),
    /// The server stands still.
    Silent,
    /// The server sent something that cannot be read.
    Malformed(&'static str),
    /// The server answered with this code: it is no master, or does not know us.
    Refused(String),
    /// Sentinels name another master.
    Moved,
    /// All its callers are gone.
    Dropped,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed it"),
            Self::Io(error) => error.fmt(f),
            Self::Silent => f.write_str("the server was silent for too long"),
            Self::Malformed(what) => f.write_str(what),
            Self::Refused(code) => write!(f, "the server answered {code}"),
            Self::Moved => f.write_str("another server is the master now"),
            Self::Dropped => f.write_str("it is no longer needed"),
        }
    }
}

// Calls that were written, in the order in which their answers come.

/// Calls without an answer, and how much of them has left.
#[derive(Default)]
pub(super) struct SentCommands {
    calls: VecDeque<Entry>,
    /// The commands that carry them.
    commands: VecDeque<WrittenCommand>,
    /// Bytes that were written to the socket since the connection began.
    written: u64,
}

/// A call that was sent.
pub(super) struct Entry {
    /// `None` once its deadline has passed. The answer will still come.
    pub(super) call: Option<QueuedCommand>,
    /// How many checks of the command are its own.
    pub(super) checks: usize,
}

struct WrittenCommand {
    /// How many calls it carries.
    calls: usize,
    /// Where it begins and ends in the bytes of the connection.
    begin: u64,
    end: u64,
    sent: Option<Instant>,
}

impl SentCommands {
    /// Calls that were added, as one command, to a buffer that now has `length` bytes, none of them written yet.
    /// `sent` is the time, where somebody wants to know how long the answer takes.
    pub(super) fn push(
        &mut self,
        calls: impl Iterator<Item = QueuedCommand>,
        length: usize,
        sent: Option<Instant>,
    ) {
        let before = self.calls.len();
        self.calls.extend(calls.map(|call| Entry {
            checks: call.command.answers().unwrap_or(0),
            call: Some(call),
        }));
        let begin = self.commands.back().map_or(self.written, |last| last.end);
        self.commands.push_back(WrittenCommand {
            calls: self.calls.len() - before,
            // The command before may have been answered and be gone from the list.
            begin: begin.max(self.written),
            end: self.written + length as u64,
            sent,
        });
    }

    pub(super) fn written(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// How many bytes are to be written until the first command has left.
    pub(super) fn first_command(&self) -> usize {
        let end = self.commands.front().map_or(0, |first| first.end);
        // A buffer is filled in memory.
        end.saturating_sub(self.written) as usize
    }

    /// How many calls there are.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// When the command of the next answer was sent, and its calls; `None` if there is none.
    pub(super) fn answered(
        &mut self,
    ) -> Option<(Option<Instant>, impl Iterator<Item = Entry> + '_)> {
        let command = self.commands.pop_front()?;
        Some((command.sent, self.calls.drain(..command.calls)))
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let deadlines = self.calls.iter().filter_map(|entry| entry.call.as_ref());
        deadlines.map(|call| call.deadline).min()
    }

    /// Hands out the calls whose deadline has passed, and stops with `true` at one that has not left as a whole.
    pub(super) fn expire(&mut self, now: Instant, mut fail: impl FnMut(QueuedCommand)) -> bool {
        let mut calls = self.calls.iter_mut();
        for command in &self.commands {
            for entry in calls.by_ref().take(command.calls) {
                if let Some(call) = entry.call.take_if(|call| call.deadline <= now) {
                    if command.end > self.written {
                        entry.call = Some(call);
                        return true;
                    }
                    fail(call);
                }
            }
        }
        false
    }

    /// Hands out every call, with whether any of its command was written.
    pub(super) fn drain(&mut self, mut fail: impl FnMut(QueuedCommand, bool)) {
        let mut calls = self.calls.drain(..);
        for command in self.commands.drain(..) {
            for entry in calls.by_ref().take(command.calls) {
                if let Some(call) = entry.call {
                    fail(call, command.begin < self.written);
                }
            }
        }
    }
}
