//! The admission of a request: what a handler reads and checks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, request};
use tollgate_core::{
    Check, Decision, Key, Outcome, Reason, Retry, Rule, Ticket, Verdict,
    observe::Timer,
    store::Checks,
    sync::{Mutex, lock},
};

use crate::{
    head::Head,
    inner_response::InnerResponse,
    protocol::Protocol,
    rate_limit::{
        config::Config,
        decide::acquire,
        deny::{denial, response_without_quota},
        request_rules::RequestRules,
    },
    rejection::Denial,
};

/// The admission of a request: the decision, and the rules that the handler checks itself. It is in the request's extensions
/// with [`RateLimitLayer::attach_decision`](crate::RateLimitLayer::attach_decision), or if the layer has a rule
/// [for handlers](crate::Rule::by_handler). With the feature `axum` of this crate it is an extractor; without it, axum says of a
/// handler with this argument that `Handler` is not implemented.
///
/// If several layers wrap a handler, this is the admission of the innermost one.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

struct Shared {
    config: Arc<Config>,
    decision: Decision,
    checks: Checks,
    ticket_taken: AtomicBool,
    /// The request's head without extensions, for rejections, if the layer has rules for handlers.
    head: Option<request::Parts>,
    /// The strictest per rule that the handler has checked. `None` once the header fields are written.
    in_handler: Mutex<Option<Vec<HandlerVerdict>>>,
}

/// The verdict of a check by the handler, and whether its decision has allowed it.
pub(crate) struct HandlerVerdict {
    pub(crate) verdict: Verdict,
    pub(crate) is_allowed: bool,
}

/// A verdict with its rule.
#[derive(Clone, Copy, Debug)]
pub struct RuleVerdict<'a> {
    rule: &'a Rule,
    verdict: &'a Verdict,
}

impl<'a> RuleVerdict<'a> {
    /// The rule's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.rule.name()
    }

    /// The name of the plan that was chosen; `None` is the rule's own quota.
    #[must_use]
    pub fn plan(&self) -> Option<&'a str> {
        self.rule.plan_name(self.verdict.plan())
    }

    /// The limit in units.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.rule.quota_under(self.verdict.plan()).limit()
    }
}

impl std::ops::Deref for RuleVerdict<'_> {
    type Target = Verdict;

    fn deref(&self) -> &Verdict {
        self.verdict
    }
}

impl Admission {
    pub(crate) fn new(
        config: &Arc<Config>,
        checks: &[Check],
        decision: &Decision,
        head: &Head<'_>,
    ) -> Self {
        let for_handler = config.rules.is_checked_in_handler;
        let shared = Arc::new(Shared {
            config: Arc::clone(config),
            // It shares the slots.
            decision: decision.clone(),
            checks: Checks::from_slice(checks),
            ticket_taken: AtomicBool::new(false),
            head: for_handler.then(|| head.to_parts(head.headers.clone())),
            in_handler: Mutex::new(Some(Vec::new())),
        });
        Self { shared }
    }

    /// There will be no response any more, or it has taken the slots. They go back also if a handler has kept the admission. A request
    /// that is not settled stays counted, towards a block too.
    pub(crate) fn end(&self) {
        let (decision, rules) = (&self.shared.decision, &self.shared.config.rules);
        drop(decision.take_slots());
        if rules.counts_settled && self.claim_ticket() {
            let limiter = &rules.limiter;
            drop(limiter.ticket_with_shadows(&self.shared.checks, decision));
        }
    }

    /// The decision that let the request in.
    pub fn decision(&self) -> &Decision {
        &self.shared.decision
    }

