//! Admitting an allowed request, and what follows when its response comes.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use smallvec::SmallVec;
use tollgate_core::{Check, Decision, Key, Pending, Verdict, store::Checks};

use crate::{
    head::Head,
    header::{applies, server_timing},
    inner_response::InnerResponse,
    rate_limit::{
        admission::{Admission, strictness},
        at_end::AtEnd,
        config::Config,
        decide::jitter_seed,
        deny::{FEW_RULES, QuotaHidden, deny, limit_size},
        refund::Refund,
        settlement::{AtHead, Settlement},
        slow,
    },
};

/// An allowed request, whose response is still to come.
pub(crate) struct Admitted {
    config: Arc<Config>,
    checks: Checks,
    decision: Decision,
    entry: Option<Box<Entry>>,
}

/// What an allowed request carries to the handler, and what is left of it if there is no response. Most requests have none.
pub(crate) struct Entry {
    /// If configured.
    admission: Option<Admission>,
    /// Where requests are counted towards a block: it counts this one.
    unsettled: Option<Settlement>,
    /// How long it has waited, if the response shows it.
    waited: Option<Duration>,
    /// Whether the request is marked to detect that these rules count it again.
    marked: bool,
}

/// Slots go back also if a handler has kept its admission: there is no response, or it has taken them.
impl Drop for Entry {
    fn drop(&mut self) {
        let slots = |admission: &Admission| admission.decision().take_slots();
        drop(self.admission.as_ref().and_then(slots));
    }
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

impl Entry {
    #[inline]
    pub(crate) fn of<B>(
        config: &Arc<Config>,
        checks: &Checks,
        decision: &Decision,
        request: &mut Request<B>,
        waited: Option<Duration>,
    ) -> Option<Box<Self>> {
        let carries = config.attach_decision
            || config.rules.counts_settled
            || waited.is_some()
            || (config.duplicates).is_due(request.extensions(), decision.at());
        carries.then(|| Box::new(Self::new(config, checks, decision, request, waited)))
    }

    fn new<B>(
        config: &Arc<Config>,
        checks: &Checks,
        decision: &Decision,
        request: &mut Request<B>,
        waited: Option<Duration>,
    ) -> Self {
        let attach = || Admission::attach(config, checks, decision, request);
        let admission = config.attach_decision.then(attach);
        let settlement = || Settlement::new(config, checks, decision, admission.clone());
        Self {
            unsettled: config.rules.counts_settled.then(settlement),
            admission,
            waited,
            marked: (config.duplicates).mark(request.extensions_mut(), decision.at()),
        }
    }
}

impl Admitted {
    #[inline]
    pub(crate) fn new(
        config: Arc<Config>,
        checks: Checks,
        decision: Decision,
        entry: Option<Box<Entry>>,
    ) -> Self {
        Self {
            config,
            checks,
            decision,
            entry,
        }
    }

    /// The answer of a challenge.
    pub(crate) fn answer(mut self, mut answer: Response<Bytes>) -> Answered {
        // Its body is whole: nothing is left to wait for.
        drop(self.on_response(&mut answer));
        Answered::at_once(answer)
    }

    /// The inner service has responded: refunds or settles the request, and writes the quota's header fields. Returns what remains
    /// to be settled at the end of the body.
    #[inline]
    pub(crate) fn on_response<B>(&mut self, response: &mut Response<B>) -> Option<AtEnd> {
        if let Some(entry) = &self.entry {
            if entry.marked {
                self.config.duplicates.on_response();
            }
            if let Some(waited) = entry.waited {
                server_timing::write(response.headers_mut(), waited);
            }
        }
        if !self.config.acts_on_responses && response.extensions().is_empty() {
            return None;
        }
        // First: a settlement would return them with its ticket.
        let slots = self.decision.take_slots();
        if response.extensions().get::<Refund>().is_some() {
            self.settlement().refund();
        } else if self.config.rules.settles_by_response {
            let AtHead { changed, at_end } =
                (self.settlement()).on_response(response.status(), response.headers());
            self.write_headers(response, &changed);
            if let Some(mut settlement) = at_end {
                settlement.slots = slots;
                return Some(AtEnd::Settle(settlement));
            }
        } else if self.config.shows_quota || self.config.attach_decision {
            self.write_headers(response, &[]);
        }
        slots.map(AtEnd::Release)
    }

    /// The inner service has failed.
    pub(crate) fn on_error(&mut self) {
        if self.entry.as_ref().is_some_and(|entry| entry.marked) {
            self.config.duplicates.on_response();
        }
        self.settlement().settle(&InnerResponse::error());
    }

    fn settlement(&mut self) -> Settlement {
        let unsettled = |entry: &mut Box<Entry>| entry.unsettled.take();
        self.entry.as_mut().and_then(unsettled).unwrap_or_else(|| {
            let admission = self.admission().cloned();
            Settlement::new(&self.config, &self.checks, &self.decision, admission)
        })
    }

    fn admission(&self) -> Option<&Admission> {
        self.entry.as_ref()?.admission.as_ref()
    }

    /// The decisions of the handler's own checks; once.
    fn in_handler(&self) -> Vec<Decision> {
        self.admission()
            .map_or_else(Vec::new, Admission::take_decisions)
    }

    /// Writes the quota's header fields, without those of rules whose remaining units have `changed`.
    fn write_headers<B>(&self, response: &mut Response<B>, changed: &[u16]) {
        let is_hidden = response.extensions().get::<QuotaHidden>().is_some();
        if self.config.settings.hide_quota {
            if !self.in_handler().iter().all(Decision::is_allowed) {
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
        let in_handler = self.in_handler();
        let verdicts = self.decision.verdicts();
        if changed.is_empty() && in_handler.is_empty() {
            return self.write_verdicts(map, verdicts);
        }
        let is_same = |verdict: &Verdict, rule: u16| usize::from(rule) == verdict.rule();
        let kept = verdicts
            .iter()
            .filter(|verdict| !changed.iter().any(|rule| is_same(verdict, *rule)));
        let all = one_per_rule(in_handler.iter().flat_map(Decision::verdicts).chain(kept));
        self.write_verdicts(map, &all);
    }

    fn write_verdicts(&self, map: &mut HeaderMap, verdicts: &[Verdict]) {
        let config = &*self.config;
        config.headers.write(map, verdicts, config.rules.set());
        if verdicts.len() > FEW_RULES {
            limit_size(config.settings.protocol, map);
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
