//! One connection while it lasts: writes what waits, reads what is answered, keeps the deadlines, and knows what becomes of each call.

use std::{
    collections::VecDeque,
    future::Future,
    io, iter, mem,
    pin::{Pin, pin},
    ptr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, BytesMut};
use smallvec::SmallVec;
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    time::{Instant, Sleep, sleep_until},
};

use crate::connection::{
    command::{Command, Script, push_asking},
    error::{CallError, CallErrorKind, ConnectError, ConnectErrorKind, code_of},
    node::{NodeState, QueuedCommand},
    options::{NodeEvent, Resent},
    resp::{Integers, Value, decode},
    stream::Stream,
};

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;

/// The future of a connection. It ends when the connection is of no use any more, and says why.
///
/// # Cancel safety
///
/// Dropping it closes the connection and answers every call: what was not written did not run, the rest may have.
pub(super) struct Driver {
    stream: Stream,
    shared: Arc<NodeState>,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    /// Up to where `out` is written first.
    first: usize,
    /// How much was written since the connection began, with what `out` had before.
    bytes_written: u64,
    input: BytesMut,
    /// Fires at the first deadline, or when the server has been silent for too long; it may fire earlier, never later.
    timer: Pin<Box<Sleep>>,
    /// What it is set to.
    armed: Option<Instant>,
    /// When the server was last heard, or asked after everything was answered.
    last_received: Instant,
    /// Whether the server answered a call, so that it is worth to come back soon.
    pub(super) was_of_use: bool,
    /// Commands without an answer, in the order in which their answers come.
    sent: VecDeque<SentCommand>,
    /// How many calls they carry.
    unanswered: usize,
    /// The first deadline of these calls, or a time before it.
    earliest: Option<Instant>,
    alone: RulesAlone,
    /// Why the calls that are left will not be answered.
    lost: Option<ConnectError>,
    /// For how many calls the server works, and for how many it fails, since the breaker was last told.
    answered: u32,
    failed: u32,
    /// Always empty; kept for its memory.
    taken: VecDeque<QueuedCommand>,
}

/// How many bytes there is room for at each read.
const READ: usize = 8192;

impl Driver {
    pub(super) fn new(stream: Stream, shared: Arc<NodeState>) -> Self {
        let now = Instant::now();
        Self {
            stream,
            shared,
            out: Vec::new(),
            written: 0,
            first: 0,
            bytes_written: 0,
            input: BytesMut::new(),
            timer: Box::pin(sleep_until(now)),
            armed: None,
            last_received: now,
            was_of_use: false,
            sent: VecDeque::new(),
            unanswered: 0,
            earliest: None,
            alone: RulesAlone::default(),
            lost: None,
            answered: 0,
            failed: 0,
            taken: VecDeque::new(),
        }
    }

    /// Whether there has been no call on the connection for so long.
    pub(super) fn is_idle_for(&self, least: Duration) -> bool {
        let is_idle = !self.is_owed() && self.shared.queue.len() == 0;
        is_idle && self.last_received.elapsed() >= least
    }

    /// The error of the calls that are left when this is dropped.
    pub(super) fn lose(&mut self, lost: ConnectError) {
        self.lost.get_or_insert(lost);
    }

    fn drive(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectError> {
        let end = self.read(cx);
        self.record();
        end?;
        loop {
            self.write(cx)?;
            let waiting = self.shared.queue.poll_first(cx);
            if waiting.is_some() && self.is_written() && self.room() > 0 {
                // It has come since nothing was left to write. There may have been no waker that it could take.
                continue;
            }
            self.arm(waiting);
            if self.armed.is_none() || self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.armed = None;
            self.expire()?;
        }
    }

    /// Tells the breaker what calls have shown of the server.
    fn record(&mut self) {
        let (answered, failed) = (mem::take(&mut self.answered), mem::take(&mut self.failed));
        self.was_of_use |= answered > 0;
        self.shared.breaker.record(answered, failed);
    }

    fn is_written(&self) -> bool {
        self.written == self.out.len()
    }

    /// Reads until there is nothing to read.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectError> {
        loop {
            self.input.reserve(READ);
            // Nothing is lost when this future is dropped: it reads at once or not at all.
            match pin!(self.stream.read_buf(&mut self.input)).poll(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => _ = closed_if_zero(read)?,
            }
            self.last_received = Instant::now();
            self.receive()?;
        }
    }