    /// The verdicts with their rules, thresholds and shadows included.
    pub fn verdicts(&self) -> impl Iterator<Item = RuleVerdict<'_>> {
        let rules = self.shared.config.rules.set().rules();
        self.shared
            .decision
            .verdicts()
            .iter()
            .filter_map(|verdict| {
                let rule = rules.get(verdict.rule())?;
                Some(RuleVerdict { rule, verdict })
            })
    }

    /// The verdict of the rule or threshold with this name, if it was checked.
    #[must_use]
    pub fn verdict(&self, name: &str) -> Option<RuleVerdict<'_>> {
        self.verdicts().find(|verdict| verdict.name() == name)
    }

    /// The ticket of the request: to settle to the actual cost, or to refund. The [slots](crate::Quota::concurrent) of the request
    /// are then held by the ticket instead of the response: move it to what outlives the response, as an upgraded connection does.
    ///
    /// The first call gets it, before the response is returned. Tickets of later calls, on clones too, hold nothing, so that nothing is refunded twice.
    pub fn ticket(&self) -> Ticket {
        let shared = &*self.shared;
        let checks: &[Check] = if self.claim_ticket() {
            &shared.checks
        } else {
            &[]
        };
        shared.config.rules.limiter.ticket(checks, &shared.decision)
    }

    /// Takes the ticket for the layer. `false` if it was taken.
    pub(crate) fn claim_ticket(&self) -> bool {
        !self.shared.ticket_taken.swap(true, Ordering::Relaxed)
    }

    /// Checks a rule for handlers ([`Rule::by_handler`](crate::Rule::by_handler)) at its fixed cost: log-ins per account, say,
    /// if the account is in the body.
    ///
    /// The response's quota fields include this rule as it is now, whatever the handler returns or gives back. The decision holds
    /// the slots of a rule with [slots](crate::Quota::concurrent): keep it as long as the work runs.
    ///
    /// # Errors
    ///
    /// [`Denied`], which holds the layer's rejection: return it from the handler.
    ///
    /// Also if the layer has no rule of this name for handlers, so that a misspelling does not disable a limit. The response is
    /// then a 500, and an event at error level lists the names that exist (without the feature `tracing`, a line on standard
    /// error).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future refunds nothing.
    pub async fn acquire(&self, rule: &str, key: &Key) -> Result<Decision, Denied> {
        let (_, decision) = self.check(rule, None, key).await?;
        Ok(decision)
    }

    /// As [`acquire`](Self::acquire), but returns a ticket that can refund the units. It also holds the slots of a rule with
    /// [slots](crate::Quota::concurrent): they are free once it is settled, cancelled or dropped.
    ///
    /// To count failures only, acquire before the work and refund on success: then concurrent requests cannot exceed the
    /// limit.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_ticket(&self, rule: &str, key: &Key) -> Result<Ticket, Denied> {
        let (check, decision) = self.check(rule, None, key).await?;
        let limiter = &self.shared.config.rules.limiter;
        Ok(limiter.ticket(&[check], &decision))
    }

    /// [`acquire_ticket`](Self::acquire_ticket) at another cost in units: reserve what the body asks for, and settle what it took. Its
    /// denial counts "units", unless the rule [names them](crate::Rule::unit).
    ///
    /// ```
    /// # #[cfg(not(feature = "axum"))] fn main() {}
    /// # #[cfg(feature = "axum")] fn main() {
    /// use tollgate::{Admission, Denied, Key};
    ///
    /// // A rule by_handler(), in tokens. The body says how many at most.
    /// async fn complete(admission: Admission, body: String) -> Result<String, Denied> {
    ///     let max_tokens = body.parse().unwrap_or(1_000);
    ///     let key = Key::of("account-7");
    ///     let ticket = admission.acquire_cost_ticket("tokens", max_tokens, &key).await?;
    ///     let (answer, used) = ("42".to_owned(), 2);
    ///     ticket.settle(used);
    ///     Ok(answer)
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    #[doc(alias = "acquire_cost")]
    pub async fn acquire_cost_ticket(
        &self,
        rule: &str,
        cost: u64,
        key: &Key,
    ) -> Result<Ticket, Denied> {
        let (check, decision) = self.check(rule, Some(cost), key).await?;
        let limiter = &self.shared.config.rules.limiter;
        Ok(limiter.ticket(&[check], &decision))
    }

    async fn check(
        &self,
        name: &str,
        cost: Option<u64>,
        key: &Key,
    ) -> Result<(Check, Decision), Denied> {
        let shared = &*self.shared;
        let config = &*shared.config;
        let (number, rule) = config.rules.for_handlers(name).map_err(|unknown| {
            config.rules.observer.wrong_name(&unknown);
            Denied::misconfigured()
        })?;
        let units = cost.unwrap_or_else(|| rule.fixed_cost());
        let check = config.rules.limiter.check_at(number, key.as_ref(), units);
        let timer = Timer::start();
        let decision = acquire(config, &[check]).await;
        config.rules.limiter.report(&[check], &decision, timer, "");
        shared.remember(&decision);
        if decision.is_allowed() {
            return Ok((check, decision));
        }
        let status = |head| denial(config, Head::from(head), &decision, &[check]).status;
        let others = shared
            .head
            .as_ref()
            .map(|head| shared.passes_again(status(head)));
        let decision = decision.retry_no_sooner(others.map_or(Retry::Now, Retry::After));
        let response = match &shared.head {
            Some(head) => {
                let found = [(number, key.clone())];
                config
                    .rules
                    .denied(&Head::from(head), decision.verdicts(), &decision, &found);
                let denial = Denial {
                    in_units: cost.is_some(),
                    ..denial(config, Head::from(head), &decision, &[check])
                };
                response_without_quota(config, &denial)
            }
            // There is always a head if there are rules for handlers.
            None => Response::new(Bytes::new()),
        };
        Err(Denied(Box::new(Rejected { decision, response })))
    }

    /// The verdicts of the handler's own checks; once.
    pub(crate) fn take_verdicts(&self) -> Vec<HandlerVerdict> {
        lock(&self.shared.in_handler).take().unwrap_or_default()
    }
}

