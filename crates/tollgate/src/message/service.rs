//! The service.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::{Pending, store::Checks};
use tower_service::Service;

use crate::{
    head::Head,
    message::{
        body::{MessageBody, MessageLimitResponseBody},
        future::{MessageLimitFuture, State, Waiting, call},
    },
    protocol::WireProtocol,
    rate_limit::{decide::is_preflight, deny::reject, live_config::ServiceConfig},
    rejection::{UNIMPLEMENTED, trailers_only},
};

/// Limits the messages that clients of `S` send. Made by [`MessageLimitLayer`](crate::message::MessageLimitLayer).
///
/// Requests may have any body, which the inner service reads as a [`MessageBody`]; responses any body whose data is
/// [`Bytes`](bytes::Bytes), as in axum, tonic and hyper.
///
/// See the [module documentation](crate::message).
#[derive(Clone, Debug)]
pub struct MessageLimit<S> {
    pub(super) inner: S,
    pub(super) config: ServiceConfig,
}

impl<S> MessageLimit<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

/// A service of tonic keeps its name.
#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for MessageLimit<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, RB> Service<Request<B>> for MessageLimit<S>
where
    S: Service<Request<MessageBody<B>>, Response = Response<RB>> + Clone,
    B: Body,
    RB: Body,
{
    type Response = Response<MessageLimitResponseBody<RB>>;
    type Error = S::Error;
    type Future = MessageLimitFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> MessageLimitFuture<S, B> {
        let mut checks = Checks::new();
        let head = Head::from(&request);
        // One configuration for all of the call.
        let config = &self.config.load();
        // A preflight carries no identity and no messages.
        let asked = if is_preflight(&head, || request.body().is_end_stream()) {
            config.rules.observer.preflight();
            Ok(None)
        } else {
            match config.settings.protocol.of(&head) {
                WireProtocol::Http => Ok(None),
                protocol @ WireProtocol::GrpcWeb { .. } => {
                    config.rules.observer.untranslated_grpc_web();
                    Err(trailers_only(&head, protocol, UNIMPLEMENTED, None))
                }
                WireProtocol::Grpc => (config.rules.collect(&head, false, &mut checks))
                    .map_err(|refusal| reject(config, &head, &refusal)),
            }
        };
        let state = match asked {
            Ok(None) => call(&mut self.inner, request, config, checks.into()),
            Ok(Some(look_ups)) => {
                // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
                let clone = self.inner.clone();
                let waiting = Waiting {
                    ready: std::mem::replace(&mut self.inner, clone),
                    request,
                    config: Arc::clone(config),
                };
                let config = Arc::clone(config);
                let look_up = async move { config.rules.look_up(checks, look_ups).await };
                State::LookingUp {
                    look_up: Pending::new(look_up),
                    waiting: Some(Box::new(waiting)),
                }
            }
            Err(rejection) => {
                // Dropping the instance frees what `poll_ready` has reserved.
                self.inner = self.inner.clone();
                let response = Some(Box::new(rejection));
                State::Rejected { response }
            }
        };
        MessageLimitFuture { state }
    }
}
