//! A request that asks the store, and what comes of the answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::Instant;
use tollgate_core::{Check, Checks, Clock, Decision, Outcome, Pending, Source, Step};
use tollgate_prefilter::ReturnedLease;

use crate::{
    call::RequestLayout,
    connection::{error::CallError, value::Value},
    observe::{CallFor, Timer},
    prefilter::{
        refunds::holding,
        reports::SentAt,
        split::{IndexSet, QueryExtras},
        table_key::{TableKey, table_key_of},
    },
    reply::NewKey,
    store::{
        backend::Answer,
        in_flight_reports::{InFlightReports, did_not_run},
        inner::{Inner, PendingGrants},
    },
};

/// The answer to a request, on its way; nothing once it was given.
struct InFlightQuery(Option<(Answer, ReplyHandler)>);

/// What to do with the answer.
struct ReplyHandler {
    inner: Arc<Inner>,
    checks: Checks,
    layout: RequestLayout,
    takes: bool,
    sent: SentAt,
    uncached: IndexSet,
    timer: Timer,
    size: usize,
    grants: Option<PendingGrants>,
    /// Leases that go back with it, and the places of their answers.
    returned: Vec<(TableKey, ReturnedLease)>,
    closed_at: Vec<Option<u16>>,
    reports_in_flight: Option<InFlightReports>,
}

impl Inner {
    /// Asks about checks that are decided in one step. What was counted of their keys is reported in the same call. The
    /// answer is there until `by`, where the request has asked about others before.
    pub(super) fn query(
        self: &Arc<Self>,
        checks: &[Check],
        extras: &QueryExtras,
        takes: bool,
        by: Option<Instant>,
    ) -> Step<Decision> {
        let sent = self.prefilter.sent();
        let mut call = self.shared.begin();
        let returned = extras.grants.iter().filter_map(|(place, query)| {
            let check = checks.get(usize::from(*place))?;
            Some((table_key_of(check), query.returned?))
        });
        let returned: Vec<_> = returned.collect();
        let closed_at = self.close(&mut call, &returned);
        let sending = self.sending();
        let reports_in_flight = sending
            .as_ref()
            .and_then(|_| InFlightReports::of(self, &mut call, checks, sent));
        let layout = if !takes {
            call.peek(&self.encoder, checks)
        } else if self.shared.caps.is_empty() {
            call.acquire(&self.encoder, checks)
        } else {
            let now = Clock::system().now();
            call.acquire_capped(&self.encoder, checks, |rule| {
                self.cap(rule).is_none_or(|cap| cap.take(now))
            })
        };
        let grants = self.want(&mut call, checks, extras);
        let layout = match layout {
            // More checks than a call carries.
            None => Err(Outcome::Failed),
            Some(layout) if layout.is_nothing() => Err(Outcome::NotAsked),
            Some(layout) => Ok(layout),
        };
        let layout = match layout {
            Ok(layout) => layout,
            Err(outcome) => {
                if let Some(reports_in_flight) = reports_in_flight {
                    reports_in_flight.are_not_sent();
                }
                if let Some(grants) = grants {
                    grants.are_not_sent();
                }
                return Step::Ready(self.without_answer(checks, outcome));
            }
        };
        if let Some(reports_in_flight) = &reports_in_flight {
            reports_in_flight.are_sent();
        }
        let timer = Timer::start();
        let answer = self.shared.send_by(&call, CallFor::Requests, by);
        drop(sending);
        let handler = ReplyHandler {
            inner: Arc::clone(self),
            checks: Checks::from_slice(checks),
            layout,
            takes,
            sent,
            uncached: extras.uncached,
            timer,
            size: call.checks(),
            grants,
            returned,
            closed_at,
            reports_in_flight,
        };
        Step::Wait(Pending::new(InFlightQuery(Some((answer, handler)))))
    }
}

impl ReplyHandler {
    fn replies(self, answer: Result<Value, CallError>) -> Decision {
        let inner = &self.inner;
        let reply = inner.shared.reply(self.timer, answer, self.size);
        // Before the decision, which was made after them.
        if let Some(reports_in_flight) = self.reports_in_flight {
            reports_in_flight.on_reply(reply.as_ref());
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if let Some(grants) = self.grants.filter(|_| did_not_run(&error)) {
                    grants.are_not_sent();
                }
                return inner.without_answer(&self.checks, Outcome::Failed);
            }
        };
        inner.keep_refused(&self.returned, &self.closed_at, &reply);
        inner.note_new_keys(&reply, &self.layout);
        let decision = reply.decision(&self.layout, &self.checks, &inner.rules);
        if !self.takes {
            return inner.prefilter.looked(&inner.rules, &self.checks, decision);
        }
        inner.count_decided(decision.verdicts());
        let is_refused = |rule| {
            let mut told = reply.new_keys(&self.layout);
            told.any(|told| told.rule == rule && told.new_key == NewKey::Refused)
        };
        inner.prefilter.learn(
            &self.checks,
            &decision,
            (self.sent, self.uncached),
            |rule| {
                // The same client has a state with each client of the rule that says where states lie.
                !inner.encoder.is_found_alone(rule) || is_refused(rule)
            },
        );
        if let Some(grants) = self.grants {
            grants.on_reply(&reply, self.sent.at);
        }
        inner
            .prefilter
            .with_held(&inner.rules, &self.checks, decision)
    }

    /// Whether something is lost if nobody hears the answer: what was reported with the request, a lease, or what was taken of
    /// a window that is granted.
    fn is_to_be_heard(&self) -> bool {
        let mut checks = self.checks.iter();
        self.reports_in_flight.is_some()
            || self.grants.is_some()
            || self.takes && checks.any(|check| self.inner.prefilter.grants_windows(check))
    }

    /// Hears the answer to a request that nobody waits for any more. What was taken of windows that are granted stays in this process.
    fn heard_alone(self, answer: Result<Value, CallError>) {
        let (inner, checks) = (Arc::clone(&self.inner), self.checks.clone());
        let takes = self.takes;
        let decision = self.replies(answer);
        if !takes || !decision.is_allowed() {
            return;
        }
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            let is_taken = check.cost() > 0 && verdict.outcome() == Outcome::Allow;
            if is_taken && verdict.source() == Source::Store {
                inner.take_over(&holding(check, verdict, decision.at()));
            }
        }
    }
}

impl Future for InFlightQuery {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let Some((answer, _)) = &mut self.0 else {
            // It was asked after its end.
            return Poll::Pending;
        };
        let answer = ready!(Pin::new(answer).poll(cx));
        match self.0.take() {
            Some((_, handler)) => Poll::Ready(handler.replies(answer)),
            None => Poll::Pending,
        }
    }
}

impl Drop for InFlightQuery {
    /// What must not be missed is heard, also when nobody waits for the request any more.
    fn drop(&mut self) {
        if let Some((answer, handler)) = self.0.take()
            && handler.is_to_be_heard()
        {
            let inner = Arc::clone(&handler.inner);
            let in_flight = inner.shared.in_flight_calls.begin();
            inner.spawn(async move {
                handler.heard_alone(answer.await);
                drop(in_flight);
            });
        }
    }
}
