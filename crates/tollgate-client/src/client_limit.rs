//! The client's own limit.

use std::sync::Arc;

use http::request::Parts;
use tollgate_core::{Check, Limiter, LiveLimiter, Rule, RuleError, RuleErrorKind, store::Checks};
use tower::BoxError;

type ChecksFn = dyn Fn(&Limiter, &Parts) -> Result<Checks, BoxError> + Send + Sync;

/// Rules on a store, and what each request counts against. It keeps the names of its rules in use.
#[derive(Clone)]
pub(crate) struct ClientLimit {
    limiter: LiveLimiter,
    checks: Arc<ChecksFn>,
}

/// The same for one request: the rules that are in force when it begins.
pub(crate) struct RequestLimit {
    /// It does not keep its rule names in use: requests in flight hold it.
    pub(crate) limiter: Limiter,
    checks: Arc<ChecksFn>,
}

impl ClientLimit {
    pub(crate) fn new<C, E>(
        limiter: LiveLimiter,
        checks: impl Fn(&Limiter, &Parts) -> Result<C, E> + Send + Sync + 'static,
    ) -> Result<Self, RuleError>
    where
        C: IntoIterator<Item = Check>,
        E: Into<BoxError>,
    {
        let own = limiter.limiter();
        if let Some(rule) = own.rules().rules().iter().find(|rule| rule.has_slots()) {
            return Err(refuse_slots(rule));
        }
        Ok(Self {
            limiter,
            checks: Arc::new(move |limiter, head| match checks(limiter, head) {
                Ok(checks) => Ok(checks.into_iter().collect()),
                Err(error) => Err(error.into()),
            }),
        })
    }

    /// The limit of a request that begins now.
    pub(crate) fn of_request(&self) -> RequestLimit {
        RequestLimit {
            limiter: self.limiter.limiter().unregistered(),
            checks: Arc::clone(&self.checks),
        }
    }
}

impl RequestLimit {
    pub(crate) fn checks(&self, head: &Parts) -> Result<Checks, BoxError> {
        let checks = (self.checks)(&self.limiter, head)?;
        match checks.iter().find_map(|check| self.rule_of_slots(check)) {
            Some(rule) => Err(refuse_slots(rule).into()),
            None => Ok(checks),
        }
    }

    fn rule_of_slots(&self, check: &Check) -> Option<&Rule> {
        let rule = self.limiter.rules().rules().get(usize::from(check.rule()));
        rule.filter(|rule| rule.has_slots())
    }
}

/// The layer counts requests when they are sent. Their slots would be free again while they run.
fn refuse_slots(rule: &Rule) -> RuleError {
    RuleError::new(
        RuleErrorKind::Quota,
        rule.name(),
        "the layer does not see when a response has been read, so it cannot hold slots; put this rule into a limiter of its \
         own, acquire it around the call, and hold the ticket until the work is done, or take tower's ConcurrencyLimit",
    )
}

tollgate_core::debug_fields!(ClientLimit, it => limiter: it.limiter);
