//! One call: what is sent, and the future of its answer.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{sync::oneshot, time::Instant};

use crate::connection::{
    error::{CallError, CallErrorKind},
    request::Request,
    value::Value,
};

/// The answer to a call, at the latest shortly after its deadline.
///
/// # Cancel safety
///
/// A call that is dropped before it was sent is not sent. Later it runs, and its reply is dropped.
#[derive(Debug)]
#[must_use = "await the answer"]
pub(crate) struct Call(State);

#[derive(Debug)]
enum State {
    /// It was not even queued.
    Refused(Option<CallError>),
    /// The connection has it.
    Waiting(oneshot::Receiver<Result<Value, CallError>>),
}

impl Call {
    pub(super) fn refused(error: CallError) -> Self {
        Self(State::Refused(Some(error)))
    }

    /// Whether it has failed without having been queued.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.0, State::Refused(_))
    }
}

impl Future for Call {
    type Output = Result<Value, CallError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match &mut self.get_mut().0 {
            State::Refused(error) => {
                Err(error.take().unwrap_or_else(|| gone("it was asked twice")))
            }
            State::Waiting(answer) => match ready!(Pin::new(answer).poll(cx)) {
                Ok(answer) => answer,
                Err(_) => Err(gone("its connection was dropped")),
            },
        })
    }
}

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
    answer: oneshot::Sender<Result<Value, CallError>>,
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
