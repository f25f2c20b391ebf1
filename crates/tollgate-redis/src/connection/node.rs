//! One server, and the way of a command to its connection: where requests find that, the queue in which a command waits, and the future of
//! its answer.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use arc_swap::ArcSwap;
use tokio::{
    sync::oneshot,
    task::AbortHandle,
    time::{Instant, timeout_at},
};
use tollgate_core::sync::{Mutex, lock};

use crate::connection::{
    breaker::{Breaker, BreakerState},
    command::Command,
    error::{CallError, CallErrorKind, ConnectError},
    options::NodeOptions,
    resp::Value,
};

/// A server and the one connection to it, which a task of this node makes, minds, and makes anew.
///
/// It may be started before its server is there. Dropping it ends the task and closes the connection.
pub(crate) struct Node {
    pub(super) shared: Arc<NodeState>,
    pub(super) supervisor: AbortHandle,
}

impl Node {
    /// Runs a script. Nothing is waited for but the answer: where there is no connection, the breaker is open, or too many
    /// calls wait, the call has failed already.
    pub(crate) fn call(&self, command: Command) -> AnswerFuture {
        self.send(|| {
            let deadline = Instant::now() + self.shared.options.deadline;
            QueuedCommand::new(command, deadline)
        })
    }

    /// As [`call`](Self::call), with what is made once it may be sent.
    pub(super) fn send(
        &self,
        waiting: impl FnOnce() -> (QueuedCommand, AnswerFuture),
    ) -> AnswerFuture {
        if !self.shared.breaker.admits() {
            return AnswerFuture::refused(CallError::new(
                CallErrorKind::Unavailable,
                "Redis is unavailable: the circuit breaker is open",
            ));
        }
        let link = self.shared.link.load();
        let queue = match &**link {
            Link::Connected(queue) => queue,
            Link::Missing(error) => return AnswerFuture::refused(error.clone()),
        };
        let (waiting, call) = waiting();
        match queue.push(waiting) {
            Ok(()) => call,
            Err(error) => AnswerFuture::refused(error),
        }
    }

    /// Whether requests are kept from the server.
    pub(crate) fn breaker(&self) -> BreakerState {
        self.shared.breaker.state()
    }

