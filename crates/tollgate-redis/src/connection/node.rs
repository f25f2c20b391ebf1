//! One server, and the way of a command to its connection: where requests find that, the queue in which a command waits, and the future of
//! its answer.

use std::{
    collections::VecDeque,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tokio::{sync::oneshot, task::JoinSet, time::Instant};
use tollgate_core::sync::{Mutex, lock};

use crate::connection::{
    breaker::{Breaker, BreakerState},
    command::Command,
    error::{CallError, CallErrorKind, ConnectError},
    options::{NodeEvent, NodeOptions},
    resp::Value,
};

/// A server and the one connection to it, which a task of this node makes, minds, and makes anew.
///
/// It may be started before its server is there. Dropping it ends the task and closes the connection.
pub(crate) struct Node {
    pub(super) shared: Arc<NodeState>,
    pub(super) _supervisor: JoinSet<()>,
}

impl Node {
    /// Runs a command. Nothing is waited for but the answer, until the deadline: where there is no connection, the breaker is open, or too
    /// many calls wait, the call has failed already. `asking`: `ASKING` goes before it.
    pub(crate) fn send(
        &self,
        command: impl Into<Arc<Command>>,
        deadline: Instant,
        asking: bool,
    ) -> AnswerFuture {
        if !self.shared.breaker.admits() {
            return AnswerFuture::Refused(CallError::new(
                CallErrorKind::Unavailable,
                "Redis is unavailable: the circuit breaker is open",
            ));
        }
        (self.shared.queue).push(command.into(), deadline, asking)
    }

    #[cfg(test)]
    pub(crate) fn call(&self, command: Command) -> AnswerFuture {
        let deadline = Instant::now() + self.shared.options.deadline;
        self.send(command, deadline, false)
    }

    /// What metrics and logs call the server.
    pub(crate) fn name(&self) -> &str {
        &self.shared.options.name
    }

    /// Whether requests are kept from the server.
    pub(crate) fn breaker(&self) -> BreakerState {
        self.shared.breaker.state()
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.shared.queue.why_closed().is_none()
    }

    /// Why requests do not go to the server, or not all of them.
    pub(crate) fn trouble(&self) -> Option<String> {
        if let Some(error) = self.shared.queue.why_closed() {
            return Some(error.to_string());
        }
        match self.breaker() {
            BreakerState::Closed => None,
            state => Some(format!(
                "the circuit breaker lets {} % of the requests through to Redis, because calls or attempts to connect have failed",
                state.share()
            )),
        }
    }

    /// Calls that wait to be sent.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.len()
    }
}

tollgate_core::debug_fields!(Node, it => breaker: it.breaker());

// The way of a command to the connection: the future of its answer, the queue in which it waits, and where requests find that.

/// The answer to a call, at the latest shortly after its deadline.
///
/// # Cancel safety
///
/// A call that is dropped before it was sent is not sent. Later it runs, and its reply is dropped.
#[must_use = "await the answer"]
pub(crate) enum AnswerFuture {
    /// It was not queued, and this is why.
    Refused(CallError),
    Waiting(oneshot::Receiver<Answer>),
    /// It may be sent on to another server.
    Sent(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

pub(super) type Answer = Result<Value, CallError>;

impl AnswerFuture {
    /// Whether it has failed without having been queued.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl Future for AnswerFuture {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        Poll::Ready(match self.get_mut() {
            Self::Refused(error) => Err(error.clone()),
            Self::Waiting(answer) => ready!(Pin::new(answer).poll(cx)).unwrap_or_else(|_| {
                let why = "its connection was dropped";
                Err(CallError::new(CallErrorKind::NoAnswer, why))
            }),
            Self::Sent(answer) => ready!(answer.as_mut().poll(cx)),
        })
    }
}

tollgate_core::debug_fields!(AnswerFuture);

/// A call on its way.
pub(super) struct QueuedCommand {
    pub(super) command: Arc<Command>,
    pub(super) deadline: Instant,
    /// How often the server did not know the script.
    unknown: u8,
    /// Whether it travels with no other.
    pub(super) alone: bool,
    /// Whether `ASKING` goes before it, each time: to a server that is about to receive its hash slot. It travels alone, because a key
    /// that is missing there would refuse all.
    pub(super) asking: bool,
    /// `None` once it is answered.
    answer: Option<oneshot::Sender<Answer>>,
}

/// How often a server may say that it does not know the script, and so did not run it. Then another call may bring the text; then the
/// text that it brought was flushed, and this one brings its own.
const MOST_UNKNOWN: u8 = 2;

impl QueuedCommand {
    /// Whether both may go out as one command.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        !self.alone && !other.alone && self.command.goes_with(&other.command)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_none()
    }

    /// Answers it, unless that was done before. Says whether it was not.
    pub(super) fn answer(&mut self, answer: Answer) -> bool {
        // A caller that no longer waits has dropped its end.
        self.answer.take().map(|it| it.send(answer)).is_some()
    }

    pub(super) fn fail(&mut self, kind: CallErrorKind, message: &'static str) {
        self.answer(Err(CallError::new(kind, message)));
    }

    /// Marks that the server did not know the script. False if there is nothing left to try.
    pub(super) fn is_unknown_again(&mut self) -> bool {
        self.unknown += 1;
        self.unknown <= MOST_UNKNOWN
    }

    /// Whether the server did not know the script.
    pub(super) fn was_unknown(&self) -> bool {
        self.unknown > 0
    }

    /// Whether the text of the script goes along, also if another call brings it.
    pub(super) fn brings_script(&self) -> bool {
        self.unknown == MOST_UNKNOWN
    }
}

