//! What the two directions of a call share.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header, request};
use tollgate_core::{Checks, Decision, Reason};

use crate::{
    message::error::{MessageLimitError, MessageLimitErrorKind},
    protocol::Spoken,
    rate_limit::config::Config,
    rate_limit::decide::seed_of,
};

/// How long a message waits for its turn. Not at all unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    #[cfg(feature = "tokio")]
    pub(super) up_to: Option<std::time::Duration>,
}

/// A call whose messages are limited. The request's body counts them; the response ends when they are denied.
pub(super) struct Call {
    pub(super) config: Arc<Config>,
    pub(super) patience: Patience,
    /// What a message costs, and whom.
    pub(super) checks: Checks,
    head: request::Parts,
    end: Mutex<End>,
}

/// Whether messages were denied.
enum End {
    /// Not yet. Who sends the response waits for it.
    Open(Option<Waker>),
    Denied(Arc<Decision>),
}

impl Call {
    pub(super) fn new(
        config: Arc<Config>,
        patience: Patience,
        checks: Checks,
        head: &request::Parts,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            patience,
            checks,
            head: answerable(head),
            end: Mutex::new(End::Open(None)),
        })
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spoken(&self) -> Spoken {
        self.config.protocol.of(&self.head)
    }

    /// Ends the call: the client gets the denial, the handler the error.
    pub(super) fn deny(&self, decision: Decision) -> MessageLimitError {
        let kind = match decision.reason() {
            Some(Reason::StoreFailed) | None => MessageLimitErrorKind::StoreFailed,
            Some(_) => MessageLimitErrorKind::Exceeded,
        };
        let error = MessageLimitError::new(kind, decision.retry_after());
        #[cfg(feature = "tonic")]
        let error = error.with_status(tonic::Status::from_header_map(&self.trailers(&decision)));
        let before = std::mem::replace(&mut *self.end(), End::Denied(Arc::new(decision)));
        if let End::Open(Some(waker)) = before {
            waker.wake();
        }
        error
    }

    /// The decision that denied messages of the call, if one did.
    pub(super) fn denied(&self) -> Option<Arc<Decision>> {
        match &*self.end() {
            End::Open(_) => None,
            End::Denied(decision) => Some(Arc::clone(decision)),
        }
    }

    /// The same; the task is woken once there is one.
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

    /// The answer to a call whose response has not begun.
    pub(super) fn response(&self, decision: &Decision) -> Response<Bytes> {
        self.config
            .deny(&self.head, decision, seed_of(&self.checks))
    }

    /// The end of a response that has begun.
    pub(super) fn trailers(&self, decision: &Decision) -> HeaderMap {
        self.config
            .deny_in_trailers(&self.head, decision, seed_of(&self.checks))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("denied", &self.denied().is_some())
            .finish_non_exhaustive()
    }
}

/// As much of a head as the answer in gRPC depends on.
fn answerable(head: &request::Parts) -> request::Parts {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.method = head.method.clone();
    copy.uri = head.uri.clone();
    copy.version = head.version;
    for name in [header::CONTENT_TYPE, header::ACCEPT] {
        if let Some(value) = head.headers.get(&name) {
            copy.headers.insert(name, value.clone());
        }
    }
    copy
}
