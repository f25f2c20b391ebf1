//! A query in flight.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Clock, Decision, StoreError, StoreErrorKind,
    store::{Receipt, Settlement},
};
use tollgate_prefilter::{
    FollowUp, GrantReply, IndexSet, LeaseReply, Next, NoReply, Query, Reply, ReportReply,
};

use crate::{
    call::{Call, RequestLayout},
    connection::{error::CallError, value::Value},
    observe::{CallFor, Stopwatch},
    reply::{self, NewKey},
    store::{backend::Answer, in_flight_calls::InFlightCall, inner::Inner},
};

/// A query of the engine in flight.
pub(super) struct InFlight {
    inner: Arc<Inner>,
    query: Query,
    answer: Answer,
    layout: ReplyLayout,
    what_for: CallFor,
    /// The deadline of a request that takes several calls.
    by: Option<Instant>,
    stopwatch: Stopwatch,
    size: usize,
    /// While units are lost if the reply is not processed.
    _guard: Option<InFlightCall>,
}

/// Where the replies to the parts of a query are. `None`: it was not sent, because the call was full.
#[derive(Default)]
struct ReplyLayout {
    checks: RequestLayout,
    reports: SmallVec<[Option<u16>; 1]>,
    returned: SmallVec<[Option<u16>; 1]>,
    grants: SmallVec<[Option<u16>; 1]>,
}

impl InFlight {
    /// Sends a query. The decision, if nothing had to be sent or nothing could be.
    pub(super) fn start(
        inner: &Arc<Inner>,
        query: Query,
        what_for: CallFor,
    ) -> ControlFlow<Decision, Self> {
        let steps = query.has_more_steps();
        let by = steps.then(|| Instant::now() + inner.shared.deadline);
        Self::start_by(inner, query, what_for, by)
    }

    fn start_by(
        inner: &Arc<Inner>,
        mut query: Query,
        what_for: CallFor,
        by: Option<Instant>,
    ) -> ControlFlow<Decision, Self> {
        loop {
            let mut call = inner.shared.new_call();
            let sent = query.send(inner.now(), |query| {
                let layout = ReplyLayout::new(inner, &mut call, query)?;
                let stopwatch = Stopwatch::start();
                Ok((layout, stopwatch, inner.shared.send_by(&call, what_for, by)))
            });
            match sent {
                Ok((layout, stopwatch, answer)) => {
                    let guard = query.is_about_leases_or_reports();
                    return ControlFlow::Continue(Self {
                        inner: Arc::clone(inner),
                        answer,
                        layout,
                        what_for,
                        by,
                        stopwatch,
                        size: call.checks(),
                        _guard: guard.then(|| inner.shared.in_flight_calls.begin()),
                        query,
                    });
                }
                Err(why) => match query.finish(Err(why), inner.now()) {
                    Next::Query(next) => query = next,
                    Next::Done(done) => {
                        send_follow_up(inner, done.follow_up);
                        return ControlFlow::Break(done.decision);
                    }
                },
            }
        }
    }

    /// Processes the answer. The decision, unless there is more to ask.
    fn on_answer(self, answer: Result<Value, CallError>) -> ControlFlow<Decision, Self> {
        let inner = self.inner;
        let takes = self.query.takes();
        let reply = match inner.shared.reply(self.stopwatch, answer, self.size) {
            Ok(reply) => {
                self.layout.note_new_keys(&inner, &reply, &self.query);
                Ok(self.layout.decode(&inner, &reply, &self.query))
            }
            Err(error) if did_not_run(&error) => Err(NoReply::NotRun),
            Err(_) => Err(NoReply::Unknown),
        };
        match self.query.finish(reply, inner.now()) {
            Next::Query(query) => Self::start_by(&inner, query, self.what_for, self.by),
            Next::Done(done) => {
                if takes {
                    inner.count_decided(done.decision.verdicts());
                }
                send_follow_up(&inner, done.follow_up);
                ControlFlow::Break(done.decision)
            }
        }
    }

    /// Waits for all replies, for what no request waits for.
    pub(super) async fn run(self) {
        let mut next = ControlFlow::Continue(self);
        while let ControlFlow::Continue(mut in_flight) = next {
            let answer = (&mut in_flight.answer).await;
            next = in_flight.on_answer(answer);
        }
    }
}

impl ReplyLayout {
    /// Puts a query into a call.
    fn new(inner: &Inner, call: &mut Call, query: &Query) -> Result<Self, NoReply> {
        let encoder = &inner.encoder;
        let returned = query.leases().iter().map(|item| {
            let returned = item.query.returned?;
            call.close(encoder, &item.check, returned)
        });
        let returned = returned.collect();
        let reports = query.reports().iter();
        let reports = reports.map(|check| call.debit(encoder, check)).collect();
        let checks = match query.checks() {
            [] => Some(RequestLayout::default()),
            checks if !query.takes() => call.peek(encoder, checks),
            checks if inner.shared.caps.is_empty() => call.acquire(encoder, checks),
            checks => {
                let now = Clock::system().now();
                call.acquire_capped(encoder, checks, |rule| {
                    inner.cap(rule).is_none_or(|cap| cap.take(now))
                })
            }
        };
        // More checks than a call carries.
        let checks = checks.ok_or(NoReply::NotRun)?;
        if checks.is_nothing() && !query.checks().is_empty() || call.is_empty() {
            return Err(NoReply::NothingToSend);
        }
        let grants = query.leases().iter().map(|item| {
            let terms = query.lease_terms(item)?;
            let is_wanted = item.query.requests_grant();
            is_wanted.then(|| call.grant(encoder, &item.check, &item.query, terms))?
        });
        Ok(Self {
            grants: grants.collect(),
            checks,
            reports,
            returned,
        })
    }

