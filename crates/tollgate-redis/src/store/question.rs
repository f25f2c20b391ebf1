//! A request that asks the store, and what comes of the answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::Instant;
use tollgate_core::{Check, Checks, Clock, Decision, Outcome, Pending, Source, Step};
use tollgate_prefilter::Closed;

use crate::{
    call::Asked,
    connection::{error::CallError, value::Value},
    observe::{CallFor, Timer},
    prefilter::{
        part::{Asking, Places},
        reports::Sent,
        settling::holding,
        slot::{Slot, slot_of},
    },
    reply::NewKey,
    store::{
        backend::Answer,
        debits::{Debits, did_not_run},
        inner::{Inner, Waiting},
    },
};

/// The answer to a request, on its way; nothing once it was given.
struct Question(Option<(Answer, Hearing)>);

/// What to do with the answer.
struct Hearing {
    inner: Arc<Inner>,
    checks: Checks,
    asked: Asked,
    takes: bool,
    sent: Sent,
    unkept: Places,
    timer: Timer,
    size: usize,
    lots: Option<Waiting>,
    /// Lots that go back with it, and the places of their answers.
    closed: Vec<(Slot, Closed)>,
    closed_at: Vec<Option<u16>>,
    debits: Option<Debits>,
}

impl Inner {
    /// Asks about checks that are decided in one step. What was counted of their keys is reported in the same call. The
    /// answer is there until `by`, where the request has asked about others before.
    pub(super) fn ask(
        self: &Arc<Self>,
        checks: &[Check],
        asking: &Asking,
        takes: bool,
        by: Option<Instant>,
    ) -> Step<Decision> {
        let sent = self.prefilter.sent();
        let mut call = self.shared.begin();
        let closed = asking.lots.iter().filter_map(|(place, ask)| {
            let check = checks.get(usize::from(*place))?;
            Some((slot_of(check), ask.closed?))
        });
        let closed: Vec<_> = closed.collect();
        let closed_at = self.close(&mut call, &closed);
        let sending = self.sending();
        let debits = sending
            .as_ref()
            .and_then(|_| Debits::of(self, &mut call, checks, sent));
        let asked = if !takes {
            call.peek(&self.encoder, checks)
        } else if self.shared.caps.is_empty() {
            call.acquire(&self.encoder, checks)
        } else {
            let now = Clock::system().now();
            call.acquire_capped(&self.encoder, checks, |rule| {
                self.cap(rule).is_none_or(|cap| cap.take(now))
            })
        };
        let lots = self.want(&mut call, checks, asking);
        let asked = match asked {
            // More checks than a call carries.
            None => Err(Outcome::Failed),
            Some(asked) if asked.is_nothing() => Err(Outcome::NotAsked),
            Some(asked) => Ok(asked),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(outcome) => {
                if let Some(debits) = debits {
                    debits.are_not_sent();
                }
                if let Some(lots) = lots {
                    lots.are_not_sent();
                }
                return Step::Ready(self.without_answer(checks, outcome));
            }
        };
        if let Some(debits) = &debits {
            debits.are_sent();
        }
        let timer = Timer::start();
        let answer = self.shared.send_by(&call, CallFor::Requests, by);
        drop(sending);
        let hearing = Hearing {
            inner: Arc::clone(self),
            checks: Checks::from_slice(checks),
            asked,
            takes,
            sent,
            unkept: asking.unkept,
            timer,
            size: call.checks(),
            lots,
            closed,
            closed_at,
            debits,
        };
        Step::Wait(Pending::new(Question(Some((answer, hearing)))))
    }
}

impl Hearing {
    fn heard(self, answer: Result<Value, CallError>) -> Decision {
        let inner = &self.inner;
        let reply = inner.shared.reply(self.timer, answer, self.size);
        // Before the decision, which was made after them.
        if let Some(debits) = self.debits {
            debits.answered(reply.as_ref());
        }
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                if let Some(lots) = self.lots.filter(|_| did_not_run(&error)) {
                    lots.are_not_sent();
                }
                return inner.without_answer(&self.checks, Outcome::Failed);
            }
        };
        inner.keep_refused(&self.closed, &self.closed_at, &reply);
        inner.note_new_keys(&reply, &self.asked);
        let decision = reply.decision(&self.asked, &self.checks, &inner.rules);
        if !self.takes {
            return inner.prefilter.looked(&inner.rules, &self.checks, decision);
        }
        inner.count_decided(decision.verdicts());
        let is_refused = |rule| {
            let mut told = reply.new_keys(&self.asked);
            told.any(|told| told.rule == rule && told.new_key == NewKey::Refused)
        };
        inner
            .prefilter
            .learn(&self.checks, &decision, (self.sent, self.unkept), |rule| {
                // The same client has a state with each client of the rule that says where states lie.
                !inner.encoder.is_found_alone(rule) || is_refused(rule)
            });
        if let Some(lots) = self.lots {
            lots.answered(&reply, self.sent.at);
        }
        inner
            .prefilter
            .with_held(&inner.rules, &self.checks, decision)
    }

    /// Whether something is lost if nobody hears the answer: what was reported with the request, a lot, or what was taken of
    /// a window that is lent.
    fn is_to_be_heard(&self) -> bool {
        let mut checks = self.checks.iter();
        self.debits.is_some()
            || self.lots.is_some()
            || self.takes && checks.any(|check| self.inner.prefilter.lends_windows(check))
    }

    /// Hears the answer to a request that nobody waits for any more. What was taken of windows that are lent stays in this process.
    fn heard_alone(self, answer: Result<Value, CallError>) {
        let (inner, checks) = (Arc::clone(&self.inner), self.checks.clone());
        let takes = self.takes;
        let decision = self.heard(answer);
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

impl Future for Question {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let Some((answer, _)) = &mut self.0 else {
            // It was asked after its end.
            return Poll::Pending;
        };
        let answer = ready!(Pin::new(answer).poll(cx));
        match self.0.take() {
            Some((_, hearing)) => Poll::Ready(hearing.heard(answer)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Question {
    /// What must not be missed is heard, also when nobody waits for the request any more.
    fn drop(&mut self) {
        if let Some((answer, hearing)) = self.0.take()
            && hearing.is_to_be_heard()
        {
            let inner = Arc::clone(&hearing.inner);
            let on_its_way = inner.shared.under_way.begin();
            inner.spawn(async move {
                hearing.heard_alone(answer.await);
                drop(on_its_way);
            });
        }
    }
}