    /// Whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(&**self.shared.link.load(), Link::Connected(_))
    }

    /// Why requests do not go to the server, or not all of them.
    pub(crate) fn trouble(&self) -> Option<String> {
        if let Link::Missing(error) = &**self.shared.link.load() {
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
        match &**self.shared.link.load() {
            Link::Connected(queue) => queue.len(),
            Link::Missing(_) => 0,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.supervisor.abort();
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
pub(crate) struct AnswerFuture(State);

enum State {
    /// It was not queued, and this is why.
    Refused(Option<CallError>),
    Waiting(oneshot::Receiver<Answer>),
    /// It may be sent on to another server, or ends at a time of its own.
    Sent(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

pub(super) type Answer = Result<Value, CallError>;

impl AnswerFuture {
    pub(crate) fn refused(error: CallError) -> Self {
        Self(State::Refused(Some(error)))
    }

    pub(super) fn sent(answer: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self(State::Sent(Box::pin(answer)))
    }

    /// Whether it has failed without having been queued.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.0, State::Refused(_))
    }

    /// The same until a time: it may have run if there is no answer by then. A runtime with a timer has to be entered.
    pub(crate) fn by(self, by: Instant) -> Self {
        if self.is_refused() {
            return self;
        }
        let answer = timeout_at(by, self);
        Self::sent(async move {
            answer.await.unwrap_or_else(|_| {
                let message = "Redis did not answer in time";
                Err(CallError::new(CallErrorKind::Unknown, message))
            })
        })
    }
}

impl Future for AnswerFuture {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        Poll::Ready(match &mut self.get_mut().0 {
            State::Refused(error) => {
                Err(error.take().unwrap_or_else(|| gone("it was asked twice")))
            }
            State::Waiting(answer) => match ready!(Pin::new(answer).poll(cx)) {
                Ok(answer) => answer,
                Err(_) => Err(gone("its connection was dropped")),
            },
            State::Sent(answer) => ready!(answer.as_mut().poll(cx)),
        })
    }
}

tollgate_core::debug_fields!(AnswerFuture);

fn gone(why: &'static str) -> CallError {
    CallError::new(CallErrorKind::Unknown, why)
}

/// A call on its way.
pub(super) struct QueuedCommand {
    pub(super) command: Command,
    pub(super) deadline: Instant,
    /// How often the server did not know the script.
    unknown: u8,
    /// Whether it travels with no other.
    pub(super) alone: bool,
    /// Whether `ASKING` goes before it, each time.
    pub(super) asking: bool,
    answer: oneshot::Sender<Answer>,
}

/// How often a server may say that it does not know the script, and so did not run it. Then another call may bring the text; then the
/// text that it brought was flushed, and this one brings its own.
const MOST_UNKNOWN: u8 = 2;

impl QueuedCommand {
    pub(super) fn new(command: Command, deadline: Instant) -> (Self, AnswerFuture) {
        let (answer, receiver) = oneshot::channel();
        let call = Self {
            alone: command.count().is_none(),
            command,
            deadline,
            unknown: 0,
            asking: false,
            answer,
        };
        (call, AnswerFuture(State::Waiting(receiver)))
    }

    /// Whether both may go out as one command.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        !self.alone && !other.alone && self.command.goes_with(&other.command)
    }

    /// Whether its caller no longer waits.
    pub(super) fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Value, CallError>) {
        // A caller that no longer waits has dropped its end.
        let _ = self.answer.send(answer);
    }

    pub(super) fn fail(self, kind: CallErrorKind, message: &'static str) {
        self.answer(Err(CallError::new(kind, message)));
    }

    /// Sent right behind an `ASKING`, to a server that is about to receive its hash slot. It travels with no other: a key that is
    /// missing there would refuse them all.
    pub(super) fn asking(mut self) -> Self {
        self.asking = true;
        self.alone = true;
        self
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

/// The waiting calls of one connection, in the order in which they came: the first is also the first to expire.
pub(super) struct CommandQueue {
    state: Mutex<Lines>,
    limit: usize,
}

struct Lines {
    calls: VecDeque<QueuedCommand>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// Why nothing is taken any more.
    closed: Option<CallError>,
}

impl CommandQueue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::new(Lines {
                calls: VecDeque::new(),
                driver: None,
                closed: None,
            }),
            limit,
        }
    }

    /// Adds a call, or says at once why not.
    pub(super) fn push(&self, call: QueuedCommand) -> Result<(), CallError> {
        let driver = {
            let mut state = lock(&self.state);
            if let Some(error) = &state.closed {
                return Err(error.clone());
            }
            if state.calls.len() >= self.limit {
                return Err(CallError::new(
                    CallErrorKind::Overloaded,
                    format!("too many pending Redis calls (limit {})", self.limit),
                ));
            }
            state.calls.push_back(call);
            state.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(())
    }

    /// Moves up to `room` calls that somebody still waits for to `taken`, and those to `expired` that are `over`.
    pub(super) fn take(
        &self,
        room: usize,
        taken: &mut VecDeque<QueuedCommand>,
        expired: &mut Vec<QueuedCommand>,
        mut is_over: impl FnMut(&QueuedCommand) -> bool,
    ) {
        let mut state = lock(&self.state);
        while taken.len() < room
            && let Some(call) = state.calls.pop_front()
        {
            match is_over(&call) {
                _ if call.is_dropped() => {}
                true => expired.push(call),
                false => taken.push_back(call),
            }
        }
    }

    /// Takes back a call that did not run, in the order in which they came.
    pub(super) fn put_back(&self, call: QueuedCommand) {
        let mut state = lock(&self.state);
        let before = |other: &QueuedCommand| other.deadline <= call.deadline;
        let place = state.calls.partition_point(before);
        state.calls.insert(place, call);
    }

    /// Takes out the calls whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant, expired: &mut VecDeque<QueuedCommand>) {
        let mut state = lock(&self.state);
        let is_due = |call: &&QueuedCommand| call.deadline <= now;
        let due = state.calls.iter().take_while(is_due).count();
        expired.extend(state.calls.drain(..due));
    }

    /// The deadline of the first call. If there is none, the next one wakes the driver.
    pub(super) fn poll_first(&self, cx: &Context<'_>) -> Option<Instant> {
        let mut state = lock(&self.state);
        let first = state.calls.front().map(|call| call.deadline);
        if first.is_none() {
            state.driver = Some(cx.waker().clone());
        }
        first
    }

    /// Takes nothing any more, and fails what waits: none of it was sent.
    pub(super) fn close(&self, error: &CallError) {
        let calls = {
            let mut state = lock(&self.state);
            state.driver = None;
            let calls = std::mem::take(&mut state.calls);
            state.closed.get_or_insert_with(|| error.clone());
            calls
        };
        for call in calls {
            call.answer(Err(error.clone()));
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.state).calls.len()
    }
}

// The connection of a node, as its requests find it and its supervisor sets it.

/// What requests and the supervisor both see.
pub(super) struct NodeState {
    pub(super) link: ArcSwap<Link>,
    pub(super) breaker: Arc<Breaker>,
    pub(super) options: NodeOptions,
}

/// The connection, as requests find it.
pub(super) enum Link {
    Connected(Arc<CommandQueue>),
    Missing(CallError),
}

impl NodeState {
    pub(super) fn new(options: NodeOptions, breaker: Breaker, missing: CallError) -> Self {
        Self {
            link: ArcSwap::from_pointee(Link::Missing(missing)),
            breaker: Arc::new(breaker),
            options,
        }
    }

    pub(super) fn set_missing(&self, why: &ConnectError) {
        let missing = Link::Missing(why.to_call_error());
        self.link.store(Arc::new(missing));
    }
}
