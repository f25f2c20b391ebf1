//! The request's body, which counts messages.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_core::{Pending, Step};

use crate::message::{
    call::Call,
    error::{MessageLimitError, MessageLimitErrorKind},
    framing::Framing,
    quads::NotBase64,
    turn::Turn,
};

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a request whose messages are limited: what the service inside a [`MessageLimit`](crate::MessageLimit)
    /// reads.
    ///
    /// A message is counted before any byte behind its prefix is handed on. While messages wait for their turn nothing is
    /// read, and one frame is held at most. Over the limit the body ends with a [`MessageLimitError`], never as if it were
    /// whole.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the line.
    pub struct MessageBody<B> {
        #[pin]
        inner: B,
        // `None`: it passes untouched.
        counter: Option<Box<Counter>>,
    }
}

/// What counts the messages of a body.
struct Counter {
    call: Arc<Call>,
    framing: Framing,
    /// The part of a frame that may not be handed on yet.
    held: Bytes,
    state: State,
}

enum State {
    /// Reads the body, or counts what is held.
    Counting,
    /// Messages of what is held wait for their turn.
    Asking(Pending<Turn>),
    /// The body has ended, with an error.
    Ended,
}

impl<B> MessageBody<B> {
    pub(super) fn untouched(inner: B) -> Self {
        Self {
            inner,
            counter: None,
        }
    }

    pub(super) fn counted(inner: B, call: Arc<Call>) -> Self {
        let counter = Counter {
            framing: Framing::new(call.spoken()),
            call,
            held: Bytes::new(),
            state: State::Counting,
        };
        Self {
            inner,
            counter: Some(Box::new(counter)),
        }
    }
}

impl Counter {
    /// Hands on as much of what is held as may be. It is not empty.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, MessageLimitError>> {
        let turn = match &mut self.state {
            State::Asking(turn) => ready!(Pin::new(turn).poll(cx)),
            State::Counting | State::Ended => {
                let mut ahead = self.framing;
                let messages = match ahead.advance(&self.held, u64::MAX) {
                    Ok(reach) => reach.messages,
                    Err(wrong) => return Poll::Ready(Err(self.malformed(wrong))),
                };
                if messages == 0 {
                    self.framing = ahead;
                    return Poll::Ready(Ok(std::mem::take(&mut self.held)));
                }
                match self.call.ask(messages) {
                    Step::Ready(turn) => turn,
                    Step::Wait(mut turn) => match Pin::new(&mut turn).poll(cx) {
                        Poll::Ready(turn) => turn,
                        Poll::Pending => {
                            self.state = State::Asking(turn);
                            return Poll::Pending;
                        }
                    },
                }
            }
        };
        self.state = State::Counting;
        Poll::Ready(match turn {
            Turn::Granted(messages) => match self.framing.advance(&self.held, messages) {
                Ok(reach) => Ok(self.held.split_to(reach.length)),
                Err(wrong) => Err(self.malformed(wrong)),
            },
            Turn::Denied(decision) => {
                self.end();
                Err(self.call.deny(decision))
            }
        })
    }

    fn malformed(&mut self, NotBase64: NotBase64) -> MessageLimitError {
        self.end();
        MessageLimitError::new(MessageLimitErrorKind::NotBase64, None)
    }

    fn end(&mut self) {
        self.state = State::Ended;
        self.held = Bytes::new();
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
                let handed = ready!(counter.poll_held(cx));
                return Poll::Ready(Some(handed.map(Frame::data).map_err(Into::into)));
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
            // It may be cut anywhere.
            Some(_) => SizeHint::default(),
        }
    }
}

/// Costs nothing where the data is [`Bytes`] already.
fn whole(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

impl<B: Default> Default for MessageBody<B> {
    fn default() -> Self {
        Self::untouched(B::default())
    }
}

impl<B> fmt::Debug for MessageBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.counter.as_ref().map(|counter| match counter.state {
            State::Counting => "counting",
            State::Asking(_) => "asking",
            State::Ended => "ended",
        });
        f.debug_struct("MessageBody")
            .field("state", &state.unwrap_or("untouched"))
            .finish_non_exhaustive()
    }
}
