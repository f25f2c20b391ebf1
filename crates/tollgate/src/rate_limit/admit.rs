//! Admitting an allowed request, what follows when its response comes, and what else is done at the end of a response's body.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{HeaderMap, Request, Response, StatusCode, header::RETRY_AFTER, response::Parts};
use http_body::{Body, Frame};
use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Tick, Verdict,
    store::{Checks, HeldSlots},
};

use crate::{
    head::Head,
    header::{applies, times::write_retry_after},
    inner_response::InnerResponse,
    protocol::WireProtocol,
    rate_limit::{
        admission::{Admission, HandlerVerdict, passes_again, strictness},
        config::Config,
        deny::{Answered, QuotaHidden},
    },
    request_settings::RequestSettings,
};

/// An extension of a response: the outer layers refund the units that the request took, because it was not served.
///
/// If the inner service returns an error, the layer refunds the request by itself. A middleware that turns errors into
/// responses, or sheds load itself, adds this extension to the response. As the handler of a `HandleErrorLayer` of axum:
///
/// ```
/// use axum::{BoxError, Extension, http::StatusCode, response::IntoResponse};
/// use tollgate::service::Refund;
///
/// async fn shed(_: BoxError) -> impl IntoResponse {
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(Refund), "busy; try again")
/// }
/// ```
///
/// The response then carries no quota fields: the remaining units in them would be wrong. A [shadow](crate::Rule::shadow) gets its
/// units back too, as if it were enforced. Not refunded are the units that a
/// handler acquired itself ([`Admission::acquire`](crate::Admission::acquire)) or holds as a
/// [`Ticket`](crate::Admission::ticket), and those of a rule with [`keep_on_error`](crate::RequestRule::keep_on_error).
///
/// To give back by status or by a header field, without this extension, see
/// [`RequestRule::count_if`](crate::RequestRule::count_if).
///
/// # Abuse
///
/// A client that can provoke such a response is not limited. Use it for responses that cost nothing and reveal nothing, such
/// as shed load. On a wrong password it would make guessing free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refund;

/// The indices of rules.
type RuleIndices = SmallVec<[u16; 4]>;

/// A request that goes on to the service, and whose response is still to come.
pub(crate) struct Admitted {
    pub(crate) config: Arc<Config>,
    pub(crate) checks: Checks,
    /// `None`: no rule counts it.
    pub(crate) decision: Option<Decision>,
    /// When it was decided, if fields say moments.
    decided: Option<Tick>,
    /// What the handler gets, if configured, and what is left to do if there is no response. Most requests have none.
    admission: Option<AdmissionGuard>,
}

/// Ends the admission of a request that is answered, or gone.
struct AdmissionGuard(Admission);