// Calls that wait for the connection to be free.

/// The calls that wait for the connection of a node, in the order in which they came. While there is none it takes no calls.
pub(super) struct CommandQueue {
    state: Mutex<Lines>,
    limit: usize,
}

#[derive(Default)]
struct Lines {
    calls: VecDeque<QueuedCommand>,
    /// The first deadline of those that have come since there were none, or earlier.
    earliest: Option<Instant>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// Why nothing is taken any more.
    closed: Option<CallError>,
}

impl CommandQueue {
    pub(super) fn new(limit: usize) -> Self {
        let state = Mutex::default();
        Self { state, limit }
    }

    /// Adds a call, or says at once why not.
    pub(super) fn push(
        &self,
        command: Arc<Command>,
        deadline: Instant,
        asking: bool,
    ) -> AnswerFuture {
        let mut state = lock(&self.state);
        if let Some(error) = &state.closed {
            return AnswerFuture::Refused(error.clone());
        }
        if state.calls.len() >= self.limit {
            drop(state);
            return AnswerFuture::Refused(CallError::new(
                CallErrorKind::Overloaded,
                format!("too many pending Redis calls (limit {})", self.limit),
            ));
        }
        let (answer, receiver) = oneshot::channel();
        state.calls.push_back(QueuedCommand {
            alone: asking || command.count() == 0,
            command,
            deadline,
            unknown: 0,
            asking,
            answer: Some(answer),
        });
        state.earliest = state.earliest.into_iter().chain([deadline]).min();
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        AnswerFuture::Waiting(receiver)
    }

    /// Moves up to `room` calls that somebody still waits for to `taken`. Gives those whose deadline has passed, and the time, if there
    /// were any calls.
    pub(super) fn take(
        &self,
        room: usize,
        taken: &mut VecDeque<QueuedCommand>,
    ) -> (Vec<QueuedCommand>, Option<Instant>) {
        let mut expired = Vec::new();
        let mut state = lock(&self.state);
        if state.calls.is_empty() {
            return (expired, None);
        }
        let now = Instant::now();
        while taken.len() < room
            && let Some(call) = state.calls.pop_front()
        {
            match call.deadline <= now {
                // Its caller no longer waits.
                _ if call.answer.as_ref().is_none_or(oneshot::Sender::is_closed) => {}
                true => expired.push(call),
                false => taken.push_back(call),
            }
        }
        if state.calls.is_empty() {
            state.earliest = None;
        }
        (expired, Some(now))
    }

    /// Takes back a call that did not run, in the order in which they came.
    pub(super) fn put_back(&self, call: QueuedCommand) {
        let mut state = lock(&self.state);
        let is_later = |other: &QueuedCommand| other.deadline > call.deadline;
        let place = state
            .calls
            .iter()
            .position(is_later)
            .unwrap_or(state.calls.len());
        state.earliest = state.earliest.into_iter().chain([call.deadline]).min();
        state.calls.insert(place, call);
    }

    /// Takes out the calls whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant) -> VecDeque<QueuedCommand> {
        let mut state = lock(&self.state);
        let (expired, calls) = mem::take(&mut state.calls)
            .into_iter()
            .partition(|call| call.deadline <= now);
        state.calls = calls;
        state.earliest = state.calls.iter().map(|call| call.deadline).min();
        expired
    }

    /// The first deadline of all calls, or a time before it. If there are no calls, the next one wakes the driver.
    pub(super) fn poll_first(&self, cx: &Context<'_>) -> Option<Instant> {
        let mut state = lock(&self.state);
        if state.calls.is_empty() {
            state.driver = Some(cx.waker().clone());
            return None;
        }
        state.earliest
    }

    /// Takes calls from now on, or else none, and why. What waits stays.
    pub(super) fn set_closed(&self, why: Option<CallError>) {
        lock(&self.state).closed = why;
    }

    pub(super) fn why_closed(&self) -> Option<CallError> {
        lock(&self.state).closed.clone()
    }

    /// Takes nothing any more, and fails what waits: none of it was sent.
    pub(super) fn close(&self, error: &CallError) {
        let mut state = lock(&self.state);
        let mut left = mem::take(&mut *state);
        state.closed = left.closed.take().or_else(|| Some(error.clone()));
        drop(state);
        for mut call in left.calls {
            call.answer(Err(error.clone()));
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).calls.len()
    }
}

/// What requests, the supervisor and the connection share.
pub(super) struct NodeState {
    pub(super) queue: CommandQueue,
    pub(super) breaker: Breaker,
    pub(super) options: NodeOptions,
}

impl NodeState {
    pub(super) fn new(options: NodeOptions) -> Arc<Self> {
        let (events, name) = (Arc::clone(&options.events), Arc::clone(&options.name));
        let report = move |state| events(&name, &NodeEvent::Breaker(state));
        Arc::new(Self {
            queue: CommandQueue::new(options.waiting),
            breaker: Breaker::new(options.breaker.clone(), options.seed, report),
            options,
        })
    }

    /// There is no connection.
    pub(super) fn set_missing(&self, why: &ConnectError) {
        self.queue.set_closed(Some(why.to_call_error()));
    }
}
