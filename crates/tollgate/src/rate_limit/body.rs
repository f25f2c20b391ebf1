//! The response's body.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::rate_limit::at_end::AtEnd;

pin_project! {
    /// The inner service's body, or the body of a rejection.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Inner { #[pin] body: B },
        /// The inner service's body, at whose end the request is settled and returns its slots.
        Settled { #[pin] body: B, at_end: Mutex<Option<AtEnd>> },
        Full { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    #[inline]
    pub(crate) fn inner(body: B, at_end: Option<AtEnd>) -> Self {
        let kind = match at_end {
            None => Kind::Inner { body },
            at_end => {
                let at_end = Mutex::new(at_end);
                Kind::Settled { body, at_end }
            }
        };
        Self { kind }
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self {
            kind: Kind::Full { bytes },
        }
    }
}

/// Settles the request of a body that has ended without a frame: a server drops it then, and does not poll it. Slots go back with
/// the body.
fn settle(at_end: &Mutex<Option<AtEnd>>) {
    let settlement = whole(at_end.lock()).take_if(|at_end| matches!(at_end, AtEnd::Settle(_)));
    if let Some(settlement) = settlement {
        settlement.end(None::<&Result<Frame<Bytes>, Infallible>>);
    }
}

/// Nothing is changed under the lock but in one step.
fn whole<T>(locked: Result<T, PoisonError<T>>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::inner(B::default(), None)
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(cx),
            KindProj::Settled { mut body, at_end } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                let is_last = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
                // After the last frame, a server need not poll again.
                if (is_last || body.is_end_stream())
                    && let Some(at_end) = whole(at_end.get_mut()).take()
                {
                    at_end.end(frame.as_ref());
                }
                Poll::Ready(frame)
            }
            KindProj::Full { bytes } => Poll::Ready(if bytes.is_empty() {
                None
            } else {
                Some(Ok(Frame::data(std::mem::take(bytes))))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Settled { body, at_end } => {
                let has_ended = body.is_end_stream();
                if has_ended {
                    settle(at_end);
                }
                has_ended
            }
            Kind::Full { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } | Kind::Settled { body, .. } => body.size_hint(),
            Kind::Full { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
