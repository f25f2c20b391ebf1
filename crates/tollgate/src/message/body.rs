//! The request body, which counts messages; and the response body, which ends when a message of the call is denied.

use std::{
    error::Error,
    future::{Future as _, IntoFuture},
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_core::Step;

use crate::message::{
    call::Call,
    error::MessageLimitError,
    framing::Framing,
    grant::{self, Grant},
};

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a request whose messages are limited: what the service inside a [`MessageLimit`](crate::message::MessageLimit)
    /// reads.
    ///
    /// A message is counted before any byte behind its prefix is passed on. While messages wait, the inner body is not read,
    /// and at most one frame is held. Over the limit the body ends with a [`MessageLimitError`], never as if it were complete.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue.
    pub struct MessageBody<B> {
        #[pin]
        inner: B,
        // `None`: it passes unchanged.
        counter: Option<Box<Counter>>,
    }
}

/// Counts the messages of a body.
struct Counter {
    call: Arc<Call>,
    framing: Framing,
    /// The part of a frame that may not be passed on yet.
    held: Bytes,
    state: State,
}

enum State {
    /// Reads the body, or counts what is held.
    Counting,
    /// Messages in the held part wait for a grant.
    Waiting(<Step<Grant> as IntoFuture>::IntoFuture),
    /// The body has ended, with an error.
    Ended,
}

impl<B> MessageBody<B> {
    /// `None`: its messages are not limited.
    pub(super) fn new(inner: B, call: Option<Arc<Call>>) -> Self {
        let counter = call.map(|call| {
            Box::new(Counter {
                call,
                framing: Framing::default(),
                held: Bytes::new(),
                state: State::Counting,
            })
        });
        Self { inner, counter }
    }
}

impl Counter {
    /// Passes on as much of the held part as is granted. It is not empty.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, MessageLimitError>> {
        let mut waiting = match mem::replace(&mut self.state, State::Counting) {
            State::Waiting(grant) => grant,
            State::Counting | State::Ended => {
                // The rest of a granted message does not wait for the next one, and is not lost with it.
                let most = match self.framing.is_inside() {
                    true => 0,
                    false => u64::MAX,
                };
                let mut ahead = self.framing;
                let progress = ahead.advance(&self.held, most);
                if progress.messages == 0 {
                    self.framing = ahead;
                    return Poll::Ready(Ok(self.held.split_to(progress.length)));
                }
                grant::request(&self.call, progress.messages).into_future()
            }
        };
        let Poll::Ready(grant) = Pin::new(&mut waiting).poll(cx) else {
            self.state = State::Waiting(waiting);
            return Poll::Pending;
        };
        Poll::Ready(match grant {
            Ok(messages) => {
                let progress = self.framing.advance(&self.held, messages);
                Ok(self.held.split_to(progress.length))
            }
            Err(decision) => {
                self.state = State::Ended;
                self.held = Bytes::new();
                Err(self.call.deny(*decision))
            }
        })
    }
}

impl<B> Body for MessageBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(counter) = this.counter else {
            return this.inner.poll_frame(cx).map(|frame| {
                frame.map(|frame| frame.map(|frame| frame.map_data(whole)).map_err(Into::into))
            });
        };
        loop {
            if matches!(counter.state, State::Ended) {
                return Poll::Ready(None);
            }
            if !counter.held.is_empty() {
                let passed = ready!(counter.poll_held(cx));
                return Poll::Ready(Some(passed.map(Frame::data).map_err(Into::into)));
            }
            let Some(frame) = ready!(this.inner.as_mut().poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame.map_err(Into::into)?.into_data() {
                Ok(data) => counter.held = whole(data),
                Err(frame) => return Poll::Ready(Some(Ok(frame.map_data(whole)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.counter {
            None => self.inner.is_end_stream(),
            Some(counter) => match counter.state {
                State::Ended => true,
                _ => counter.held.is_empty() && self.inner.is_end_stream(),
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.counter {
            None => self.inner.size_hint(),
            // It may be cut off anywhere.
            Some(_) => SizeHint::default(),
        }
    }
}

/// Free if the data is [`Bytes`] already.
fn whole(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

impl<B: Default> Default for MessageBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

tollgate_core::debug_fields!(MessageBody<B>);

pin_project! {
    /// The body of a response whose request may have too many messages. It is the inner service's, which ends with the status
    /// of the denial; or it is empty, if the call was denied before its response had begun.
    #[derive(Debug)]
    pub struct MessageLimitResponseBody<B> {
        // `None`: it has ended.
        #[pin]
        body: Option<B>,
        // What may end the body, until its own status is sent. `None`: nothing may, or no longer.
        call: Option<Arc<Call>>,
    }
}

impl<B> MessageLimitResponseBody<B> {
    pub(super) fn new(body: Option<B>, call: Option<Arc<Call>>) -> Self {
        Self { body, call }
    }
}

impl<B: Body<Data = Bytes>> Body for MessageLimitResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let Some(call) = this.call else {
            return body.poll_frame(cx);
        };
        let decision = match call.poll_denied(cx) {
            Poll::Ready(decision) => decision,
            Poll::Pending => {
                let frame = ready!(body.poll_frame(cx));
                if matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
                    return Poll::Ready(frame);
                }
                // The inner service may end the response because its request was cut off: its status must not hide that.
                let Some(decision) = call.denied() else {
                    *this.call = None;
                    return Poll::Ready(frame);
                };
                decision
            }
        };
        let trailers = call.trailers(decision);
        // Dropping the inner body stops its work at once.
        this.body.set(None);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let is_denied = || {
            let call = self.call.as_ref();
            call.is_some_and(|call| call.denied().is_some())
        };
        (self.body.as_ref()).is_none_or(|body| body.is_end_stream() && !is_denied())
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.body, &self.call) {
            (None, _) => SizeHint::with_exact(0),
            (Some(body), None) => body.size_hint(),
            (Some(_), Some(_)) => SizeHint::default(),
        }
    }
}

impl<B: Default> Default for MessageLimitResponseBody<B> {
    fn default() -> Self {
        Self::new(Some(B::default()), None)
    }
}
