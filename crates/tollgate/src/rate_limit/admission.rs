//! Admissions: what a handler can read and ask.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Response, request};
use tollgate_core::{
    AlgorithmKind, Check, Checks, Decision, Key, Outcome, Rule, Ticket, UnknownName, Verdict,
};

use crate::rate_limit::config::Config;

/// How a request was admitted: the decision, and more to ask. In the request's extensions after
/// [`RateLimitLayer::attach`](crate::RateLimitLayer::attach), and where a rule is left to
/// [handlers](crate::Rule::by_handler). With the feature `axum` it is an extractor.
///
/// Where several layers wrap a handler, it is the innermost one's.
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
    /// The request's head without extensions, for rejections; where a handler may ask.
    head: Option<request::Parts>,
    /// One decision for each rule, the one that leaves least. `None` once the client has been told.
    later: Mutex<Option<Vec<Decision>>>,
}

/// A rule's verdict with what the rule says of itself.
#[derive(Clone, Copy, Debug)]
pub struct RuleVerdict<'a> {
    rule: &'a Rule,
    verdict: &'a Verdict,
}

impl<'a> RuleVerdict<'a> {
    pub(crate) fn new(rule: &'a Rule, verdict: &'a Verdict) -> Self {
        Self { rule, verdict }
    }

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

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> AlgorithmKind {
        self.rule.quota_of(self.verdict.plan()).algorithm()
    }

    /// The limit in units.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.rule.quota_of(self.verdict.plan()).limit()
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &'a Rule {
        self.rule
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
        config: Arc<Config>,
        decision: Decision,
        checks: Checks,
        head: Option<request::Parts>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                config,
                decision,
                checks,
                ticket_taken: AtomicBool::new(false),
                head,
                later: Mutex::new(Some(Vec::new())),
            }),
        }
    }

    /// The decision that let the request in.
    #[must_use]
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
            .filter_map(|verdict| Some(RuleVerdict::new(rules.get(verdict.rule())?, verdict)))
    }

    /// The verdict of the rule or threshold with this name, if it was asked.
    #[must_use]
    pub fn verdict(&self, name: &str) -> Option<RuleVerdict<'_>> {
        self.verdicts().find(|verdict| verdict.name() == name)
    }

    /// What the request holds of the rules that admitted it: to settle to the real cost, or to give back.
    ///
    /// The first call gets it. The tickets of later calls, on clones too, hold nothing, so that nothing is given back twice.
    pub fn ticket(&self) -> Ticket {
        let shared = &*self.shared;
        let checks: &[Check] = if shared.ticket_taken.swap(true, Ordering::Relaxed) {
            &[]
        } else {
            &shared.checks
        };
        shared.config.rules.limiter.ticket(checks, &shared.decision)
    }

    /// Gives back what the request holds, unless somebody has taken the ticket for it: then that one says what becomes of it.
    pub(crate) fn give_back(&self) {
        let shared = &*self.shared;
        if !shared.ticket_taken.swap(true, Ordering::Relaxed) {
            let rules = &shared.config.rules;
            rules.give_back(&shared.checks, &shared.decision);
        }
    }

    /// Asks a rule that was left to the handler ([`Rule::by_handler`](crate::Rule::by_handler)), at its fixed cost: a log-in
    /// by account, where the account is in the body.
    ///
    /// The client is told of this rule's budget with the others, whatever the handler answers.
    ///
    /// # Errors
    ///
    /// [`Denied`], which holds the layer's rejection: return it from the handler.
    ///
    /// Also where no rule of this name is left to handlers: nothing passes unlimited by a misspelling. The response is
    /// then 500, and the message, with the names that there are, an event at error level (without the feature
    /// `tracing`, a line on the standard error).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not give back what was taken.
    pub async fn acquire(&self, rule: &str, key: &Key) -> Result<Decision, Denied> {
        let (_, decision) = self.ask(rule, None, key).await?;
        Ok(decision)
    }

    /// [`acquire`](Self::acquire) at another cost in units.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_cost(&self, rule: &str, cost: u64, key: &Key) -> Result<Decision, Denied> {
        let (_, decision) = self.ask(rule, Some(cost), key).await?;
        Ok(decision)
    }

    /// [`acquire`](Self::acquire), and the ticket for what it took: to give back what turned out not to count.
    ///
    /// Units that are given back after the work are taken before it: of many requests at the same time no more pass than the
    /// rule allows. So where only failures are to count, take first, and give back on success.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_ticket(&self, rule: &str, key: &Key) -> Result<Ticket, Denied> {
        let (check, decision) = self.ask(rule, None, key).await?;
        let limiter = &self.shared.config.rules.limiter;
        Ok(limiter.ticket(&[check], &decision))
    }

    async fn ask(
        &self,
        name: &str,
        cost: Option<u64>,
        key: &Key,
    ) -> Result<(Check, Decision), Denied> {
        let shared = &*self.shared;
        let config = &*shared.config;
        let Some((number, rule)) = config.rules.in_handler(name) else {
            let unknown =
                UnknownName::new("rule for handlers", name, config.rules.names_in_handler());
            config.rules.observer.wrong_name(&unknown);
            return Err(Denied::misconfigured());
        };
        let cost = cost.unwrap_or_else(|| rule.rule.fixed_cost());
        let check = config.rules.limiter.check_at(number, key.as_ref(), cost);
        let timer = crate::observe::Timer::start();
        let decision = config.rules.limiter.acquire(&[check]).await;
        let asked = Checks::from_slice(&[check]);
        config.rules.observer.decided(
            config.rules.limiter.rule_store().as_ref(),
            &asked,
            &decision,
            timer,
        );
        shared.remember(&decision);
        if decision.is_allowed() {
            return Ok((check, decision));
        }
        let response = match &shared.head {
            Some(head) => config.deny_without_budget(head, &decision, check.key().bits() as u64),
            // There is always a head where there are rules for handlers.
            None => Response::new(Bytes::new()),
        };
        Err(Denied(Box::new(Rejected { decision, response })))
    }

    /// What the handler has asked since.
    pub(crate) fn later(&self) -> Vec<Decision> {
        let mut later = self
            .shared
            .later
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        later.take().unwrap_or_default()
    }
}

