//! The client's own limit.

use std::{fmt, sync::Arc};

use http::request::Parts;
use tollgate_core::{Check, Checks, Decision, Limiter};
use tower::BoxError;

type ChecksFn = dyn Fn(&Limiter, &Parts) -> Result<Checks, BoxError> + Send + Sync;
pub(crate) type DecisionFn = dyn Fn(&[Check], &Decision) + Send + Sync;

/// Rules on a store, and what each request counts against.
#[derive(Clone)]
pub(crate) struct ClientLimit {
    /// It does not keep its rule names in use: requests in flight hold it.
    pub(crate) limiter: Limiter,
    checks: Arc<ChecksFn>,
}

impl ClientLimit {
    pub(crate) fn new<C, E>(
        limiter: &Limiter,
        checks: impl Fn(&Limiter, &Parts) -> Result<C, E> + Send + Sync + 'static,
    ) -> Self
    where
        C: IntoIterator<Item = Check>,
        E: Into<BoxError>,
    {
        Self {
            limiter: limiter.unregistered(),
            checks: Arc::new(move |limiter, head| match checks(limiter, head) {
                Ok(checks) => Ok(checks.into_iter().collect()),
                Err(error) => Err(error.into()),
            }),
        }
    }

    pub(crate) fn checks(&self, head: &Parts) -> Result<Checks, BoxError> {
        (self.checks)(&self.limiter, head)
    }
}

impl fmt::Debug for ClientLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.rules().fmt(f)
    }
}
