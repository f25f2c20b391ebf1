//! The response's body.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::shed::shedder::InFlight;

pin_project! {
    /// The inner service's body, which is in flight until it has ended, or the body of an answer.
    #[derive(Debug)]
    pub struct ShedBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Inner { #[pin] body: B, place: Option<InFlight> },
        Full { bytes: Bytes },
    }
}

impl<B> ShedBody<B> {
    pub(super) fn inner(body: B, place: Option<InFlight>) -> Self {
        Self {
            kind: Kind::Inner { body, place },
        }
    }

    pub(super) fn full(bytes: Bytes) -> Self {
        Self {
            kind: Kind::Full { bytes },
        }
    }
}

impl<B: Default> Default for ShedBody<B> {
    fn default() -> Self {
        Self::inner(B::default(), None)
    }
}

impl<B: Body<Data = Bytes>> Body for ShedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { mut body, place } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                let is_last = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
                // After the last frame, a server need not poll again.
                if is_last || body.is_end_stream() {
                    *place = None;
                }
                Poll::Ready(frame)
            }
            KindProj::Full { bytes } if bytes.is_empty() => Poll::Ready(None),
            KindProj::Full { bytes } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
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