impl Shared {
    /// How long the request does not pass again by what it has taken before a denial of the handler, which has this status.
    fn passes_again(&self, denied: StatusCode) -> Duration {
        let (rules, fields) = (&self.config.rules, HeaderMap::new());
        let response = InnerResponse::of(denied, &fields, Protocol::Http);
        let keeps = |check: &Check| {
            let cost = rules.of_rule(check.rule()).cost_after(&response);
            cost.is_none_or(|cost| cost >= check.cost())
        };
        let known = lock(&self.in_handler);
        let in_handler = known.as_deref().unwrap_or_default();
        passes_again(rules, &self.checks, &self.decision, in_handler, keeps)
    }

    /// Keeps the strictest verdict per rule for the header fields: a handler may check each message of a long body.
    fn remember(&self, decision: &Decision) {
        let mut verdicts = lock(&self.in_handler);
        let (Some(verdicts), Some(verdict)) = (verdicts.as_mut(), decision.verdicts().first())
        else {
            return;
        };
        let new = HandlerVerdict {
            verdict: *verdict,
            is_allowed: decision.is_allowed(),
        };
        let mut known = verdicts.iter_mut();
        match known.find(|old| old.verdict.rule() == verdict.rule()) {
            Some(old) if strictness(&old.verdict) < strictness(verdict) => {}
            Some(old) => *old = new,
            None => verdicts.push(new),
        }
    }
}

/// How long until a request passes again, by rules that have let it pass: their verdicts, and those of the handler's own checks. As far
/// as it `keeps` the units: with the same id it passes at once, slots go back when it ends, and a queue takes it earlier.
pub(crate) fn passes_again(
    rules: &RequestRules,
    checks: &[Check],
    decision: &Decision,
    in_handler: &[HandlerVerdict],
    keeps: impl Fn(&Check) -> bool,
) -> Duration {
    let own = checks.iter().zip(decision.verdicts());
    let kept = own.filter(|(check, _)| !check.has_id() && keeps(check));
    let verdicts = kept.map(|(_, verdict)| verdict);
    let delays = verdicts
        .chain(in_handler.iter().map(|it| &it.verdict))
        .filter(|it| it.outcome() == Outcome::Allow && !it.is_of_slots())
        .filter_map(|verdict| {
            let enforced = rules.set().enforces(verdict.rule());
            let rule = rules
                .set()
                .rules()
                .get(verdict.rule())
                .filter(|_| enforced)?;
            let waits = rule.at_most_wait().unwrap_or_default();
            Some(verdict.retry().delay()?.saturating_sub(waits))
        });
    delays.max().unwrap_or_default()
}

