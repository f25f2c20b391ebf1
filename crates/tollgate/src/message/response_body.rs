//! The response's body, which ends when the call's messages are denied.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, header::CONTENT_LENGTH, response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_core::Decision;

use crate::{
    message::{call::Call, framing::Framing, web::trailers_frame},
    protocol::{Spoken, spoken},
};

pin_project! {
    /// The body of a response whose request may have too many messages: the inner service's, which then ends with the
    /// status of the denial; or nothing, where the call was denied before its response had begun.
    pub struct MessageLimitResponseBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<B> {
        /// The inner service's body as it is.
        Untouched { #[pin] body: B },
        /// The inner service's body until the call is denied.
        Open { #[pin] body: B, ending: Box<Ending> },
        /// It has ended.
        Ended,
    }
}

/// How a response ends when its call is denied.
struct Ending {
    call: Arc<Call>,
    /// The place in the messages of a response in gRPC-Web, whose trailers come as a frame of data between two messages.
    web: Option<Framing>,
    /// Whether the inner service has sent a status, so that it is too late for another.
    told: bool,
}

impl Ending {
    /// Whether the body can end here.
    fn may_end(&self) -> bool {
        self.web.is_none_or(Framing::is_between)
    }

    fn last_frame(&self, decision: &Decision) -> Frame<Bytes> {
        let trailers: HeaderMap = self.call.trailers(decision);
        match self.web {
            None => Frame::trailers(trailers),
            Some(framing) => Frame::data(trailers_frame(&trailers, framing.is_text())),
        }
    }

    /// Whether the inner service ends the response with this.
    fn is_end<E>(&mut self, frame: Option<&Result<Frame<Bytes>, E>>) -> bool {
        let Some(data) = frame.and_then(|frame| frame.as_ref().ok()?.data_ref()) else {
            return true;
        };
        self.web.as_mut().is_some_and(|web| {
            // A text that is not base64 is passed on as it is, like everything else of the inner service.
            let _ = web.advance(data, u64::MAX);
            web.has_trailers()
        })
    }
}

impl<B> MessageLimitResponseBody<B> {
    pub(super) fn untouched(body: B) -> Self {
        Self {
            kind: Kind::Untouched { body },
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
            return Self::untouched(body);
        }
        // It may become shorter.
        head.headers.remove(CONTENT_LENGTH);
        let spoken = match spoken(&head.headers) {
            Spoken::Http => call.spoken(),
            grpc => grpc,
        };
        let web = matches!(spoken, Spoken::GrpcWeb { .. }).then(|| Framing::new(spoken));
        let ending = Box::new(Ending {
            call,
            web,
            told: false,
        });
        Self {
            kind: Kind::Open { body, ending },
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
        let (body, ending) = match kind.as_mut().project() {
            KindProj::Untouched { body } => return body.poll_frame(cx),
            KindProj::Open { body, ending } => (body, ending),
            KindProj::Ended => return Poll::Ready(None),
        };
        if ending.told {
            return body.poll_frame(cx);
        }
        let denied = ending.call.poll_denied(cx);
        let last = match denied {
            Poll::Ready(decision) if ending.may_end() => ending.last_frame(&decision),
            _ => {
                let may_end = ending.may_end();
                let frame = ready!(body.poll_frame(cx));
                if !ending.is_end(frame.as_ref()) {
                    return Poll::Ready(frame);
                }
                // The inner service may end because its request did; what it says of that hides nothing.
                match ending.call.denied() {
                    Some(decision) if may_end => ending.last_frame(&decision),
                    _ => {
                        ending.told = true;
                        return Poll::Ready(frame);
                    }
                }
            }
        };
        // What the inner service still holds is given up at once.
        kind.set(Kind::Ended);
        Poll::Ready(Some(Ok(last)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Untouched { body } => body.is_end_stream(),
            Kind::Open { body, ending } => {
                body.is_end_stream() && (ending.told || ending.call.denied().is_none())
            }
            Kind::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Untouched { body } => body.size_hint(),
            Kind::Open { .. } => SizeHint::default(),
            Kind::Ended => SizeHint::with_exact(0),
        }
    }
}

impl<B: Default> Default for MessageLimitResponseBody<B> {
    fn default() -> Self {
        Self::untouched(B::default())
    }
}

impl<B> fmt::Debug for MessageLimitResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            Kind::Untouched { .. } => "MessageLimitResponseBody::Untouched",
            Kind::Open { .. } => "MessageLimitResponseBody::Open",
            Kind::Ended => "MessageLimitResponseBody::Ended",
        })
    }
}
