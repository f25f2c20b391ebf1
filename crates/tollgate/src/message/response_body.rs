//! The response body, which ends when a message of the call is denied.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{header::CONTENT_LENGTH, response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::message::call::Call;

pin_project! {
    /// The body of a response whose request may have too many messages. It is the inner service's, which ends with the status
    /// of the denial; or it is empty, if the call was denied before its response had begun.
    pub struct MessageLimitResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        /// The inner service's body, unchanged.
        Unlimited { #[pin] body: B },
        /// The inner service's body until the call is denied. `has_status`: it has sent its status, so it is too late.
        Open { #[pin] body: B, call: Arc<Call>, has_status: bool },
        /// It has ended.
        Ended,
    }
}

impl<B> MessageLimitResponseBody<B> {
    pub(super) fn unlimited(body: B) -> Self {
        Self {
            kind: Kind::Unlimited { body },
        }
    }

    pub(super) fn ended() -> Self {
        Self { kind: Kind::Ended }
    }
}

impl<B: Body> MessageLimitResponseBody<B> {
    /// The body of a response with this head, which ends when the call is denied.
    pub(super) fn open(head: &mut response::Parts, body: B, call: Arc<Call>) -> Self {
        if body.is_end_stream() {
            return Self::unlimited(body);
        }
        // The body may become shorter.
        head.headers.remove(CONTENT_LENGTH);
        Self {
            kind: Kind::Open {
                body,
                call,
                has_status: false,
            },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for MessageLimitResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut kind = self.project().kind;
        let (mut body, call, has_status) = match kind.as_mut().project() {
            KindProj::Unlimited { body } => return body.poll_frame(cx),
            KindProj::Open {
                body,
                call,
                has_status,
            } => (body, call, has_status),
            KindProj::Ended => return Poll::Ready(None),
        };
        if *has_status {
            return body.poll_frame(cx);
        }
        let decision = match call.poll_denied(cx) {
            Poll::Ready(decision) => decision,
            Poll::Pending => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                if matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
                    return Poll::Ready(frame);
                }
                // The inner service may end the response because its request was cut off: its status must not hide that.
                let Some(decision) = call.denied() else {
                    *has_status = true;
                    return Poll::Ready(frame);
                };
                decision
            }
        };
        let trailers = call.trailers(&decision);
        // Dropping the inner body stops its work at once.
        kind.set(Kind::Ended);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Unlimited { body } => body.is_end_stream(),
            Kind::Open {
                body,
                call,
                has_status,
            } => body.is_end_stream() && (*has_status || call.denied().is_none()),
            Kind::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Unlimited { body } => body.size_hint(),
            Kind::Open { .. } => SizeHint::default(),
            Kind::Ended => SizeHint::with_exact(0),
        }
    }
}

impl<B: Default> Default for MessageLimitResponseBody<B> {
    fn default() -> Self {
        Self::unlimited(B::default())
    }
}

impl<B> fmt::Debug for MessageLimitResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Unlimited { .. } => "MessageLimitResponseBody::Unlimited",
            Kind::Open { .. } => "MessageLimitResponseBody::Open",
            Kind::Ended => "MessageLimitResponseBody::Ended",
        })
    }
}
