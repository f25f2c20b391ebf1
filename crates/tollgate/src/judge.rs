//! How a request is judged by its head.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header, request};
use tollgate_core::{Check, Checks, Decision, Pending, Step};

use crate::{
    config::Config,
    observe::Timer,
    request_rules::{Asked, Refusal},
};

/// What was decided about a request.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and a box would be an allocation for each request"
)]
pub(crate) enum Judgement {
    /// It passes, and there is nothing to tell.
    Pass,
    /// It passes; what was asked is kept for a handler, and to be given back.
    Allow { decision: Decision, checks: Checks },
    /// It does not pass, and the answer was made.
    Rejected(Box<Response<Bytes>>),
    /// It does not pass, and the answer is still to be made from its head, which was not at hand.
    Deny(Box<(Decision, u64)>),
    /// A rule rejects it because it has no key; the answer is still to be made.
    Refuse(Box<Refusal>),
}

impl Config {
    /// Decides about a request by its head, and by whether it brings a body. Nothing was told to anybody yet.
    #[inline]
    pub(crate) fn judge(
        self: &Arc<Self>,
        head: &request::Parts,
        has_body: bool,
    ) -> Step<Judgement> {
        let timer = Timer::start();
        if !self.count_preflight && is_preflight(head, has_body) {
            self.rules.observer.preflight();
            return Step::Ready(Judgement::Pass);
        }
        if self.applied.before(head) {
            self.rules.observer.applied_twice();
        }
        let mut asked = Asked::default();
        if let Err(refusal) = self.rules.ask(head, &mut asked) {
            return Step::Ready(Judgement::Rejected(Box::new(self.refuse(head, &refusal))));
        }
        if asked.waits() {
            return Step::Wait(Pending::new(Arc::clone(self).judge_later(asked, timer)));
        }
        if asked.checks.is_empty() {
            return Step::Ready(Judgement::Pass);
        }
        match self.rules.limiter.acquire(&asked.checks) {
            Step::Ready(decision) => {
                self.observe(&asked.checks, &decision, timer);
                Step::Ready(if decision.is_allowed() {
                    self.allow(asked.checks, decision)
                } else {
                    // At once, while everything lies at hand.
                    let response = self.deny(head, &decision, seed_of(&asked.checks));
                    Judgement::Rejected(Box::new(response))
                })
            }
            Step::Wait(answer) => {
                let config = Arc::clone(self);
                Step::Wait(Pending::new(async move {
                    config.judgement(asked.checks, answer.await, timer)
                }))
            }
        }
    }

    /// Judges a request whose keys are looked up.
    async fn judge_later(self: Arc<Self>, asked: Asked, timer: Timer) -> Judgement {
        let checks = match self.rules.clone().look_up(asked).await {
            Ok(checks) if checks.is_empty() => return Judgement::Pass,
            Ok(checks) => checks,
            Err(refusal) => return Judgement::Refuse(refusal),
        };
        let decision = self.rules.limiter.acquire(&checks).await;
        self.judgement(checks, decision, timer)
    }

    /// The judgement of a request whose head is not at hand.
    fn judgement(&self, checks: Checks, decision: Decision, timer: Timer) -> Judgement {
        self.observe(&checks, &decision, timer);
        if decision.is_allowed() {
            self.allow(checks, decision)
        } else {
            Judgement::Deny(Box::new((decision, seed_of(&checks))))
        }
    }

    #[inline]
    fn allow(&self, checks: Checks, decision: Decision) -> Judgement {
        let is_done_with = !self.tells_budget() && !self.rules.gives_back;
        if !self.attach && (is_done_with || decision.verdicts().is_empty()) {
            return Judgement::Pass;
        }
        Judgement::Allow { decision, checks }
    }

    #[inline]
    fn observe(&self, checks: &Checks, decision: &Decision, timer: Timer) {
        self.rules
            .observer
            .decided(self.rules.limiter.bound().as_ref(), checks, decision, timer);
    }
}

/// The same for the same client, and another for each: all keys count, since some may be everybody's.
pub(crate) fn seed_of(checks: &[Check]) -> u64 {
    checks.iter().fold(0, |seed: u64, check| {
        // Two rules by one key must not cancel each other out.
        seed.rotate_left(7) ^ check.key().bits() as u64
    })
}

/// Whether it is a CORS preflight, as browsers make them: without a body, and without the type of one. What brings either
/// may be work for a service that looks at no method.
pub(crate) fn is_preflight(head: &request::Parts, has_body: bool) -> bool {
    head.method == Method::OPTIONS
        && !has_body
        && head.headers.contains_key(header::ORIGIN)
        && head
            .headers
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && !head.headers.contains_key(header::CONTENT_TYPE)
}
