//! Which calls wait, which were sent, and what becomes of each.

use std::{collections::VecDeque, sync::Arc, task::Context, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::connection::{
    call::Waiting,
    driver::{
        inflight::{Entry, InFlight},
        isolation::Isolation,
        lost::Lost,
        replies::{Replies, not_ours},
    },
    error::{CallError, CallErrorKind, code_of},
    options::NodeOptions,
    queue::Queue,
    request::{Request, push_asking},
    resp::decoder::Reply,
    script::Script,
    traffic::{Resent, TrafficSink},
};

/// The calls of one connection. Dropping it answers every one of them.
#[derive(Debug)]
pub(super) struct Backlog {
    queue: Arc<Queue>,
    /// Calls that did not run and may be sent once more: the server did not know the script, or refused a command for
    /// another call that it carried.
    again: VecDeque<Waiting>,
    inflight: InFlight,
    room: usize,
    /// How many checks may travel together.
    together: usize,
    /// For how long one command may keep the server.
    batch_time: Duration,
    deadline: Duration,
    traffic: TrafficSink,
    isolation: Isolation,
    lost: Option<Lost>,
    /// Always empty; kept for its memory.
    taken: VecDeque<Waiting>,
    /// As `taken`.
    entries: Vec<Entry>,
}

/// What an answer says about the server.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// For how many calls it works.
    pub(super) answered: u32,
    /// For how many it fails.
    pub(super) failed: u32,
}

impl Backlog {
    pub(super) fn new(queue: Arc<Queue>, options: &NodeOptions) -> Self {
        Self {
            queue,
            again: VecDeque::new(),
            inflight: InFlight::default(),
            room: options.unanswered.max(1),
            together: options.together,
            batch_time: options.batch_time,
            deadline: options.deadline,
            traffic: options.traffic.clone(),
            isolation: Isolation::default(),
            lost: None,
            taken: VecDeque::new(),
            entries: Vec::new(),
        }
    }

