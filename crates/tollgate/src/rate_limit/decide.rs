//! How a request is judged by its head.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header, request};
use tollgate_core::{Check, Checks, Decision, Pending, Step};

use crate::{
    observe::Timer,
    rate_limit::config::Config,
    rate_limit::request_rules::{Asked, Refusal},
};

/// What was decided about a request.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// It passes, and there is nothing to tell.
    Pass,
    /// It passes; what was asked is kept for a handler, and to be given back.
    Allow(Decision),
    /// It does not pass, and the answer was made.
    Rejected(Box<Response<Bytes>>),
    /// It does not pass, and the answer is still to be made from its head, which was not at hand.
    Deny(Box<(Decision, u64)>),
    /// A rule rejects it because it has no key; the answer is still to be made.
    Refuse(Box<Refusal>),
}

/// A judgement, at once or later.
#[derive(Debug)]
pub(crate) enum Judged {
    /// About the checks that were asked.
    Now(Judgement),
    /// About these checks.
    Later(Pending<(Judgement, Checks)>),
}

impl Config {
    /// Decides about a request by its head, and by whether it brings a body. Nothing was told to anybody yet.
    ///
    /// `asked` is empty before. It is the caller's because it is large, and so is moved no more than once.
    #[inline(always)]
    pub(crate) fn judge(
        self: &Arc<Self>,
        head: &request::Parts,
        has_body: bool,
        asked: &mut Asked,
    ) -> Judged {
        let timer = Timer::start();
        if !self.count_preflight && is_preflight(head, has_body) {
            self.rules.observer.preflight();
            return Judged::Now(Judgement::Pass);
        }
        if self.applied.before(head) {
            self.rules.observer.applied_twice();
        }
        if let Err(refusal) = self.rules.ask(head, asked) {
            return Judged::Now(Judgement::Rejected(Box::new(self.refuse(head, &refusal))));
        }
        if asked.waits() {
            let asked = std::mem::take(asked);
            return Judged::Later(Pending::new(Arc::clone(self).judge_later(asked, timer)));
        }
        if asked.checks.is_empty() {
            return Judged::Now(Judgement::Pass);
        }
        match self.rules.limiter.acquire(&asked.checks) {
            Step::Ready(decision) => {
                self.observe(&asked.checks, &decision, timer);
                Judged::Now(if decision.is_allowed() {
                    self.allow(decision)
                } else {
                    self.deny_at_once(head, &decision, &asked.checks)
                })
            }
            Step::Wait(answer) => {
                let (config, checks) = (Arc::clone(self), std::mem::take(&mut asked.checks));
                Judged::Later(Pending::new(async move {
                    (config.judgement(&checks, answer.await, timer), checks)
                }))
            }
        }
    }

    /// While everything lies at hand.
    #[inline(never)]
    fn deny_at_once(
        &self,
        head: &request::Parts,
        decision: &Decision,
        checks: &[Check],
    ) -> Judgement {
        let response = self.deny(head, decision, seed_of(checks));
        Judgement::Rejected(Box::new(response))
    }

    /// Judges a request whose keys are looked up.
    async fn judge_later(self: Arc<Self>, asked: Asked, timer: Timer) -> (Judgement, Checks) {
        let checks = match self.rules.clone().look_up(asked).await {
            Ok(checks) if checks.is_empty() => return (Judgement::Pass, checks),
            Ok(checks) => checks,
            Err(refusal) => return (Judgement::Refuse(refusal), Checks::new()),
        };
        let decision = self.rules.limiter.acquire(&checks).await;
        (self.judgement(&checks, decision, timer), checks)
    }

    /// The judgement of a request whose head is not at hand.
    fn judgement(&self, checks: &Checks, decision: Decision, timer: Timer) -> Judgement {
        self.observe(checks, &decision, timer);
        if decision.is_allowed() {
            self.allow(decision)
        } else {
            Judgement::Deny(Box::new((decision, seed_of(checks))))
        }
    }

    #[inline(always)]
    fn allow(&self, decision: Decision) -> Judgement {
        let is_done_with = !self.tells_budget() && !self.rules.gives_back;
        if !self.attach && (is_done_with || decision.verdicts().is_empty()) {
            return Judgement::Pass;
        }
        Judgement::Allow(decision)
    }

    #[inline]
    fn observe(&self, checks: &Checks, decision: &Decision, timer: Timer) {
        self.rules.observer.decided(
            self.rules.limiter.rule_store().as_ref(),
            checks,
            decision,
            timer,
        );
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
