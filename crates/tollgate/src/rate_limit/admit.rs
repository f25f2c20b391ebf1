//! A request from its head to the response: what is decided about it, and what follows when its response comes.

use std::{future::ready, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use smallvec::SmallVec;
use tollgate_core::{Check, Decision, Key, Pending, Step, Verdict, observe::Timer, store::Checks};

use crate::{
    head::Head,
    header::{applies, server_timing},
    inner_response::InnerResponse,
    observe::Route,
    rate_limit::{
        admission::{Admission, strictness},
        at_end::AtEnd,
        config::Config,
        decide::{Asked, Progress, ask, attempt, jitter_seed, look_up, report, wait},
        deny::{FEW_RULES, QuotaHidden, deny, limit_size, reject},
        look_ups::LookUps,
        refund::Refund,
        request_rules::KnownChecks,
        settlement::{AtHead, Settlement},
        slow,
    },
};

/// A request with what was decided about it, until its response.
pub(crate) struct Admitted {
    config: Arc<Config>,
    checks: Checks,
    decision: Decision,
    /// If configured.
    admission: Option<Admission>,
    /// How long it has waited, if the response shows it. In a box, because it is rare.
    waited: Option<Box<Duration>>,
    /// Whether the request is marked to detect that these rules count it again.
    marked: bool,
    /// Whether it is to be counted towards a block if there is no response.
    uncounted: bool,
}

/// What follows from the head of a request.
pub(crate) enum Decided {
    /// It passes.
    Allowed,
    /// The same, and no rule asks about it.
    Unlimited,
    /// It does not.
    Answered(Answered),
    /// The store or a look-up of a key is in flight, or the request waits.
    Later(Pending<(Progress, KnownChecks)>),
}

/// A response in the place of the service's, which may be held back.
pub(crate) struct Answered {
    pub(crate) response: Response<Bytes>,
    pub(crate) held: Option<Pending<()>>,
}

impl Answered {
    pub(crate) fn at_once(response: Response<Bytes>) -> Self {
        let held = None;
        Self { response, held }
    }
}

/// The denial of a request.
pub(crate) fn answer_denied(
    config: &Config,
    head: &Head<'_>,
    decision: &Decision,
    checks: &[Check],
    found: &[(u16, Key)],
) -> Answered {
    let response = deny(config, head, decision, jitter_seed(checks), found);
    let held = slow::hold(config, head, decision, &response);
    Answered { response, held }
}

impl Admitted {
    #[inline]
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self::after(config, Checks::new(), Decision::unlimited(0), None)
    }

    /// A request that was decided, after it has waited so long.
    #[inline]
    pub(crate) fn after(
        config: Arc<Config>,
        checks: Checks,
        decision: Decision,
        waited: Option<Duration>,
    ) -> Self {
        Self {
            config,
            checks,
            decision,
            admission: None,
            waited: waited.map(Box::new),
            marked: false,
            uncounted: false,
        }
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Asks the rules about a request, and decides it as far as that needs no wait.
    pub(crate) fn decide(&mut self, head: &Head<'_>, has_body: bool, timer: Timer) -> Decided {
        let config = &self.config;
        let mut look_ups = LookUps::default();
        match ask(config, head, has_body, &mut self.checks, &mut look_ups) {
            Asked::Checks => {}
            Asked::Nothing if config.attach_decision => return Decided::Allowed,
            Asked::Nothing => return Decided::Unlimited,
            Asked::Rejected(refusal) => {
                return Decided::Answered(Answered::at_once(reject(config, head, &refusal)));
            }
            Asked::LookUps => {
                let (config, route) = (Arc::clone(config), Route::of(head.extensions));
                let checks = std::mem::take(&mut self.checks);
                let decided = look_up(config, checks, look_ups, timer, route);
                return Decided::Later(Pending::new(decided));
            }
        }
        let attempt = attempt(config, &self.checks);
        match attempt.decide() {
            Step::Ready(decision) if attempt.waits(&decision) => {
                // With its place in the queue, which goes back also if the future is never polled.
                let waits = Progress::Waits(Box::new(attempt.wait(decision)));
                let known = std::mem::take(&mut self.checks).into();
                return Decided::Later(Pending::new(ready((waits, known))));
            }
            Step::Ready(decision) => self.decision = decision,
            reply => {
                let (config, route) = (Arc::clone(config), Route::of(head.extensions));
                let known = std::mem::take(&mut self.checks).into();
                return Decided::Later(Pending::new(wait(config, known, reply, timer, route)));
            }
        }
        report(config, head, &self.checks, &self.decision, timer);
        match self.decision.is_allowed() {
            true => Decided::Allowed,
            false => Decided::Answered(answer_denied(
                config,
                head,
                &self.decision,
                &self.checks,
                &[],
            )),
        }
    }

    /// The request passes, with what it carries to the handler; or a challenge answers it.
    #[inline]
    pub(crate) fn enter<B>(&mut self, request: &mut Request<B>) -> Option<Answered> {
        let (config, decision) = (&self.config, &self.decision);
        self.uncounted = config.rules.counts_settled;
        if config.attach_decision {
            let admission = Admission::attach(config, &self.checks, decision, request);
            self.admission = Some(admission);
        }
        self.marked = (config.duplicates).mark(request.extensions_mut(), decision.at());
        if !config.rules.has_challenges() {
            return None;
        }
        let mut answer = config.rules.challenge(&Head::from(&*request), decision)?;
        // Its body is whole: nothing is left to wait for.
        drop(self.on_response(&mut answer));
        Some(Answered::at_once(answer))
    }

    /// The inner service has responded: refunds or settles the request, and writes the quota's header fields. Returns what remains
    /// to be settled at the end of the body.
    #[inline]
    pub(crate) fn on_response<B>(&mut self, response: &mut Response<B>) -> Option<AtEnd> {
        if self.marked {
            self.config.duplicates.on_response();
        }
        if !self.config.acts_on_responses && response.extensions().is_empty() {
            return None;
        }
        if let Some(waited) = &self.waited {
            server_timing::write(response.headers_mut(), **waited);
        }
        // First: a settlement would return them with its ticket.
        let slots = self.decision.take_slots();
        if response.extensions().get::<Refund>().is_some() {
            self.uncounted = false;
            self.refund();
        } else if self.config.rules.settles_by_response {
            self.uncounted = false;
            let AtHead { changed, at_end } =
                (self.settlement()).on_response(response.status(), response.headers());
            self.write_headers(response, &changed);
            if let Some(mut settlement) = at_end {
                settlement.slots = slots;
                return Some(AtEnd::Settle(settlement));
            }
        } else if self.config.shows_quota || self.admission.is_some() {
            self.write_headers(response, &[]);
        }
        slots.map(AtEnd::Release)
    }

    /// The inner service has failed.
    pub(crate) fn on_error(&mut self) {
        if self.marked {
            self.config.duplicates.on_response();
        }
        self.uncounted = false;
        self.settlement().settle(&InnerResponse::error());
    }

    /// Gives back what the request has taken, unless its ticket was taken.
    fn refund(&self) {
        if self.admission.as_ref().is_none_or(Admission::claim_ticket) {
            let rules = &self.config.rules;
            rules.refund(&self.checks, &self.decision);
        }
    }

    fn settlement(&self) -> Settlement {
        Settlement {
            config: Arc::clone(&self.config),
            checks: self.checks.clone(),
            decision: self.decision.clone(),
            admission: self.admission.clone(),
            is_settled: false,
        }
    }

    /// Writes the quota's header fields, without those of rules whose remaining units have `changed`.
    fn write_headers<B>(&self, response: &mut Response<B>, changed: &[u16]) {
        let is_hidden = response.extensions().get::<QuotaHidden>().is_some();
        if self.config.settings.hide_quota {
            let in_handler = self.admission.as_ref().map(Admission::take_decisions);
            if !in_handler.iter().flatten().all(Decision::is_allowed) {
                // A handler's denial becomes a response of its own, as a `tonic::Status` does.
                response.extensions_mut().insert(QuotaHidden);
            }
        } else if self.config.shows_quota
            && !is_hidden
            && applies(response.status(), response.headers())
        {
            self.write_fields(response.headers_mut(), changed);
        }
    }

    fn write_fields(&self, map: &mut HeaderMap, changed: &[u16]) {
        let config = &*self.config;
        let rules = config.rules.set();
        let unchanged: SmallVec<[Verdict; 4]>;
        let kept = if changed.is_empty() {
            self.decision.verdicts()
        } else {
            let is_unchanged = |verdict: &&Verdict| {
                let is_same = |rule: &u16| usize::from(*rule) == verdict.rule();
                !changed.iter().any(is_same)
            };
            let verdicts = self.decision.verdicts().iter();
            unchanged = verdicts.filter(is_unchanged).copied().collect();
            &unchanged
        };
        let written = match self.admission.as_ref().map(Admission::take_decisions) {
            Some(in_handler) if !in_handler.is_empty() => {
                let verdicts = in_handler.iter().flat_map(Decision::verdicts);
                let all = one_per_rule(verdicts.chain(kept));
                config.headers.write(map, &all, rules);
                all.len()
            }
            _ => {
                config.headers.write(map, kept, rules);
                kept.len()
            }
        };
        if written > FEW_RULES {
            limit_size(config.settings.protocol, map);
        }
    }
}

impl Drop for Admitted {
    /// Slots go back also if an [`Admission`] lives on: there is no response, or it has taken them. And a request without a response
    /// counts towards a block.
    fn drop(&mut self) {
        if !self.config.acts_on_responses {
            return;
        }
        drop(self.decision.take_slots());
        if self.uncounted && self.admission.take().is_none_or(|it| it.claim_ticket()) {
            let rules = &self.config.rules;
            rules.count_settled(&self.checks, &self.decision);
        }
    }
}

/// In the order of the rules, with the verdict that leaves least for each: a list must not name a policy twice.
pub(crate) fn one_per_rule<'a>(
    verdicts: impl Iterator<Item = &'a Verdict>,
) -> SmallVec<[Verdict; 8]> {
    let mut all: SmallVec<[Verdict; 8]> = verdicts.copied().collect();
    all.sort_by_key(|verdict| (verdict.rule(), strictness(verdict)));
    all.dedup_by_key(|verdict| verdict.rule());
    all
}
