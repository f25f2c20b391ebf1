//! The response body, which ends when a message of the call is denied.

use std::{
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
    #[derive(Debug)]
    pub struct MessageLimitResponseBody<B> {
        // `None`: it has ended.
        #[pin]
        body: Option<B>,
        // What may end the body, until its own status is sent.
        call: Option<Arc<Call>>,
    }
}

impl<B> MessageLimitResponseBody<B> {
    pub(super) fn unlimited(body: B) -> Self {
        Self {
            body: Some(body),
            call: None,
        }
    }

    pub(super) fn ended() -> Self {
        Self {
            body: None,
            call: None,
        }
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
            body: Some(body),
            call: Some(call),
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
        let trailers = call.trailers(&decision);
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
        Self::unlimited(B::default())
    }
}