    fn note_new_keys(&self, inner: &Inner, reply: &reply::Reply, query: &Query) {
        if query.takes() {
            inner.note_new_keys(reply, &self.checks, query.checks());
        }
        for (report, place) in query.reports().iter().zip(&self.reports) {
            if let Some((left, _)) = place.and_then(|place| reply.reported(place)) {
                inner.note_reported(report, left);
            }
        }
    }

    fn decode(&self, inner: &Inner, reply: &reply::Reply, query: &Query) -> Reply {
        let was_refused = |place: Option<u16>| {
            // It was not sent, or the server has refused it.
            place.is_none_or(|place| reply.refusal(place).is_some())
        };
        let report = |place: &Option<u16>| match *place {
            place if was_refused(place) => ReportReply::Refused,
            // Of a value that is not ours as little is known as of a call without an answer.
            place => match place.and_then(|place| reply.reported(place)) {
                Some((left, reset_after)) => ReportReply::counted(left, reset_after),
                None => ReportReply::Unknown,
            },
        };
        let lease = |(returned, grant): (&Option<u16>, &Option<u16>)| {
            let grant = match grant.map(|place| reply.grant(place)) {
                None | Some(Some(None)) => GrantReply::None,
                Some(Some(Some(grant))) => GrantReply::Granted(grant),
                Some(None) => GrantReply::Lost,
            };
            LeaseReply::new(was_refused(*returned), grant)
        };
        let mut shared = IndexSet::default();
        for (index, check) in query.checks().iter().enumerate() {
            let mut new_keys = reply.new_keys(&self.checks);
            let is_refused =
                |it: reply::NewKeyReply| it.rule == check.rule() && it.new_key == NewKey::Refused;
            // The same client has a state with each client of the rule that decides about the slot.
            if !inner.encoder.is_found_alone(check.rule()) || new_keys.any(is_refused) {
                shared.insert(index);
            }
        }
        let decision = reply.decision(&self.checks, query.checks(), &inner.rules);
        let mut decoded = Reply::new(reply.at(), decision);
        decoded.shared = shared;
        decoded.reports = self.reports.iter().map(report).collect();
        decoded.leases = self.returned.iter().zip(&self.grants).map(lease).collect();
        decoded
    }
}

/// The decision of a request that waits for Redis; nothing once it was given.
pub(super) struct Deciding(Option<InFlight>);

impl Deciding {
    pub(super) fn new(in_flight: InFlight) -> Self {
        Self(Some(in_flight))
    }
}

impl Future for Deciding {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        loop {
            let Some(in_flight) = &mut self.0 else {
                // It was polled after its end.
                return Poll::Pending;
            };
            let answer = ready!(Pin::new(&mut in_flight.answer).poll(cx));
            match self.0.take().map(|it| it.on_answer(answer)) {
                Some(ControlFlow::Continue(next)) => self.0 = Some(next),
                Some(ControlFlow::Break(decision)) => return Poll::Ready(decision),
                None => return Poll::Pending,
            }
        }
    }
}

impl Drop for Deciding {
    /// The reply is processed where units would be lost otherwise, also when no request waits for it any more.
    fn drop(&mut self) {
        if let Some(mut in_flight) = self.0.take() {
            let inner = Arc::clone(&in_flight.inner);
            let (query, follow_up) = in_flight.query.abandon(inner.now());
            send_follow_up(&inner, follow_up);
            if let Some(query) = query {
                in_flight.query = query;
                let guard = &mut in_flight._guard;
                guard.get_or_insert_with(|| inner.shared.in_flight_calls.begin());
                inner.shared.spawn(in_flight.run());
            }
        }
    }
}

/// Sends what no request waits for.
pub(super) fn send_follow_up(inner: &Arc<Inner>, follow_up: FollowUp) {
    let same = |(_, one): &(_, Settlement), (_, other): &(_, Settlement)| one == other;
    for settled in follow_up.settle.chunk_by(same) {
        let receipts: Vec<Receipt> = settled.iter().map(|(receipt, _)| *receipt).collect();
        inner.settle(&receipts, settled[0].1);
    }
    send_alone(inner, follow_up.queries);
}

/// Sends queries that no request waits for.
pub(super) fn send_alone(inner: &Arc<Inner>, queries: Vec<Query>) {
    for query in queries {
        let what_for = match query.leases().is_empty() {
            true => CallFor::Reports,
            false => CallFor::Leases,
        };
        if let ControlFlow::Continue(in_flight) = InFlight::start(inner, query, what_for) {
            inner.shared.spawn(in_flight.run());
        }
    }
}

/// The last limiter and layer are gone, or others have taken their place: leases go back and local usage is reported, but for
/// what another rule set that is in use has as well.
pub(super) fn retire(inner: &Arc<Inner>) {
    send_alone(inner, inner.local.retire(inner.now()));
}

/// Whether a call certainly changed nothing.
pub(super) fn did_not_run(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::Overloaded | StoreErrorKind::Misconfigured
    )
}
