//! Admitting an allowed request, and what follows when its response comes.

use std::{slice, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Key, Pending, RuleSet, Tick, Verdict,
    store::{Checks, HeldSlots},
};

use crate::{
    head::Head,
    header::{applies, server_timing},
    inner_response::InnerResponse,
    rate_limit::{
        admission::{Admission, strictness},
        at_end::AtEnd,
        config::Config,
        decide::Decided,
        deny::{FEW_RULES, QuotaHidden, deny, limit_size, reject},
        refund::Refund,
        request_rules::KnownChecks,
        settlement::{AtHead, Settlement, TrailersSettlement},
        slow,
    },
};

/// An admitted request, whose response is still to come, with what is kept of its decision: [`One`] or [`Several`].
pub(crate) struct Admitted<K> {
    config: Arc<Config>,
    kept: K,
    /// Whether the request is marked to detect that these rules count it again.
    marked: bool,
}

/// What is kept of the decision about one check, which is what most requests have: it is small, because it moves with the
/// future of the response.
pub(crate) struct One {
    check: Check,
    verdict: Verdict,
    at: Tick,
}

/// What is kept of any decision.
pub(crate) struct Several {
    checks: Checks,
    decision: Decision,
    admission: Option<Admission>,
    /// How long it has waited, if the response shows it.
    waited: Option<Duration>,
    /// While it is to be counted towards a block if there is no response.
    uncounted: Option<Arc<Config>>,
}

/// What is kept of a decision until the response comes.
pub(crate) trait Kept {
    fn verdicts(&self) -> &[Verdict];

    fn admission(&self) -> Option<&Admission>;

    fn checks(&self) -> Checks;

    fn decision(&self, rules: &RuleSet) -> Decision;

    /// The slots that the request holds, unless its ticket was taken; once.
    fn take_slots(&mut self) -> Option<HeldSlots>;

    /// How long it has waited, if the response shows it.
    fn waited(&self) -> Option<Duration>;

    /// A settlement counts it from now on.
    fn is_settled(&mut self) {}
}

/// A response in the place of the service's, which may be held back.
pub(crate) struct Answered {
    pub(crate) response: Box<Response<Bytes>>,
    pub(crate) held: Option<Pending<()>>,
}

impl Answered {
    fn at_once(response: Box<Response<Bytes>>) -> Self {
        let held = None;
        Self { response, held }
    }
}

/// The denial of a request.
#[cold]
pub(crate) fn answer_denied(
    config: &Config,
    head: &Head<'_>,
    decision: &Decision,
    seed: u64,
    found: &[(u16, Key)],
) -> Answered {
    let response = Box::new(deny(config, head, decision, seed, found));
    let held = slow::hold(config, head, decision, &response);
    Answered { response, held }
}

/// The answer of a challenge to an allowed request, which counts by it.
#[cold]
pub(crate) fn challenged<B>(
    config: &Arc<Config>,
    request: &mut Request<B>,
    decision: &mut Decision,
    checks: &Checks,
) -> Option<Box<Response<Bytes>>> {
    let mut response = config.rules.challenge(&Head::from(&*request), decision)?;
    let marks = Marks::set(config, request, decision, checks);
    let mut admitted = Admitted::several(Arc::clone(config), decision, checks, marks);
    // Its body is whole: nothing is left to wait for.
    drop(admitted.on_response(&mut response));
    Some(Box::new(response))
}

/// Lets a request through that waited for its decision, with an [`Admission`] if configured, or returns what answers it.
pub(crate) fn admit<B>(
    config: Arc<Config>,
    request: &mut Request<B>,
    decided: Decided,
    known: &KnownChecks,
) -> Result<Option<Admitted<Several>>, Answered> {
    let checks = &known.checks;
    match decided {
        Decided::Pass => Ok(pass(config, request)),
        Decided::Allow(mut decision) => {
            if config.rules.has_challenges()
                && let Some(response) = challenged(&config, request, &mut decision, checks)
            {
                return Err(Answered::at_once(response));
            }
            let marks = Marks::set(&config, request, &decision, checks);
            Ok(Some(Admitted::several(
                config,
                &mut decision,
                checks,
                marks,
            )))
        }
        Decided::Deny(denied) => {
            let (decision, seed) = *denied;
            let head = Head::from(&*request);
            Err(answer_denied(&config, &head, &decision, seed, &known.found))
        }
        Decided::Refuse(refusal) => {
            let response = Box::new(reject(&config, &Head::from(&*request), &refusal));
            Err(Answered::at_once(response))
        }
    }
}

