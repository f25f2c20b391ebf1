//! The service.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use http::{Request, Response};
use tower_service::Service;

use crate::{
    head::Head,
    rate_limit::ResponseBody,
    shed::{
        future::{ShedFuture, State, answer},
        priority::Priority,
        shedder::Shedder,
    },
};

/// Sheds requests to `S`. Made by [`ShedLayer`](crate::shed::ShedLayer).
///
/// See the [module documentation](crate::shed).
#[derive(Clone, Debug)]
pub struct Shed<S> {
    pub(super) inner: S,
    pub(super) shedder: Arc<ArcSwap<Shedder>>,
    pub(super) fixed: Option<Priority>,
}

impl<S> Shed<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for Shed<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, RB> Service<Request<B>> for Shed<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = ShedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ShedFuture<S::Future> {
        let shedder = self.shedder.load();
        // `Guard` derefs to the `Arc` that a place keeps.
        match shedder.admit(&Head::from(&request), self.fixed) {
            Ok(place) => ShedFuture {
                state: State::Inner {
                    future: self.inner.call(request),
                    request: Some(place),
                },
            },
            Err(retry_after) => {
                let head = Head::from(&request);
                let response = answer(&head, shedder.protocol.of(&head), retry_after);
                drop(shedder);
                // Dropping the instance frees what `poll_ready` has reserved: a permit, a place in a queue.
                self.inner = self.inner.clone();
                let response = Some(response);
                ShedFuture {
                    state: State::Shed { response },
                }
            }
        }
    }
}
