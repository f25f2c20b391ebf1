//! One call: what is sent, and the future of its answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use redis::Value;
use tokio::{sync::oneshot, time::Instant};

use crate::connection::{
    error::{CallError, CallErrorKind},
    request::Request,
    script::Script,
};

/// The answer to a call, at the latest shortly after its deadline.
///
/// # Cancel safety
///
/// A call that is dropped before it was sent is not sent. Later it runs, and nobody hears what came of it.
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
#[derive(Debug)]
pub(super) struct Waiting {
    request: Request,
    /// Whether `ASKING` goes before it, each time.
    asking: bool,
    deadline: Instant,
    attempt: Attempt,
    answer: oneshot::Sender<Result<Value, CallError>>,
}

/// How a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    First,
    /// The server did not know the script, and so did not run it.
    Again,
}

impl Waiting {
    pub(super) fn new(
        script: &Arc<Script>,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        deadline: Instant,
    ) -> (Self, Call) {
        Self::of(Request::new(script, keys, args), deadline)
    }

    pub(super) fn of(request: Request, deadline: Instant) -> (Self, Call) {
        let (answer, receiver) = oneshot::channel();
        let call = Self {
            request,
            asking: false,
            deadline,
            attempt: Attempt::First,
            answer,
        };
        (call, Call(State::Waiting(receiver)))
    }

    /// Sent right behind an `ASKING`, to a server that is about to receive its slot.
    pub(super) fn asking(mut self) -> Self {
        self.asking = true;
        self
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn script(&self) -> &Arc<Script> {
        self.request.script()
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn answer(self, answer: Result<Value, CallError>) {
        // Whoever does not wait any more does not want to know.
        let _ = self.answer.send(answer);
    }

    pub(super) fn fail(self, kind: CallErrorKind, message: &'static str) {
        self.answer(Err(CallError::new(kind, message)));
    }

    /// Marks that the server did not know the script; gives the call back if it is the second time.
    pub(super) fn again(mut self) -> Result<Self, Self> {
        if self.attempt == Attempt::Again {
            return Err(self);
        }
        self.attempt = Attempt::Again;
        Ok(self)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, with_body: bool) {
        self.request.write(out, with_body);
    }
}