impl Drop for AdmissionGuard {
    fn drop(&mut self) {
        self.0.end();
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
            admission: None,
        }
    }

    /// Gives the request what it carries to the handler. Returns the answer of a challenge, in the place of the service's.
    #[inline]
    pub(crate) fn enter<B>(&mut self, request: &mut Request<B>) -> Option<Answered> {
        if let Some(decision) = &self.decision {
            self.decided = self.config.moment_of(decision);
        }
        let acts = match &self.decision {
            Some(_) => self.config.acts_on_requests,
            // A handler may check its own rules.
            None => self.config.attach_decision,
        };
        match acts {
            true => self.add_admission(request),
            false => None,
        }
    }

    // Not inlined, so that what most requests need of `enter` is.
    #[inline(never)]
    fn add_admission<B>(&mut self, request: &mut Request<B>) -> Option<Answered> {
        let config = &self.config;
        let decision = &*(self.decision).get_or_insert_with(|| Decision::unlimited(0));
        if config.attach_decision || config.rules.counts_settled {
            let head = Head::from(&*request);
            let admission = Admission::new(config, &self.checks, decision, &head);
            if config.attach_decision {
                request.extensions_mut().insert(admission.clone());
            }
            self.admission = Some(AdmissionGuard(admission));
        }
        let answer = config.rules.challenge(&Head::from(&*request), decision);
        let (mut parts, body) = answer?.into_parts();
        // Its body is whole: nothing is left to wait for.
        drop(self.on_response(&mut parts));
        Some(Answered::at_once(Response::from_parts(parts, body)))
    }

    /// Whether this response has any effect.
    #[inline]
    pub(crate) fn acts_on<B>(&self, response: &Response<B>) -> bool {
        self.decision.is_some()
            && (self.config.acts_on_responses
                || !response.extensions().is_empty()
                || self.admission.is_some()
                || has_retry_after(response.headers()))
    }

    /// The inner service has responded: refunds or settles the request, and writes the quota's header fields. Returns what remains
    /// to be done at the end of the body.
    pub(crate) fn on_response(&mut self, response: &mut Parts) -> Option<AtEnd> {
        // First: a settlement would return them with its ticket.
        let slots = self.decision.as_ref().and_then(Decision::take_slots);
        if response.extensions.get::<Refund>().is_some() {
            self.settle(|rule, _| (!rule.keeps).then_some(0));
            return slots.map(AtEnd::Release);
        }
        let (mut changed, mut until_trailers) = (RuleIndices::new(), None);
        let rules = &self.config.rules;
        if rules.settles_by_response {
            let protocol = self.config.settings.protocol;
            let seen = InnerResponse::of(response.status, &response.headers, protocol);
            match seen.awaits_trailers() {
                None => changed = self.settle_by(&seen),
                Some(trailers) => {
                    // What they leave is not known yet.
                    let of_checks = self.checks.iter().map(Check::rule);
                    let settles = |it: &u16| rules.of_rule(*it).call_about_responses().is_some();
                    changed = of_checks.filter(settles).collect();
                    // In gRPC-Web the body has them, in its encoding.
                    let is_grpc = trailers == WireProtocol::Grpc;
                    until_trailers = is_grpc.then(|| response.headers.clone());
                }
            }
        }
        self.write_headers(response, &changed);
        let Some(headers) = until_trailers else {
            return slots.map(AtEnd::Release);
        };
        Some(AtEnd::Settle(Box::new(TrailersSettlement {
            admitted: mem::replace(self, Self::new(Arc::clone(&self.config))),
            status: response.status,
            headers,
            _slots: slots,
        })))
    }

    /// The inner service has failed.
    pub(crate) fn on_error(&mut self) {
        self.settle_by(&InnerResponse::error());
    }

    /// Settles the units of each rule by the response. Returns the rules whose units have changed.
    fn settle_by(&self, response: &InnerResponse<'_>) -> RuleIndices {
        self.settle(|rule, check| {
            let cost = rule.cost_after(response);
            cost.filter(|cost| *cost != check.cost())
        })
    }

    /// Settles each check to its new cost, if it has one, shadows included, unless their ticket was taken. Returns the rules that have.
    fn settle(&self, new_cost: impl Fn(&RequestSettings, &Check) -> Option<u64>) -> RuleIndices {
        let (rules, mut changed) = (&self.config.rules, RuleIndices::new());
        let Some(decision) = &self.decision else {
            return changed;
        };
        let costs: SmallVec<[(u16, u64); 4]> = self
            .checks
            .iter()
            .filter_map(|check| {
                let rule = check.rule();
                Some((rule, new_cost(rules.of_rule(rule), check)?))
            })
            .collect();
        let claims = || (self.admission.as_ref()).is_none_or(|it| it.0.claim_ticket());
        if costs.is_empty() && !rules.counts_settled || !claims() {
            return changed;
        }
        let ticket = rules.limiter.ticket_with_shadows(&self.checks, decision);
        ticket.settle_each(|check| {
            let (rule, cost) = *costs.iter().find(|(rule, _)| *rule == check.rule())?;
            if cost == 0 {
                rules.observer.refunded(rule);
            }
            Some(cost)
        });
        changed.extend(costs.into_iter().map(|(rule, _)| rule));
        changed
    }

    /// A denial from within, by a layer or the handler, knows only its own rules; the request may have used up what others had left.
    fn lengthen_retry(&self, response: &mut Parts, changed: &[u16], in_handler: &[HandlerVerdict]) {
        let protocol = self.config.settings.protocol;
        // Of an accepted request, the field says when its result may be there.
        let fails = InnerResponse::of(response.status, &response.headers, protocol).is_failure();
        if let Some(decision) = self.decision.as_ref().filter(|_| fails) {
            let keeps = |check: &Check| !changed.contains(&check.rule());
            let rules = &self.config.rules;
            let delay = passes_again(rules, &self.checks, decision, in_handler, keeps);
            if !delay.is_zero() {
                write_retry_after(&mut response.headers, delay);
            }
        }
    }

    /// Writes the quota's header fields, without those of rules whose remaining units have `changed`.
    fn write_headers(&self, response: &mut Parts, changed: &[u16]) {
        // Those of the handler's own checks; once.
        let in_handler = match &self.admission {
            Some(admission) => admission.0.take_verdicts(),
            None => Vec::new(),
        };
        if self.config.settings.hide_quota && in_handler.iter().any(|it| !it.is_allowed) {
            // A handler's denial becomes a response of its own, as a `tonic::Status` does.
            response.extensions.insert(QuotaHidden);
        }
        if has_retry_after(&response.headers) {
            self.lengthen_retry(response, changed, &in_handler);
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
                let is_of = |it: &Verdict, rule: u16| it.rule() == usize::from(rule);
                let unchanged = |it: &&Verdict| !changed.iter().any(|rule| is_of(it, *rule));
                let kept = own.iter().filter(unchanged);
                merged = one_per_rule(in_handler.iter().map(|it| &it.verdict).chain(kept));
                &merged[..]
            }
        };
        // A handler's own checks were decided later.
        let decided = self.decided.filter(|_| in_handler.is_empty());
        self.config
            .write_quota(&mut response.headers, verdicts, decided);
    }
}