impl Shared {
    /// Keeps what the client has still to be told: a handler may ask for each message of a long body or socket.
    fn remember(&self, decision: &Decision) {
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(later), Some(new)) = (later.as_mut(), decision.verdicts().first()) else {
            return;
        };
        let of_rule =
            |old: &&mut Decision| old.verdicts().first().map(Verdict::rule) == Some(new.rule());
        match later.iter_mut().find(of_rule) {
            Some(old) if leaves(&old.verdicts()[0]) < leaves(new) => {}
            Some(old) => old.clone_from(decision),
            None => later.push(decision.clone()),
        }
    }
}

/// How little a verdict leaves its client; the least comes first.
pub(crate) fn leaves(verdict: &Verdict) -> (bool, bool, u64) {
    (
        !verdict.has_numbers(),
        verdict.outcome() != Outcome::Deny,
        verdict.remaining(),
    )
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("decision", &self.shared.decision)
            .finish_non_exhaustive()
    }
}

/// A denial that a handler has met: the decision, and the layer's rejection to return.
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
            decision: Decision::without_key(),
            response,
        }))
    }

    /// The decision.
    #[must_use]
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

/// As it is displayed: it comes out of `main`.
impl fmt::Debug for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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
                "there is no `tollgate::Admission`: add `.attach()` to the `RateLimitLayer` around this handler",
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
        /// The denial as the layer tells it, so that `?` works in a handler.
        fn from(denied: Denied) -> Self {
            let response = denied.into_response();
            Self::from_header_map(response.headers()).unwrap_or_else(|| {
                // Not a gRPC call, or no rule of that name: the layer has said which.
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

    #[tokio::test]
    async fn a_handler_that_asks_for_ever_keeps_one_decision_a_rule() {
        let rules = ["messages", "bytes"]
            .map(|name| crate::Rule::new(name, Quota::fixed_window(5, MINUTE)).by_handler());
        let config = Config::new(&[], &MemoryStore::new(), rules.into()).expect("valid rules");
        let (head, ()) = http::Request::new(()).into_parts();
        let admission = Admission::new(
            Arc::new(config),
            Decision::unlimited(0),
            Checks::new(),
            Some(head),
        );
        for _ in 0..100 {
            for rule in ["messages", "bytes"] {
                let _ = admission.acquire(rule, &Key::shared()).await;
            }
        }
        let later = admission.later();
        assert_eq!(later.len(), 2);
        assert!(later.iter().all(|decision| !decision.is_allowed()));
        // The client has been told; what comes after that on the same connection is not kept.
        let _ = admission.acquire("messages", &Key::shared()).await;
        assert!(admission.later().is_empty());
    }
}