    /// Hands out the answers that are there, also those behind one that ends the connection.
    fn receive(&mut self) -> Result<(), ConnectError> {
        let mut end = Ok(());
        loop {
            match decode(&self.input) {
                Ok(Some((reply, length))) => {
                    self.input.advance(length);
                    end = end.and(self.answer(reply, self.last_received));
                }
                Ok(None) => return end,
                Err(malformed) => return end.and(Err(ConnectError::server(malformed))),
            }
        }
    }

    /// Writes what waits. While a write is under way nothing is added to it, so that what comes in the meantime goes out
    /// together.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectError> {
        loop {
            if self.is_written() {
                self.out.clear();
                self.written = 0;
                let was_owed = self.is_owed();
                self.fill();
                if self.out.is_empty() {
                    // What is encrypted may be written and not have left. A socket has nothing to flush.
                    return match Pin::new(&mut self.stream).poll_flush(cx) {
                        Poll::Ready(flushed) => flushed.map_err(|error| failed(&error)),
                        Poll::Pending => Ok(()),
                    };
                }
                self.first = 0;
                if !was_owed {
                    self.last_received = Instant::now();
                    // What is written together is also answered together. A server that has nothing to do begins with one
                    // command, and its answers are read while it is at the next ones.
                    let end = self.sent.front().map_or(0, |first| first.end);
                    // A buffer is filled in memory.
                    self.first = end.saturating_sub(self.bytes_written) as usize;
                }
            }
            let end = if self.written < self.first {
                self.first
            } else {
                self.out.len()
            };
            let piece = &self.out[self.written..end];
            match Pin::new(&mut self.stream).poll_write(cx, piece) {
                Poll::Pending => return Ok(()),
                Poll::Ready(written) => {
                    let length = closed_if_zero(written)?;
                    self.written += length;
                    self.bytes_written += length as u64;
                }
            }
        }
    }

    /// Sets the timer, unless it is set to an earlier time anyway. `waiting` is the first deadline of what waits.
    fn arm(&mut self, waiting: Option<Instant>) {
        let silent = self.is_owed().then(|| self.silent_at());
        let deadlines = waiting.into_iter().chain(self.earliest);
        let next = deadlines.chain(silent).min();
        if let Some(at) = next.filter(|at| self.armed.is_none_or(|armed| *at < armed)) {
            self.timer.as_mut().reset(at);
            self.armed = next;
        }
    }

    fn expire(&mut self) -> Result<(), ConnectError> {
        let now = Instant::now();
        let is_stuck = self.answer_expired(now);
        let is_silent = self.is_owed() && now >= self.silent_at();
        if is_silent || is_stuck {
            // What the server has not read yet it should not run later.
            self.stream.forget_on_drop();
            let why = "the server was silent for too long";
            return Err(ConnectError::server(why));
        }
        Ok(())
    }
}

/// The length of what was read or written. Nothing is the end.
fn closed_if_zero(length: io::Result<usize>) -> Result<usize, ConnectError> {
    match length.map_err(|error| failed(&error))? {
        0 => Err(ConnectError::new(
            ConnectErrorKind::Tcp,
            "the server closed it",
        )),
        length => Ok(length),
    }
}

fn failed(error: &io::Error) -> ConnectError {
    ConnectError::new(ConnectErrorKind::Tcp, error.to_string())
}

impl Future for Driver {
    type Output = ConnectError;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ConnectError> {
        let this = self.get_mut();
        let end = this.drive(cx);
        // Before a receiver of events may panic.
        if let Err(lost) = &end {
            this.lose(lost.clone());
        }
        this.record();
        end.map_or_else(Poll::Ready, |()| Poll::Pending)
    }
}

// Which calls were sent, and what becomes of each.

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

/// For how long one command may keep the server from others, as it is estimated.
const BATCH_TIME: Duration = Duration::from_micros(250);

