//! A call whose messages are limited.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Response, header, request};
use tollgate_core::{Decision, Key, Reason, store::Checks};

use crate::{
    head::Head,
    message::error::MessageLimitError,
    rate_limit::{
        config::Config,
        deny::{denial, response},
        request_rules::KnownChecks,
    },
    rejection::Denial,
};

/// A call whose messages are limited: what the bodies of the request and the response share. The request's body counts
/// messages; the response ends when they are denied.
pub(super) struct Call {
    pub(super) config: Arc<Config>,
    /// The checks of one message.
    pub(super) checks: Checks,
    /// The keys that the copy of the head does not have.
    found: Vec<(u16, Key)>,
    head: request::Parts,
    end: Mutex<End>,
}

/// Whether messages were denied.
enum End {
    /// Not yet. The waker is that of the response.
    Open(Option<Waker>),
    Denied(Arc<Decision>),
}

impl Call {
    pub(super) fn new(config: Arc<Config>, mut known: KnownChecks, head: &Head<'_>) -> Arc<Self> {
        config.rules.keys_of(head, &mut known);
        // A rule that tells of denials is among those with keys.
        let is_told = !known.found.is_empty();
        Arc::new(Self {
            config,
            checks: known.checks,
            found: known.found,
            head: for_denial(head, is_told),
            end: Mutex::new(End::Open(None)),
        })
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call: the client gets the denial, and the handler this error.
    pub(super) fn deny(&self, decision: Decision) -> MessageLimitError {
        (self.config.rules).denied(
            &Head::from(&self.head),
            decision.verdicts(),
            &decision,
            &self.found,
        );
        let reason = decision.reason().unwrap_or(Reason::StoreFailed);
        let error = MessageLimitError::new(reason, decision.retry_after());
        #[cfg(feature = "tonic")]
        let error = error.with_status(tonic::Status::from_header_map(&self.trailers(&decision)));
        let before = std::mem::replace(&mut *self.end(), End::Denied(Arc::new(decision)));
        if let End::Open(Some(waker)) = before {
            waker.wake();
        }
        error
    }

    /// The decision that denied a message of the call, if any.
    pub(super) fn denied(&self) -> Option<Arc<Decision>> {
        match &*self.end() {
            End::Open(_) => None,
            End::Denied(decision) => Some(Arc::clone(decision)),
        }
    }

    /// The same; wakes the task once there is one.
    pub(super) fn poll_denied(&self, cx: &Context<'_>) -> Poll<Arc<Decision>> {
        match &mut *self.end() {
            End::Denied(decision) => Poll::Ready(Arc::clone(decision)),
            End::Open(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            End::Open(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The response to a denied call, if the inner service has not responded yet.
    pub(super) fn response(&self, decision: &Decision) -> Response<Bytes> {
        response(&self.config, &self.denial(decision))
    }

    /// The trailers of a response that has begun.
    pub(super) fn trailers(&self, decision: &Decision) -> HeaderMap {
        self.config.responses.trailers(&self.denial(decision))
    }

    fn denial<'a>(&'a self, decision: &'a Decision) -> Denial<'a> {
        denial(&self.config, Head::from(&self.head), decision, &self.checks)
    }
}

tollgate_core::debug_fields!(Call, it => denied: it.denied().is_some());

/// The parts of a head that a gRPC denial depends on, or all of its fields, where an application is told of it.
fn for_denial(head: &Head<'_>, is_told: bool) -> request::Parts {
    if is_told {
        return head.to_parts(head.headers.clone());
    }
    let mut headers = HeaderMap::new();
    for name in [header::CONTENT_TYPE, header::ACCEPT] {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    head.to_parts(headers)
}
