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

/// What one request counts against, by the rules that are in force when it begins.
pub(crate) struct RequestLimit {
    /// It does not keep its rule names in use: requests in flight hold it.
    pub(crate) limiter: Limiter,
    pub(crate) checks: Checks,
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
        refuse_slots(limiter.limiter().rules().rules())?;
        Ok(Self {
            limiter,
            checks: Arc::new(move |limiter, head| match checks(limiter, head) {
                Ok(checks) => Ok(checks.into_iter().collect()),
                Err(error) => Err(error.into()),
            }),
        })
    }

    /// What makes the limit of a request that begins now, when its response is first polled. `None`: it counts against nothing.
    pub(crate) fn of_request(
        &self,
    ) -> impl FnOnce(&Parts) -> Result<Option<RequestLimit>, BoxError> + use<> {
        let limiter = self.limiter.limiter().unregistered();
        let checks_of = Arc::clone(&self.checks);
        move |head| {
            let checks = checks_of(&limiter, head)?;
            let rules = limiter.rules().rules();
            refuse_slots(
                checks
                    .iter()
                    .flat_map(|check| rules.get(usize::from(check.rule()))),
            )?;
            Ok((!checks.is_empty()).then_some(RequestLimit { limiter, checks }))
        }
    }
}

/// The layer counts requests when they are sent. Their slots would be free again while they run.
fn refuse_slots<'r>(rules: impl IntoIterator<Item = &'r Rule>) -> Result<(), RuleError> {
    match rules.into_iter().find(|rule| rule.has_slots()) {
        None => Ok(()),
        Some(rule) => Err(RuleError::new(
            RuleErrorKind::Quota,
            rule.name(),
            "the layer does not see when a response has been read, so it cannot hold slots; put this rule into a limiter of its \
             own, acquire it around the call, and hold the ticket until the work is done, or take tower's ConcurrencyLimit",
        )),
    }
}

tollgate_core::debug_fields!(ClientLimit, it => limiter: it.limiter);
