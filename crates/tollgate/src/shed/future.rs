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

use crate::shed::{body::ShedBody, shedder::InFlight};

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
        Inner { #[pin] future: F, place: Option<InFlight> },
        /// The inner service was not called.
        Shed { response: Option<Response<Bytes>> },
    }
}

impl<F> ShedFuture<F> {
    pub(super) fn inner(future: F, place: InFlight) -> Self {
        let place = Some(place);
        Self {
            state: State::Inner { future, place },
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
    type Output = Result<Response<ShedBody<RB>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Inner { future, place } => {
                let response = ready!(future.poll(cx));
                // The place goes with the body, or is dropped with the error.
                let mut place = place.take();
                let response = response?;
                if let Some(place) = place
                    .as_mut()
                    .filter(|_| !response.status().is_server_error())
                {
                    place.served();
                }
                Poll::Ready(Ok(response.map(|body| ShedBody::inner(body, place))))
            }
            StateProj::Shed { response } => {
                let response = response.take().expect("polled after completion");
                Poll::Ready(Ok(response.map(ShedBody::full)))
            }
        }
    }
}

impl<F> fmt::Debug for ShedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Inner { .. } => "ShedFuture::Inner",
            State::Shed { .. } => "ShedFuture::Shed",
        })
    }
}
