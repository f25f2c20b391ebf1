//! The response's body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::rate_limit::admit::AtEnd;

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
        /// The inner service's body, at whose end the request may be settled and return its slots.
        Inner { #[pin] body: B, at_end: Option<AtEnd> },
        Full { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B, at_end: Option<AtEnd>) -> Self {
        Self {
            kind: Kind::Inner { body, at_end },
        }
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        Self {
            kind: Kind::Full { bytes },
        }
    }
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
            KindProj::Inner { mut body, at_end } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                let is_last = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
                // After the last frame, a server need not poll again.
                let ends = |_: &mut AtEnd| is_last || body.is_end_stream();
                if let Some(at_end) = at_end.take_if(ends) {
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
            Kind::Inner { body, .. } => body.is_end_stream(),
            Kind::Full { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Full { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
