//! A call whose messages are limited.

use std::{
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Response, header, request};
use tollgate_core::{
    Decision, Key, Reason,
    store::Checks,
    sync::{Mutex, lock},
};

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
    /// The decision that denied a message, if any.
    denied: OnceLock<Decision>,
    /// That of the response, which ends then.
    waker: Mutex<Option<Waker>>,
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
            denied: OnceLock::new(),
            waker: Mutex::default(),
        })
    }

    /// Ends the call: the client gets the denial, and the handler this error.
    pub(super) fn deny(&self, decision: Decision) -> MessageLimitError {
        (self.config.rules).denied(
            &Head::from(&self.head),
            decision.verdicts(),
            &decision,
            &self.found,
        );
        let error = MessageLimitError {
            reason: decision.reason().unwrap_or(Reason::StoreFailed),
            retry_after: decision.retry_after(),
            #[cfg(feature = "tonic")]
            status: tonic::Status::from_header_map(&self.trailers(&decision)).map(Box::new),
        };
        // Before the waker is taken: a response that has left none until then finds it.
        self.denied.get_or_init(|| decision);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            waker.wake();
        }
        error
    }

    /// The decision that denied a message of the call, if any.
    pub(super) fn denied(&self) -> Option<&Decision> {
        self.denied.get()
    }

    /// The same; wakes the task once there is one.
    pub(super) fn poll_denied(&self, cx: &Context<'_>) -> Poll<&Decision> {
        match &mut *lock(&self.waker) {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        self.denied().map_or(Poll::Pending, Poll::Ready)
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