/// The numbers that the script returns for each check.
const NUMBERS: usize = 3;

impl Driver {
    /// Whether the server owes an answer.
    fn is_owed(&self) -> bool {
        !self.sent.is_empty()
    }

    /// When it has been silent for too long.
    fn silent_at(&self) -> Instant {
        self.last_received + self.shared.options.silence()
    }

    /// Appends what waits to the empty `out`, those that were asked before among them; as many calls as there is room for. Those that go
    /// with one another become one command.
    ///
    /// Calls whose deadline has passed, while this process stood still, are answered instead.
    fn fill(&mut self) {
        // Outside of the lock of the queue they are answered.
        let (expired, now) = self.shared.queue.take(self.room(), &mut self.taken);
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
                push_asking(&mut self.out);
                self.push_sent(0, None);
            }
            let commands = self.taken.range(..count).map(|call| &*call.command);
            Command::write_all(commands, with_body, &mut self.out);
            self.push_sent(count, now);
        }
    }

    /// The first `calls` taken calls are one command at the end of `out` now. Nothing of it is written yet.
    fn push_sent(&mut self, calls: usize, at: Option<Instant>) {
        let calls: SmallVec<[_; 1]> = self.taken.drain(..calls).collect();
        let deadlines = calls.iter().map(|call| call.deadline);
        self.earliest = self.earliest.into_iter().chain(deadlines).min();
        self.unanswered += calls.len();
        // The command before may have been answered and be gone from the list.
        let before = self.sent.back().map_or(0, |last| last.end);
        self.sent.push_back(SentCommand {
            calls,
            begin: before.max(self.bytes_written),
            end: self.bytes_written + self.out.len() as u64,
            at,
        });
    }

    /// How many more calls may be without an answer.
    fn room(&self) -> usize {
        let most = self.shared.options.unanswered;
        most.saturating_sub(self.unanswered)
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
            checks <= self.shared.options.together && time <= BATCH_TIME && first.goes_with(call)
        });
        1 + others.count()
    }

    /// Hands an answer to its calls.
    fn answer(&mut self, reply: Value, now: Instant) -> Result<(), ConnectError> {
        let Some(SentCommand { calls, at, .. }) = self.sent.pop_front() else {
            let why = "there was an answer without a question";
            return Err(ConnectError::server(why));
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
            self.answered += u32::from(call.answer(Ok(reply)));
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
            self.answered += u32::from(call.answer(answer));
        }
    }

    /// Answers calls that were not sent before their deadline.
    fn not_asked(&mut self, calls: impl IntoIterator<Item = QueuedCommand>) {
        for mut call in calls {
            self.failed += 1;
            call.fail(
                CallErrorKind::NotSent,
                "Redis was not free to be asked in time",
            );
        }
    }

    fn refuse(
        &mut self,
        calls: SmallVec<[QueuedCommand; 1]>,
        line: &str,
    ) -> Result<(), ConnectError> {
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
                Err(ConnectError::server(format!("the server answered {code}")))
            }
            _ => {
                self.failed += failed;
                Ok(())
            }
        }
    }

    /// Answers the calls whose deadline has passed. Whether one of them has not left as a whole: then it is not waited for any longer.
    fn answer_expired(&mut self, now: Instant) -> bool {
        let expired = self.shared.queue.take_expired(now);
        self.not_asked(expired);
        self.earliest = None;
        for command in &mut self.sent {
            for call in command.calls.iter_mut().filter(|call| !call.is_answered()) {
                if call.deadline > now {
                    self.earliest = self.earliest.into_iter().chain([call.deadline]).min();
                } else if command.end > self.bytes_written {
                    return true;
                } else {
                    self.failed += 1;
                    call.fail(CallErrorKind::NoAnswer, "Redis did not answer in time");
                }
            }
        }
        false
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Closed first: who is answered may connect anew.
        self.stream = Box::new(tokio::io::empty());
        let lost = self.lost.take().unwrap_or_else(ConnectError::unserved);
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
            let error = match command.begin < self.bytes_written {
                true => &unknown,
                false => &not_sent,
            };
            for mut call in command.calls {
                call.answer(Err(error.clone()));
            }
        }
    }
}
