//! The future of a response, and the answer to a request that is shed.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode};
use pin_project_lite::pin_project;

use crate::{
    head::Head,
    header::times::write_retry_after,
    json_text::respond,
    protocol::WireProtocol,
    rate_limit::{Refund, ResponseBody, admit::AtEnd},
    rejection::{UNAVAILABLE, clear_for_head, trailers_only},
    shed::shedder::InFlight,
};

pin_project! {
    /// The response of the inner service, or the answer to a request that is shed.
    #[must_use = "futures do nothing unless polled"]
    pub struct ShedFuture<F> {
        #[pin]
        pub(super) state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<F> {
        /// The inner service runs.
        Inner { #[pin] future: F, request: Option<InFlight> },
        /// The inner service was not called.
        Shed { response: Option<Response<Bytes>> },
    }
}

impl<F, RB, E> Future for ShedFuture<F>
where
    F: Future<Output = Result<Response<RB>, E>>,
{
    type Output = Result<Response<ResponseBody<RB>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Inner { future, request } => {
                let response = ready!(future.poll(cx));
                // The place goes with the body, or is dropped with the error.
                let request = request.take();
                let response = response?;
                let is_served = !response.status().is_server_error();
                let place = request.and_then(|request| request.answered(is_served));
                let at_end = place.map(AtEnd::Leave);
                Poll::Ready(Ok(response.map(|body| ResponseBody::inner(body, at_end))))
            }
            StateProj::Shed { response } => {
                let response = response.take().expect("polled after completion");
                Poll::Ready(Ok(response.map(ResponseBody::full)))
            }
        }
    }
}

tollgate_core::debug_fields!(ShedFuture<F>);

/// The problem type of the `RateLimit` drafts for a service that has less capacity than usual.
const PROBLEM: &[u8] = br#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary reduced capacity","status":503}"#;

/// 503, or `UNAVAILABLE` in gRPC. Limits outside of the layer give their units back.
pub(super) fn answer(head: &Head<'_>, protocol: WireProtocol, wait: Duration) -> Response<Bytes> {
    let mut response = match protocol {
        WireProtocol::Http => {
            let mut response = respond("application/problem+json", PROBLEM);
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            clear_for_head(head, &mut response);
            response
        }
        grpc => trailers_only(head, grpc, UNAVAILABLE, Some(wait)),
    };
    write_retry_after(response.headers_mut(), wait);
    response.extensions_mut().insert(Refund);
    response
}
