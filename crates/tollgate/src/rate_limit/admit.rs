//! Admitting an allowed request, and what follows when its response comes.

use std::sync::Arc;

use http::{Extensions, Request, Response, response::Parts};
use smallvec::SmallVec;
use tollgate_core::{Decision, Tick, Verdict, store::Checks};

use crate::{
    head::Head,
    header::applies,
    inner_response::InnerResponse,
    rate_limit::{
        admission::{Admission, strictness},
        config::Config,
        deny::{Answered, QuotaHidden},
        refund::Refund,
        settlement::{AtEnd, Settlement},
    },
};

/// A request that goes on to the service, and whose response is still to come.
pub(crate) struct Admitted {
    pub(crate) config: Arc<Config>,
    pub(crate) checks: Checks,
    /// `None`: no rule counts it.
    pub(crate) decision: Option<Decision>,
    /// When it was decided, if fields say moments.
    decided: Option<Tick>,
    entry: Option<Box<Entry>>,
}

/// What an allowed request carries to the handler, and what is left of it if there is no response. Most requests have none.
struct Entry {
    /// If configured.
    admission: Option<Admission>,
    /// Where requests are counted towards a block: it counts this one.
    unsettled: Option<Settlement>,
}

/// Slots go back also if a handler has kept its admission: there is no response, or it has taken them.
impl Drop for Entry {
    fn drop(&mut self) {
        let slots = |admission: &Admission| admission.decision().take_slots();
        drop(self.admission.as_ref().and_then(slots));
    }
}

impl Admitted {
    #[inline]
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            checks: Checks::new(),
            decision: None,
            decided: None,
            entry: None,
        }
    }

    /// Gives the request what it carries to the handler. Returns the answer of a challenge, in the place of the service's.
    #[inline]
    pub(crate) fn enter<B>(&mut self, request: &mut Request<B>) -> Option<Answered> {
        if let Some(decision) = &self.decision {
            self.decided = self.config.moment_of(decision);
        }
        let has_entry = match &self.decision {
            Some(_) => self.config.has_entries,
            // A handler may check its own rules.
            None => self.config.attach_decision,
        };
        match has_entry {
            true => self.add_entry(request),
            false => None,
        }
    }

    // Not inlined, so that what most requests need of `enter` is.
    #[inline(never)]
    fn add_entry<B>(&mut self, request: &mut Request<B>) -> Option<Answered> {
        let config = &self.config;
        let decision = &*(self.decision).get_or_insert_with(|| Decision::unlimited(0));
        let attach = || Admission::attach(config, &self.checks, decision, request);
        let admission = config.attach_decision.then(attach);
        let settlement = || Settlement::new(config, &self.checks, decision, admission.clone());
        let entry = Entry {
            unsettled: config.rules.counts_settled.then(settlement),
            admission,
        };
        let answer = config.rules.challenge(&Head::from(&*request), decision);
        self.entry = Some(Box::new(entry));
        let (mut parts, body) = answer?.into_parts();
        // Its body is whole: nothing is left to wait for.
        drop(self.on_response(&mut parts));
        Some(Answered::at_once(Response::from_parts(parts, body)))
    }

    /// Whether a response with these extensions has any effect.
    #[inline]
    pub(crate) fn acts_on(&self, extensions: &Extensions) -> bool {
        self.decision.is_some()
            && (self.config.acts_on_responses || !extensions.is_empty() || self.entry.is_some())
    }

    /// The inner service has responded: refunds or settles the request, and writes the quota's header fields. Returns what remains
    /// to be done at the end of the body.
    pub(crate) fn on_response(&mut self, response: &mut Parts) -> Option<AtEnd> {
        // First: a settlement would return them with its ticket.
        let slots = self.decision.as_ref().and_then(Decision::take_slots);
        let is_refunded = response.extensions.get::<Refund>().is_some();
        let is_settled = is_refunded || self.config.rules.settles_by_response;
        match is_settled.then(|| self.settlement()).flatten() {
            Some(settlement) if is_refunded => {
                settlement.refund();
                slots.map(AtEnd::Release)
            }
            Some(settlement) => {
                let (changed, at_end) =
                    settlement.on_response(response.status, &response.headers, slots);
                self.write_headers(response, &changed);
                at_end
            }
            None => {
                self.write_headers(response, &[]);
                slots.map(AtEnd::Release)
            }
        }
    }

    /// The inner service has failed.
    pub(crate) fn on_error(&mut self) {
        if let Some(settlement) = self.settlement() {
            settlement.settle(&InnerResponse::error());
        }
    }

    /// The settlement of what the request has taken.
    fn settlement(&mut self) -> Option<Settlement> {
        let decision = self.decision.as_ref()?;
        let unsettled = self.entry.as_mut().and_then(|entry| entry.unsettled.take());
        Some(unsettled.unwrap_or_else(|| {
            let admission = self
                .entry
                .as_ref()
                .and_then(|entry| entry.admission.clone());
            Settlement::new(&self.config, &self.checks, decision, admission)
        }))
    }

    /// Writes the quota's header fields, without those of rules whose remaining units have `changed`.
    fn write_headers(&self, response: &mut Parts, changed: &[u16]) {
        let admission = self.entry.as_ref().and_then(|it| it.admission.as_ref());
        // Those of the handler's own checks; once.
        let in_handler = admission.map_or_else(Vec::new, Admission::take_decisions);
        if self.config.settings.hide_quota && !in_handler.iter().all(Decision::is_allowed) {
            // A handler's denial becomes a response of its own, as a `tonic::Status` does.
            response.extensions.insert(QuotaHidden);
        }
        if !self.config.shows_quota
            || response.extensions.get::<QuotaHidden>().is_some()
            || !applies(response.status, &response.headers)
        {
            return;
        }
        let own = self.decision.as_ref().map_or(&[][..], Decision::verdicts);
        let merged;
        let verdicts = match changed.is_empty() && in_handler.is_empty() {
            true => own,
            false => {
                let is_same = |verdict: &Verdict, rule: u16| usize::from(rule) == verdict.rule();
                let has_changed = |it: &Verdict| changed.iter().any(|rule| is_same(it, *rule));
                let kept = own.iter().filter(|verdict| !has_changed(verdict));
                let in_handler = in_handler.iter().flat_map(Decision::verdicts);
                merged = one_per_rule(in_handler.chain(kept));
                &merged[..]
            }
        };
        // A handler's own checks were decided later.
        let decided = self.decided.filter(|_| in_handler.is_empty());
        self.config
            .write_quota(&mut response.headers, verdicts, decided);
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