    /// Whether the server owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        !self.inflight.is_empty()
    }

    /// Appends what waits to the empty `out`, first what was asked before; as many calls as there is room for. Those that go
    /// with one another become one command.
    ///
    /// Calls whose deadline has passed, while this process stood still, are answered instead. Says how many.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) -> u32 {
        let mut now = None;
        let mut is_over = |call: &Waiting| call.deadline() <= *now.get_or_insert_with(Instant::now);
        // Outside of the lock of the queue they are answered.
        let mut expired = Vec::new();
        let room = self.room.saturating_sub(self.inflight.len());
        let mut unknown: SmallVec<[Arc<Script>; 1]> = SmallVec::new();
        while self.taken.len() < room
            && let Some(call) = self.again.pop_front()
        {
            if call.is_dropped() {
                continue;
            }
            if is_over(&call) {
                expired.push(call);
                continue;
            }
            let script = call.request().script();
            if let Some(script) = script
                && call.is_again()
                && !unknown.iter().any(|known| Arc::ptr_eq(known, script))
            {
                unknown.push(Arc::clone(script));
            }
            self.taken.push_back(call);
        }
        let taken = (&mut self.taken, &mut expired);
        self.queue.take(room, taken, is_over);
        let expired = not_asked(expired);
        let some_go_alone = self.isolation.is_any();
        if some_go_alone {
            let isolation = self.taken.iter_mut();
            isolation
                .filter(|call| self.isolation.has(call.request()))
                .for_each(Waiting::keep_alone);
        }
        // Those that go alone are not to stand between the others.
        let place = |call: &Waiting| {
            let request = call.request();
            (request.slot(), some_go_alone && self.isolation.has(request))
        };
        if !self.taken.iter().is_sorted_by_key(place) {
            // Calls on the same keys stay in order.
            self.taken.make_contiguous().sort_by_key(place);
        }
        let now = now.filter(|_| self.traffic.is_there());
        while let Some(first) = self.taken.front() {
            if let Some(now) = now
                && !first.is_again()
            {
                self.traffic.queued(self.waited(first, now));
            }
            // The first one brings the text, and the others find it there.
            let script = first.request().script();
            let place = script.and_then(|script| {
                let mut unknown = unknown.iter();
                unknown.position(|known| Arc::ptr_eq(known, script))
            });
            let is_first = place.map(|place| unknown.remove(place)).is_some();
            let is_asking = first.is_asking();
            let count = self.company(first);
            let mut calls = self.taken.range(..count);
            let with_body = is_first || calls.any(Waiting::brings_script);
            if with_body {
                let calls = self.taken.range_mut(..count);
                calls.for_each(Waiting::with_script);
            }
            if is_asking {
                // No call waits for its reply; the reply to the next call shows what became of it.
                push_asking(out);
                self.inflight.push(std::iter::empty(), out.len(), None);
            }
            let requests = self.taken.range(..count).map(Waiting::request);
            Request::write_all(requests, with_body, out);
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
    fn waited(&self, call: &Waiting, now: Instant) -> Duration {
        let began = call.deadline().checked_sub(self.deadline);
        began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// How many of the calls that were taken become one command, beginning with the first.
    fn company(&self, first: &Waiting) -> usize {
        let mut weight = first.request().weight();
        let mut time = first.request().server_time();
        let others = self.taken.iter().skip(1).take_while(|call| {
            weight += call.request().weight();
            time += call.request().server_time();
            weight <= self.together && time <= self.batch_time && first.goes_with(call)
        });
        1 + others.count()
    }

    /// How many bytes the first command has of those that were filled in, if nothing was owed before.
    pub(super) fn first_command(&self) -> usize {
        self.inflight.first_command()
    }

    /// Notes how much of what was filled in has left.
    pub(super) fn written(&mut self, bytes: usize) {
        self.inflight.written(bytes);
    }

    /// Hands an answer to its calls.
    pub(super) fn answer(&mut self, reply: Reply<'_>, now: Instant) -> Result<Received, Lost> {
        if reply == Reply::Push {
            return Ok(Received::default());
        }
        let Some((sent, entries)) = self.inflight.answered() else {
            return Err(Lost::Malformed("there was an answer without a question"));
        };
        self.entries.extend(entries);
        if let Some(sent) = sent {
            self.traffic.round_trip(now.saturating_duration_since(sent));
        }
        match reply {
            Reply::Error(line) => self.refuse(&line),
            reply => Ok(self.hand_out(reply)),
        }
    }

    fn hand_out(&mut self, reply: Reply<'_>) -> Received {
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
        let checks = self.entries.iter().map(|entry| entry.checks).sum();
        let mut answers = match reply {
            Reply::Integers(integers) => Replies::new(integers, checks),
            _ => None,
        };
        for entry in self.entries.drain(..) {
            let answer = match &mut answers {
                Some(answers) => Ok(answers.next(entry.checks)),
                None => Err(not_ours()),
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
            let goes_again = match code {
                "NOSCRIPT" => call.again(),
                // The key of another was missing while their slot moves.
                "TRYAGAIN" if travelled_together => {
                    self.isolation.add_slot_of(call.request());
                    call.keep_alone();
                    true
                }
                // The user may not touch a key of another: servers look at all keys of a script before they run it.
                "NOPERM" if travelled_together => {
                    call.keep_alone();
                    true
                }
                "NOPERM" => {
                    self.isolation.add_rules_of(call.request());
                    false
                }
                _ => false,
            };
            if goes_again {
                self.traffic.resent(match code {
                    "NOSCRIPT" => Resent::WithScript,
                    _ => Resent::Alone,
                });
                self.again.push_back(call);
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
        for _ in 0..self.again.len() {
            match self.again.pop_front() {
                Some(call) if call.deadline() <= now => self.taken.push_back(call),
                Some(call) => self.again.push_back(call),
                None => break,
            }
        }
        let mut expired = not_asked(self.taken.drain(..));
        let stuck = self.inflight.expire(now, |call| {
            expired += 1;
            call.fail(CallErrorKind::Unknown, "Redis did not answer in time");
        });
        (expired, if stuck { Err(Lost::Silent) } else { Ok(()) })
    }

    /// The first deadline of all calls; `waiting` is that of those in the queue.
    pub(super) fn first_deadline(&self, waiting: Option<Instant>) -> Option<Instant> {
        let again = self.again.iter().map(Waiting::deadline).min();
        let sent = self.inflight.first_deadline();
        [waiting, again, sent].into_iter().flatten().min()
    }

    /// The first deadline in the queue. If nothing waits there, the next call wakes the task of `cx`.
    pub(super) fn poll_waiting(&self, cx: &Context<'_>) -> Option<Instant> {
        self.queue.poll_first(cx)
    }

    /// Why the calls that are left will not be answered.
    pub(super) fn lose(&mut self, lost: Lost) {
        self.lost.get_or_insert(lost);
    }
}

/// Answers calls that were not sent before their deadline, and says how many.
fn not_asked(calls: impl IntoIterator<Item = Waiting>) -> u32 {
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
        for call in self.again.drain(..) {
            call.answer(Err(not_sent.clone()));
        }
        let unknown = CallError::new(
            CallErrorKind::Unknown,
            format!("the connection to Redis was lost before it answered: {lost}"),
        );
        self.inflight.drain(|call, began| {
            call.answer(Err(if began { &unknown } else { &not_sent }.clone()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{call::Call, value::Value};

    const UNKNOWN: &str = "NOSCRIPT No matching script. Please use EVAL.";

    struct Bench {
        backlog: Backlog,
        queue: Arc<Queue>,
        script: Arc<Script>,
        began: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let options = NodeOptions::default();
            let queue = Arc::new(Queue::new(options.waiting));
            Self {
                backlog: Backlog::new(Arc::clone(&queue), &options),
                queue,
                script: Arc::new(Script::new("return 1")),
                began: Instant::now(),
            }
        }

        /// A call with a deadline in so many ms.
        fn call(&self, millis: u64) -> Call {
            let request = Request::new(&self.script, &["a"], &[]);
            let (waiting, call) = Waiting::new(request, self.after(millis));
            assert!(self.queue.push(waiting).is_ok());
            call
        }

        fn after(&self, millis: u64) -> Instant {
            self.began + Duration::from_millis(millis)
        }

        /// Everything that waits is sent, and leaves if `has_left`.
        fn send(&mut self, has_left: bool) -> usize {
            let mut out = Vec::new();
            self.backlog.fill(&mut out);
            if has_left {
                self.backlog.written(out.len());
            }
            out.len()
        }

        fn answer(&mut self, reply: Reply<'_>) {
            let now = self.after(0);
            assert!(self.backlog.answer(reply, now).is_ok());
        }
    }

    async fn failure(call: Call) -> (CallErrorKind, String) {
        let error = call.await.unwrap_err();
        (error.kind(), error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_deadline_has_passed_is_not_sent_again() {
        let mut bench = Bench::new();
        let (late, in_time) = (bench.call(10), bench.call(20));
        assert!(bench.send(true) > 0);
        for _ in 0..2 {
            bench.answer(Reply::Error(UNKNOWN.into()));
        }
        tokio::time::advance(Duration::from_millis(10)).await;
        let mut out = Vec::new();
        assert_eq!(bench.backlog.fill(&mut out), 1);
        assert!(!out.is_empty());
        assert_eq!(failure(late).await.0, CallErrorKind::Expired);
        bench.answer(Reply::Value(Value::Integer(7)));
        assert_eq!(in_time.await.unwrap(), Value::Integer(7));
        assert_eq!(bench.backlog.fill(&mut Vec::new()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_to_be_sent_again_ends_at_its_deadline_and_no_other_with_it() {
        let mut bench = Bench::new();
        let (first, second) = (bench.call(10), bench.call(20));
        assert!(bench.send(true) > 0);
        for _ in 0..2 {
            bench.answer(Reply::Error(UNKNOWN.into()));
        }
        let (expired, is_kept) = bench.backlog.expire(bench.after(9));
        assert!(expired == 0 && is_kept.is_ok());
        let (expired, is_kept) = bench.backlog.expire(bench.after(10));
        assert!(expired == 1 && is_kept.is_ok());
        assert_eq!(failure(first).await.0, CallErrorKind::Expired);
        // The other one is still there.
        assert!(bench.send(true) > 0);
        bench.answer(Reply::Value(Value::Integer(7)));
        assert_eq!(second.await.unwrap(), Value::Integer(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_to_be_sent_again_did_not_run_when_its_connection_is_lost() {
        let mut bench = Bench::new();
        let call = bench.call(10);
        bench.send(true);
        bench.answer(Reply::Error(UNKNOWN.into()));
        bench.backlog.lose(Lost::Closed);
        drop(bench.backlog);
        let (kind, text) = failure(call).await;
        assert_eq!(kind, CallErrorKind::Unavailable);
        assert!(
            text.contains("before it was asked: the server closed it"),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_which_nothing_has_left_at_its_deadline_did_not_run() {
        let mut bench = Bench::new();
        let call = bench.call(10);
        bench.send(false);
        let (expired, is_kept) = bench.backlog.expire(bench.after(10));
        assert_eq!(expired, 0);
        assert!(matches!(is_kept, Err(Lost::Silent)));
        bench.backlog.lose(Lost::Silent);
        drop(bench.backlog);
        let (kind, text) = failure(call).await;
        assert_eq!(kind, CallErrorKind::Unavailable);
        assert!(text.contains("silent for too long"), "{text}");
    }
}