/// Sorts verdicts by what they leave, least first.
pub(crate) fn strictness(verdict: &Verdict) -> (bool, bool, u64) {
    (
        !verdict.has_numbers(),
        verdict.outcome() != Outcome::Deny,
        verdict.remaining(),
    )
}

tollgate_core::debug_fields!(Admission, it => decision: it.shared.decision);

/// A denial of a handler's own check: the decision, and the layer's rejection to return.
///
/// With the feature `axum` it is a response, and with the feature `tonic` it becomes a `tonic::Status`, so that `?` works in
/// a handler.
pub struct Denied(Box<Rejected>);

#[derive(Debug)]
struct Rejected {
    decision: Decision,
    response: Response<Bytes>,
}

impl Denied {
    fn misconfigured() -> Self {
        let mut response = Response::new(Bytes::from_static(
            b"the rate limiter is not set up for this route",
        ));
        *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        Self(Box::new(Rejected {
            decision: Decision::without_key(Reason::NoKey),
            response,
        }))
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        &self.0.decision
    }

    /// The layer's rejection.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        self.0.response
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rate limit is exceeded")
    }
}

// The same text as `Display`, because it is what `main` prints.
tollgate_core::debug_fields!(Denied as Display);

impl std::error::Error for Denied {}

#[cfg(feature = "axum")]
mod with_axum {
    use std::convert::Infallible;

    use axum::{
        body::Body,
        extract::{FromRequestParts, OptionalFromRequestParts},
        response::{IntoResponse, Response},
    };
    use http::{StatusCode, request::Parts};

    use super::{Admission, Denied};

    impl<S: Sync> FromRequestParts<S> for Admission {
        type Rejection = (StatusCode, &'static str);

        async fn from_request_parts(
            parts: &mut Parts,
            _state: &S,
        ) -> Result<Self, Self::Rejection> {
            parts.extensions.get().cloned().ok_or((
                StatusCode::INTERNAL_SERVER_ERROR,
                "there is no `tollgate::Admission`: add `.attach_decision()` to the `RateLimitLayer` around this handler",
            ))
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Admission {
        type Rejection = Infallible;

        async fn from_request_parts(
            parts: &mut Parts,
            _state: &S,
        ) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get().cloned())
        }
    }

    impl IntoResponse for Denied {
        fn into_response(self) -> Response {
            self.0.response.map(Body::from)
        }
    }
}

#[cfg(feature = "tonic")]
mod with_tonic {
    use tonic::{Code, Status};

    use super::Denied;

    impl From<Denied> for Status {
        /// The denial as the layer would send it.
        fn from(denied: Denied) -> Self {
            let response = denied.into_response();
            Self::from_header_map(response.headers()).unwrap_or_else(|| {
                // Not a gRPC call, or no rule of that name, which was logged.
                Self::new(
                    Code::Internal,
                    "the rate limiter is not set up for this method",
                )
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MINUTE, MemoryStore, Quota};

    use super::*;
    use crate::rate_limit::{request_rules::RequestRules, settings::Settings};

    #[tokio::test]
    async fn many_checks_of_a_handler_keep_one_verdict_per_rule() {
        let list = ["messages", "bytes"]
            .map(|name| crate::Rule::new(name, Quota::fixed_window(5, MINUTE)).by_handler());
        let rules = RequestRules::new(Arc::new(MemoryStore::new()), list.into());
        let config = Config::new(rules.expect("valid rules"), Settings::default());
        let admission = Admission::new(
            &Arc::new(config),
            &[],
            &Decision::unlimited(0),
            &Head::from(&http::Request::new(())),
        );
        for _ in 0..100 {
            for rule in ["messages", "bytes"] {
                let _ = admission.acquire(rule, &Key::shared()).await;
            }
        }
        let verdicts = admission.take_verdicts();
        assert_eq!(verdicts.len(), 2);
        assert!(verdicts.iter().all(|verdict| !verdict.is_allowed));
        // The header fields are written, so later verdicts are not kept.
        let _ = admission.acquire("messages", &Key::shared()).await;
        assert!(admission.take_verdicts().is_empty());
    }
}
