//! Settling requests by their responses, and what else is done at the end of a response's body.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame};
use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision,
    store::{Checks, HeldSlots},
};

use crate::{
    inner_response::InnerResponse,
    protocol::WireProtocol,
    rate_limit::{admission::Admission, config::Config},
};

/// The indices of rules.
pub(crate) type RuleIndices = SmallVec<[u16; 4]>;

/// What a request took, until its response tells what it cost.
pub(crate) struct Settlement {
    config: Arc<Config>,
    checks: Checks,
    decision: Decision,
    admission: Option<Admission>,
    is_settled: bool,
}

/// The settlement of a call whose status comes in the trailers.
pub(crate) struct TrailersSettlement {
    settlement: Settlement,
    status: StatusCode,
    headers: HeaderMap,
    /// What the request holds until it is settled.
    _slots: Option<HeldSlots>,
}

impl Settlement {
    pub(crate) fn new(
        config: &Arc<Config>,
        checks: &[Check],
        decision: &Decision,
        admission: Option<Admission>,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            checks: Checks::from_slice(checks),
            decision: decision.clone(),
            admission,
            is_settled: false,
        }
    }

    /// Gives back what the request has taken, unless its ticket was taken.
    pub(crate) fn refund(mut self) {
        self.is_settled = true;
        if self.admission.take().is_none_or(|it| it.claim_ticket()) {
            self.config.rules.refund(&self.checks, &self.decision);
        }
    }

    /// The head of the response is there. Returns the rules whose remaining units are not those of the decision, or not known yet, and
    /// what remains to be done at the end of the body.
    pub(crate) fn on_response(
        self,
        status: StatusCode,
        headers: &HeaderMap,
        slots: Option<HeldSlots>,
    ) -> (RuleIndices, Option<AtEnd>) {
        let protocol = self.config.settings.protocol;
        let seen = InnerResponse::of(status, headers, protocol);
        let Some(trailers) = seen.awaits_trailers() else {
            return (self.settle(&seen), slots.map(AtEnd::Release));
        };
        let rules = &self.config.rules;
        let by_response = self.checks.iter().map(|check| check.rule());
        let changed = by_response
            .filter(|rule| rules.settles_by_response(*rule))
            .collect();
        // The body has them, in the encoding of gRPC-Web.
        if matches!(trailers, WireProtocol::GrpcWeb { .. }) {
            return (changed, slots.map(AtEnd::Release));
        }
        let settlement = TrailersSettlement {
            status,
            headers: headers.clone(),
            settlement: self,
            _slots: slots,
        };
        (changed, Some(AtEnd::Settle(Box::new(settlement))))
    }

    /// Settles the units of each rule, unless their ticket was taken. Returns the rules whose units have changed.
    pub(crate) fn settle(mut self, response: &InnerResponse<'_>) -> RuleIndices {
        self.is_settled = true;
        let rules = &self.config.rules;
        let costs: SmallVec<[(u16, u64); 4]> = self
            .checks
            .iter()
            .filter_map(|check| {
                let cost = rules.cost_after(check.rule(), response)?;
                (cost != check.cost()).then_some((check.rule(), cost))
            })
            .collect();
        if costs.is_empty() && !rules.counts_settled
            || !self.admission.take().is_none_or(|it| it.claim_ticket())
        {
            return RuleIndices::new();
        }
        let ticket = rules
            .limiter
            .ticket_with_shadows(&self.checks, &self.decision);
        ticket.settle_each(|check| {
            let (rule, cost) = *costs.iter().find(|(rule, _)| *rule == check.rule())?;
            if cost == 0 {
                rules.observer.refunded(rule);
            }
            Some(cost)
        });
        costs.into_iter().map(|(rule, _)| rule).collect()
    }
}

impl Drop for Settlement {
    /// Its status never came: it stays counted, towards a block too.
    fn drop(&mut self) {
        let rules = &self.config.rules;
        if !self.is_settled
            && rules.counts_settled
            && self.admission.take().is_none_or(|it| it.claim_ticket())
        {
            rules.count_settled(&self.checks, &self.decision);
        }
    }
}

impl TrailersSettlement {
    /// The body has ended, with an error or with this frame, if it has trailers.
    pub(crate) fn settle<E>(self, end: Option<&Result<Frame<impl Sized>, E>>) {
        let protocol = self.settlement.config.settings.protocol;
        let head = InnerResponse::of(self.status, &self.headers, protocol);
        let trailers = end.and_then(|end| end.as_ref().ok()?.trailers_ref());
        self.settlement
            .settle(&head.ended(trailers, matches!(end, Some(Err(_)))));
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
}

/// A place among the requests in flight, which is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(pub(crate) Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AtEnd {
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
