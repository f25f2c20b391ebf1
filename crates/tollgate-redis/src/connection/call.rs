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
    command::{push_argument, push_count},
    error::{CallError, CallErrorKind},
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
    script: Arc<Script>,
    /// The number of arguments and everything after the hash, as it is sent.
    count: usize,
    tail: Vec<u8>,
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
        let bytes = keys
            .iter()
            .map(|key| key.as_ref().len() + 16)
            .sum::<usize>()
            + args
                .iter()
                .map(|arg| arg.as_ref().len() + 16)
                .sum::<usize>();
        let mut tail = Vec::with_capacity(bytes + 16);
        push_argument(&mut tail, keys.len().to_string().as_bytes());
        for key in keys {
            push_argument(&mut tail, key.as_ref());
        }
        for arg in args {
            push_argument(&mut tail, arg.as_ref());
        }
        let (answer, receiver) = oneshot::channel();
        let call = Self {
            script: Arc::clone(script),
            count: 3 + keys.len() + args.len(),
            tail,
            deadline,
            attempt: Attempt::First,
            answer,
        };
        (call, Call(State::Waiting(receiver)))
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn script(&self) -> &Arc<Script> {
        &self.script
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
        push_count(out, self.count);
        if with_body {
            push_argument(out, b"EVAL");
            push_argument(out, self.script.body().as_bytes());
        } else {
            push_argument(out, b"EVALSHA");
            push_argument(out, self.script.sha());
        }
        out.extend_from_slice(&self.tail);
    }
}
