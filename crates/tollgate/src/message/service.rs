//! The service: one call.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::Pending;
use tower_service::Service;

use crate::{
    message::{
        body::MessageBody,
        call::Patience,
        future::{MessageLimitFuture, Waiting, call},
        response_body::MessageLimitResponseBody,
    },
    protocol::Spoken,
    rate_limit::config::Config,
    rate_limit::decide::is_preflight,
    rate_limit::live::Live,
    rate_limit::request_rules::Asked,
};

/// Limits the messages that clients of `S` send. Made by [`MessageLimitLayer`](crate::MessageLimitLayer).
///
/// Requests may have any body, which the inner service reads as a [`MessageBody`]; responses any body whose data is
/// [`Bytes`](bytes::Bytes), as in axum, tonic and hyper.
///
/// See the [module documentation](crate::message).
#[derive(Clone)]
pub struct MessageLimit<S> {
    inner: S,
    config: Arc<Live<Config>>,
    patience: Patience,
}

impl<S> MessageLimit<S> {
    pub(super) fn new(inner: S, config: Arc<Live<Config>>, patience: Patience) -> Self {
        Self {
            inner,
            config,
            patience,
        }
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for MessageLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLimit")
            .field("inner", &self.inner)
            .field("config", &**self.config)
            .finish()
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
        let (head, body) = request.into_parts();
        let mut asked = Asked::default();
        // A preflight says of nobody who it is, and without a body it has nothing to count.
        let is_preflight = is_preflight(&head, !body.is_end_stream());
        if is_preflight {
            self.config.rules.observer.preflight();
        } else if self.config.protocol.of(&head) != Spoken::Http
            && let Err(refusal) = self.config.rules.ask(&head, &mut asked)
        {
            // What `poll_ready` has reserved is given up with the instance that holds it.
            self.inner = self.inner.clone();
            return MessageLimitFuture::refused(self.config.refuse(&head, &refusal));
        }
        let request = Request::from_parts(head, body);
        if !asked.waits() {
            let (config, patience) = (&**self.config, self.patience);
            let (future, call) = call(&mut self.inner, request, config, patience, asked.checks);
            return MessageLimitFuture::inner(future, call);
        }
        // The instance that was polled ready goes with the future, the clone stays behind: a clone need not be ready.
        let clone = self.inner.clone();
        let waiting = Waiting {
            ready: std::mem::replace(&mut self.inner, clone),
            request,
            config: Arc::clone(&**self.config),
            patience: self.patience,
        };
        let look_up = Pending::new(self.config.rules.clone().look_up(asked));
        MessageLimitFuture::looking_up(look_up, waiting)
    }
}
