//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;

use crate::{
    rate_limit::{ResponseBody, at_end::AtEnd},
    shed::shedder::InFlight,
};

pin_project! {
    /// The response of the inner service, or the answer to a request that is shed.
    #[must_use = "futures do nothing unless polled"]
    pub struct ShedFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        /// The inner service runs.
        Inner { #[pin] future: F, request: Option<InFlight> },
        /// The inner service was not called.
        Shed { response: Option<Response<Bytes>> },
    }
}

impl<F> ShedFuture<F> {
    pub(super) fn inner(future: F, request: InFlight) -> Self {
        let request = Some(request);
        Self {
            state: State::Inner { future, request },
        }
    }

    pub(super) fn shed(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Self {
            state: State::Shed { response },
        }
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

impl<F> fmt::Debug for ShedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedFuture").finish_non_exhaustive()
    }
}
