//! A request that asks the store, and what comes of the answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::Instant;
use tollgate_core::{Check, Checks, Clock, Decision, Outcome, Pending, Step};

use crate::{
    call::Asked,
    connection::{error::CallError, value::Value},
    observe::{CallFor, LotDid, Timer},
    prefilter::{
        part::{Asking, Places},
        reports::Sent,
    },
    reply::NewKey,
    store::{
        backend::Answer,
        debits::Debits,
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
        for (place, ask) in &asking.lots {
            if let (Some(check), Some(closed)) = (checks.get(usize::from(*place)), ask.closed) {
                // One that does not go back runs out.
                if call.close(&self.encoder, check, closed).is_some() {
                    self.shared.observer.lots(LotDid::HandedBack, 1);
                }
            }
        }
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
        let Ok(reply) = reply else {
            return inner.without_answer(&self.checks, Outcome::Failed);
        };
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
        decision
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
    /// What was reported with a request is heard, also when nobody waits for the request any more.
    fn drop(&mut self) {
        if let Some((answer, hearing)) = self.0.take()
            && hearing.debits.is_some()
        {
            let inner = Arc::clone(&hearing.inner);
            inner.spawn(async move {
                let answer = answer.await;
                let _ = hearing.heard(answer);
            });
        }
    }
}
