//! One call: what is sent, and the future of its answer.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll, Waker, ready},
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use crate::{
    connection::{
        error::{CallError, CallErrorKind},
        request::Request,
        value::Value,
    },
    lock::lock,
};

/// The answer to a call, at the latest shortly after its deadline.
///
/// # Cancel safety
///
/// A call that is dropped before it was sent is not sent. Later it runs, and its reply is dropped.
#[must_use = "await the answer"]
pub(crate) struct Call(State);

enum State {
    /// It was not queued, and this is why.
    Refused(Option<CallError>),
    Waiting(oneshot::Receiver<Answer>),
    /// It may be sent on to another server, or ends at a time of its own.
    Sent(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

pub(super) type Answer = Result<Value, CallError>;

impl Call {
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

impl Future for Call {
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

tollgate_core::debug_fields!(Call);

fn gone(why: &'static str) -> CallError {
    CallError::new(CallErrorKind::Unknown, why)
}

/// A call on its way.
pub(super) struct Waiting {
    request: Request,
    deadline: Instant,
    /// How often the server did not know the script.
    unknown: u8,
    /// Whether it goes out as a command of its own.
    alone: bool,
    /// Whether `ASKING` goes before it, each time.
    asking: bool,
    answer: oneshot::Sender<Answer>,
}

/// How often a server may say that it does not know the script, and so did not run it. Then another call may bring the text; then the
/// text that it brought was flushed, and this one brings its own.
const MOST_UNKNOWN: u8 = 2;

impl Waiting {
    pub(super) fn new(request: Request, deadline: Instant) -> (Self, Call) {
        let (answer, receiver) = oneshot::channel();
        let call = Self {
            alone: request.count().is_none(),
            request,
            deadline,
            unknown: 0,
            asking: false,
            answer,
        };
        (call, Call(State::Waiting(receiver)))
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    /// Whether both may go out as one command.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        !self.alone && !other.alone && self.request.goes_with(&other.request)
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

    /// Sent right behind an `ASKING`, to a server that is about to receive its slot. It travels with no other: a key that is
    /// missing there would refuse them all.
    pub(super) fn asking(mut self) -> Self {
        self.asking = true;
        self.alone = true;
        self
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking
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

    /// Whether the text of the script has to go along, whoever else brings it.
    pub(super) fn brings_script(&self) -> bool {
        self.unknown == MOST_UNKNOWN
    }

    /// From now on it travels with no other.
    pub(super) fn keep_alone(&mut self) {
        self.alone = true;
    }
}

// Calls that wait for the connection to be free.

/// The waiting calls of one connection, in the order in which they came: the first is also the first to expire.
pub(super) struct Queue {
    state: Mutex<Lines>,
    limit: usize,
}

struct Lines {
    calls: VecDeque<Waiting>,
    /// The driver, while it sleeps.
    driver: Option<Waker>,
    /// Why nothing is taken any more.
    closed: Option<CallError>,
}

impl Queue {
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
    pub(super) fn push(&self, call: Waiting) -> Result<(), CallError> {
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
        taken: &mut VecDeque<Waiting>,
        expired: &mut Vec<Waiting>,
        mut is_over: impl FnMut(&Waiting) -> bool,
    ) {
        let mut state = lock(&self.state);
        while taken.len() < room {
            let Some(call) = state.calls.pop_front() else {
                return;
            };
            if call.is_dropped() {
                continue;
            }
            if is_over(&call) {
                expired.push(call);
            } else {
                taken.push_back(call);
            }
        }
    }

    /// Takes out the calls whose deadline has passed.
    pub(super) fn take_expired(&self, now: Instant, expired: &mut VecDeque<Waiting>) {
        let mut state = lock(&self.state);
        let is_due = |call: &&Waiting| call.deadline() <= now;
        let due = state.calls.iter().take_while(is_due).count();
        expired.extend(state.calls.drain(..due));
    }

    /// The deadline of the first call. If there is none, the next one wakes the driver.
    pub(super) fn poll_first(&self, cx: &Context<'_>) -> Option<Instant> {
        let mut state = lock(&self.state);
        let first = state.calls.front().map(Waiting::deadline);
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