/// Few names are compared sooner than one is hashed.
fn has_retry_after(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| *name == RETRY_AFTER)
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

/// A call whose status comes in the trailers. Dropped before that, it stays counted.
pub(crate) struct TrailersSettlement {
    admitted: Admitted,
    status: StatusCode,
    headers: HeaderMap,
    /// What the request holds until it is settled.
    _slots: Option<HeldSlots>,
}

impl TrailersSettlement {
    /// The body has ended, with an error or with this frame, if it has trailers.
    fn settle<E>(&self, end: Option<&Result<Frame<impl Sized>, E>>) {
        let protocol = self.admitted.config.settings.protocol;
        let head = InnerResponse::of(self.status, &self.headers, protocol);
        let trailers = end.and_then(|end| end.as_ref().ok()?.trailers_ref());
        let response = head.ended(trailers, matches!(end, Some(Err(_))));
        self.admitted.settle_by(&response);
    }
}

/// What is done at the end of a response's body. If the body is dropped before, its slots go back and nothing is settled.
pub(crate) enum AtEnd {
    /// Slots go back.
    Release(HeldSlots),
    /// The request is settled, and then its slots go back. In a box: it is large to move, also where it is not there.
    Settle(Box<TrailersSettlement>),
    /// The request is no longer in flight.
    Leave(Place),
}

impl AtEnd {
    /// What is left to do with this body. The request is settled now if there will be no frame: a server drops the body then, and
    /// does not poll it.
    pub(crate) fn unless_ended<B: Body>(self, body: &B) -> Option<Self> {
        match self {
            Self::Settle(settlement) if body.is_end_stream() => {
                settlement.settle(None::<&Result<Frame<B::Data>, B::Error>>);
                None
            }
            at_end => Some(at_end),
        }
    }

    /// The body has ended, with an error or with this frame, if it has trailers.
    pub(crate) fn end<E>(self, last: Option<&Result<Frame<impl Sized>, E>>) {
        match self {
            Self::Release(slots) => drop(slots),
            Self::Leave(place) => drop(place),
            Self::Settle(settlement) => settlement.settle(last),
        }
    }
}

tollgate_core::debug_fields!(AtEnd);

/// A place among the requests in flight, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(pub(crate) Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