/// Lets a request through that no rule is about, with an [`Admission`] if configured.
pub(crate) fn pass<B>(config: Arc<Config>, request: &mut Request<B>) -> Option<Admitted<Several>> {
    config.attach_decision.then(|| {
        let (mut decision, checks) = (Decision::unlimited(0), Checks::new());
        let marks = Marks::set(&config, request, &decision, &checks);
        Admitted::several(config, &mut decision, &checks, marks)
    })
}

/// The check of an allowed request and its verdict, if they are all that is kept of its decision: there is no other check, and
/// no [`Admission`] and no slots.
#[inline(always)]
pub(crate) fn only_one<'a>(
    config: &Config,
    decision: &'a Decision,
    checks: &'a Checks,
) -> Option<(&'a Check, &'a Verdict)> {
    match (&**checks, decision.verdicts()) {
        ([check], [verdict])
            if !config.attach_decision
                && !config.rules.holds_slots
                && !config.rules.counts_settled =>
        {
            Some((check, verdict))
        }
        _ => None,
    }
}

impl Admitted<One> {
    /// A request of [one check](only_one), decided at `at`.
    #[inline(always)]
    pub(crate) fn one(
        config: Arc<Config>,
        check: Check,
        verdict: Verdict,
        at: Tick,
        marked: bool,
    ) -> Self {
        Self {
            config,
            kept: One { check, verdict, at },
            marked,
        }
    }
}

impl Admitted<Several> {
    /// An allowed request.
    #[inline(always)]
    pub(crate) fn several(
        config: Arc<Config>,
        decision: &mut Decision,
        checks: &Checks,
        marks: Marks,
    ) -> Self {
        let counts = config.rules.counts_settled;
        Self {
            kept: Several {
                uncounted: counts.then(|| Arc::clone(&config)),
                admission: marks.admission,
                checks: checks.clone(),
                decision: decision.move_out(),
                waited: None,
            },
            config,
            marked: marks.marked,
        }
    }
}

/// What an allowed request carries to the handler: the [`Admission`], if configured, and the mark of the detector.
pub(crate) struct Marks {
    admission: Option<Admission>,
    marked: bool,
}

impl Marks {
    /// Marks the request.
    #[inline(always)]
    pub(crate) fn set<B>(
        config: &Arc<Config>,
        request: &mut Request<B>,
        decision: &Decision,
        checks: &Checks,
    ) -> Self {
        // The admission has a clone, which shares the slots.
        let attach = || attach(config, request, decision, checks);
        let admission = config.attach_decision.then(attach);
        Self {
            admission,
            marked: config
                .duplicates
                .mark(request.extensions_mut(), decision.at()),
        }
    }
}

impl Admitted<Several> {
    /// The same after a wait that the response shows.
    pub(crate) fn after(mut self, waited: Option<Duration>) -> Self {
        self.kept.waited = waited;
        self
    }
}

impl<K: Kept> Admitted<K> {
    /// The inner service has responded: refunds or settles the request, and writes the quota's header fields. Returns what remains
    /// to be settled at the end of the body.
    #[inline]
    pub(crate) fn on_response<B>(&mut self, response: &mut Response<B>) -> Option<AtEnd> {
        if self.marked {
            self.config.duplicates.on_response();
        }
        if let Some(waited) = self.kept.waited() {
            server_timing::write(response.headers_mut(), waited);
        }
        // First: a settlement would return them with its ticket.
        let slots = self.kept.take_slots();
        if response.extensions().get::<Refund>().is_some() {
            self.kept.is_settled();
            self.refund();
        } else if self.config.rules.settles_by_response {
            self.kept.is_settled();
            if let Some(mut settlement) = self.settle_by_response(response) {
                settlement.hold(slots);
                return Some(AtEnd::Settle(settlement));
            }
        } else {
            self.write_headers(response, &[]);
        }
        slots.map(AtEnd::Release)
    }

    /// The inner service has failed.
    #[cold]
    pub(crate) fn on_error(&mut self) {
        if self.marked {
            self.config.duplicates.on_response();
        }
        self.kept.is_settled();
        self.settlement().settle(&InnerResponse::error());
    }

    /// Gives back what the request has taken, unless its ticket was taken.
    #[cold]
    fn refund(&self) {
        if self.kept.admission().is_none_or(Admission::claim_ticket) {
            let rules = &self.config.rules;
            rules.refund(&self.kept.checks(), &self.kept.decision(rules.set()));
        }
    }

    #[inline(never)]
    fn settle_by_response<B>(&self, response: &mut Response<B>) -> Option<Box<TrailersSettlement>> {
        let AtHead { changed, at_end } = self.settlement().on_response(response);
        self.write_headers(response, &changed);
        at_end
    }

    fn settlement(&self) -> Settlement {
        Settlement {
            config: Arc::clone(&self.config),
            checks: self.kept.checks(),
            decision: self.kept.decision(self.config.rules.set()),
            admission: self.kept.admission().cloned(),
            is_settled: false,
        }
    }

    /// Writes the quota's header fields, without those of rules whose remaining units have `changed`.
    #[inline]
    fn write_headers<B>(&self, response: &mut Response<B>, changed: &[u16]) {
        let config = &*self.config;
        let in_handler = self.kept.admission().map(Admission::take_decisions);
        if config.settings.hide_quota {
            let denied = |decisions: &Vec<Decision>| !decisions.iter().all(Decision::is_allowed);
            if in_handler.as_ref().is_some_and(denied) {
                // A handler's denial becomes a response of its own, as a `tonic::Status` does.
                response.extensions_mut().insert(QuotaHidden);
            }
            return;
        }
        if !config.settings.shows_quota()
            || !applies(response.status(), response.headers())
            || response.extensions().get::<QuotaHidden>().is_some()
        {
            return;
        }
        let (rules, map) = (config.rules.set(), response.headers_mut());
        let unchanged: SmallVec<[Verdict; 4]>;
        let kept = if changed.is_empty() {
            self.kept.verdicts()
        } else {
            let is_unchanged = |verdict: &&Verdict| {
                let is_same = |rule: &u16| usize::from(*rule) == verdict.rule();
                !changed.iter().any(is_same)
            };
            let verdicts = self.kept.verdicts().iter();
            unchanged = verdicts.filter(is_unchanged).copied().collect();
            &unchanged
        };
        let written = match in_handler {
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

impl Kept for One {
    #[inline]
    fn verdicts(&self) -> &[Verdict] {
        slice::from_ref(&self.verdict)
    }

    #[inline]
    fn admission(&self) -> Option<&Admission> {
        None
    }

    #[cold]
    fn checks(&self) -> Checks {
        Checks::from_slice(&[self.check])
    }

    #[cold]
    fn decision(&self, rules: &RuleSet) -> Decision {
        let is_enforced = rules.enforces(self.verdict.rule());
        Decision::of_one(self.at, self.verdict, is_enforced)
    }

    #[inline]
    fn take_slots(&mut self) -> Option<HeldSlots> {
        None
    }

    #[inline]
    fn waited(&self) -> Option<Duration> {
        None
    }
}

impl Kept for Several {
    fn verdicts(&self) -> &[Verdict] {
        self.decision.verdicts()
    }

    fn admission(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    #[cold]
    fn checks(&self) -> Checks {
        self.checks.clone()
    }

    #[cold]
    fn decision(&self, _: &RuleSet) -> Decision {
        self.decision.clone()
    }

    #[inline]
    fn take_slots(&mut self) -> Option<HeldSlots> {
        self.decision.take_slots()
    }

    #[inline]
    fn waited(&self) -> Option<Duration> {
        self.waited
    }

    #[inline]
    fn is_settled(&mut self) {
        self.uncounted = None;
    }
}

impl Drop for Several {
    /// Slots go back also if an [`Admission`] lives on: there is no response, or it has taken them. And a request without a response
    /// counts towards a block.
    fn drop(&mut self) {
        drop(self.decision.take_slots());
        if let Some(config) = self.uncounted.take()
            && self.admission.take().is_none_or(|it| it.claim_ticket())
        {
            let limiter = &config.rules.limiter;
            drop(limiter.ticket_with_shadows(&self.checks, &self.decision));
        }
    }
}

/// Puts an [`Admission`] into a request's extensions.
fn attach<B>(
    config: &Arc<Config>,
    request: &mut Request<B>,
    decision: &Decision,
    checks: &Checks,
) -> Admission {
    let (decision, checks) = (decision.clone(), checks.clone());
    let for_handler = config.rules.is_checked_in_handler;
    let head = Head::from(&*request);
    let head_alone = for_handler.then(|| head.to_parts(head.headers.clone()));
    let admission = Admission::new(Arc::clone(config), decision, checks, head_alone);
    request.extensions_mut().insert(admission.clone());
    admission
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
