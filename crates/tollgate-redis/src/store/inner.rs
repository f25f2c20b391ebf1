//! A rule set on the store, as the futures of its answers share it.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Clock, Decision, Holding, Outcome, Pending, RuleSet, Settlement, Step, Tick,
    Verdict,
};
use tollgate_prefilter::Lot;

use crate::{
    call::{Asked, Call},
    encode::Encoder,
    new_keys::NewKeys,
    observe::{CallFor, LotDid, RuleCounts, Timer},
    prefilter::{filter::Prefilter, part::Asking},
    reply::{NewKey, Reply},
    store::{heartbeat::Heartbeat, meter::Meter, shared::Shared},
};

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Encoder,
    /// By rule: how many keys this process may make.
    pub(super) caps: Box<[Option<Arc<NewKeys>>]>,
    /// What this process answers alone.
    pub(super) prefilter: Prefilter,
    /// What is counted of decisions, by rule and plan.
    pub(super) counts: Box<[Box<[Arc<RuleCounts>]>]>,
    pub(super) meter: Option<Meter>,
    /// Ends with the last store, limiter and layer.
    pub(super) _heartbeat: Option<Arc<Heartbeat>>,
}

/// Lots that are asked for: by the place of the check, that of the answer.
type Wanted = SmallVec<[(u16, Option<u16>); 1]>;

/// Says that nothing came of lots that were asked for, unless an answer did.
struct Waiting {
    inner: Arc<Inner>,
    checks: Checks,
    wanted: Wanted,
}

impl Inner {
    /// Asks about checks that are decided in one step.
    pub(super) fn ask(
        self: &Arc<Self>,
        checks: &[Check],
        asking: &Asking,
        takes: bool,
    ) -> Step<Decision> {
        let sent = self.prefilter.now();
        let mut call = self.shared.begin();
        for (place, ask) in asking {
            if let (Some(check), Some(closed)) = (checks.get(usize::from(*place)), ask.closed) {
                // One that does not go back runs out.
                if call.close(&self.encoder, check, closed).is_some() {
                    self.shared.observer.lots(LotDid::HandedBack, 1);
                }
            }
        }
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
        let waiting = self.want(&mut call, checks, asking);
        let Some(asked) = asked else {
            // More checks than a call carries.
            return Step::Ready(self.without_answer(checks, Outcome::Failed));
        };
        if asked.is_nothing() {
            return Step::Ready(self.without_answer(checks, Outcome::NotAsked));
        }
        let timer = Timer::start();
        let answer = self.shared.send(&call, CallFor::Requests);
        let (inner, checks) = (Arc::clone(self), Checks::from_slice(checks));
        let size = call.checks();
        Step::Wait(Pending::new(async move {
            match inner.shared.reply(timer, answer.await, size) {
                Ok(reply) => {
                    inner.note_new_keys(&reply, &asked);
                    let decision = reply.decision(&asked, &checks, &inner.rules);
                    if !takes {
                        return inner.prefilter.looked(&inner.rules, &checks, decision);
                    }
                    inner.count_decided(decision.verdicts());
                    inner.prefilter.learn(&checks, &decision, sent, |rule| {
                        let mut told = reply.new_keys(&asked);
                        // The same client has a state with each client of the rule that says where states lie.
                        !inner.encoder.is_found_alone(rule)
                            || told.any(|told| told.rule == rule && told.new_key == NewKey::Refused)
                    });
                    if let Some(waiting) = waiting {
                        waiting.answered(&reply, sent);
                    }
                    decision
                }
                Err(_) => inner.without_answer(&checks, Outcome::Failed),
            }
        }))
    }

    /// Asks for lots, with the request that was just added.
    fn want(
        self: &Arc<Self>,
        call: &mut Call,
        checks: &[Check],
        asking: &Asking,
    ) -> Option<Waiting> {
        if asking.is_empty() {
            return None;
        }
        let mut waiting = Waiting {
            inner: Arc::clone(self),
            checks: Checks::from_slice(checks),
            wanted: Wanted::new(),
        };
        for (place, ask) in asking {
            let check = checks.get(usize::from(*place))?;
            let terms = self.prefilter.lease_terms(check);
            let answer = terms
                .filter(|_| ask.wants_a_lot())
                .and_then(|terms| call.lend(&self.encoder, check, ask, terms));
            if answer.is_some() {
                self.shared.observer.lots(LotDid::Asked, 1);
            }
            waiting.wanted.push((*place, answer));
        }
        Some(waiting)
    }

    /// Counts checks that were decided, by who has.
    #[inline]
    pub(super) fn count_decided<'a>(&self, verdicts: impl IntoIterator<Item = &'a Verdict>) {
        for verdict in verdicts {
            if !matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny) {
                continue;
            }
            let plans = self.counts.get(verdict.rule());
            let counts = plans.and_then(|plans| plans.get(verdict.plan()).or(plans.first()));
            if let Some(counts) = counts {
                counts.decided(verdict.source());
            }
        }
    }

    fn cap(&self, rule: u16) -> Option<&NewKeys> {
        self.caps.get(usize::from(rule))?.as_deref()
    }

    fn note_new_keys(&self, reply: &Reply, asked: &Asked) {
        for told in reply.new_keys(asked) {
            match told.new_key {
                NewKey::Made => self.shared.observer.key_made(),
                NewKey::Refused => self.shared.observer.key_refused(),
                NewKey::No => {}
            }
            if told.may_make
                && told.new_key != NewKey::Made
                && let Some(cap) = self.cap(told.rule)
            {
                cap.give_back();
            }
        }
    }

    /// A decision that Redis has not made: it has failed, or there was nothing to ask.
    fn without_answer(&self, checks: &[Check], outcome: Outcome) -> Decision {
        let verdicts = checks
            .iter()
            .map(|check| Verdict::unanswered(check.rule(), check.plan(), outcome));
        Decision::new(0, verdicts, |verdict| self.rules.enforces(verdict.rule()))
    }

    pub(super) fn settle(&self, holdings: &[Holding], how: Settlement) {
        let mut call = self.shared.begin();
        if !call.settle_all(&self.encoder, holdings, how) {
            return self.shared.observer.settlement_lost();
        }
        if !call.is_empty() {
            self.shared.settle(&call);
        }
    }
}

impl Waiting {
    fn answered(mut self, reply: &Reply, sent: Tick) {
        for (place, answer) in std::mem::take(&mut self.wanted) {
            let lot = answer.map_or(Some(None), |answer| reply.lot(answer));
            let observer = &self.inner.shared.observer;
            match lot {
                Some(Some(_)) => observer.lots(LotDid::Lent, 1),
                Some(None) => {}
                None => observer.lots(LotDid::Lost, 1),
            }
            self.told(place, (sent, reply.at()), lot);
        }
    }

    fn told(&self, place: u16, times: (Tick, Tick), lot: Option<Option<Lot>>) {
        if let Some(check) = self.checks.get(usize::from(place)) {
            self.inner.prefilter.answered(check, times, lot);
        }
    }
}

impl Drop for Waiting {
    /// The answer did not come, or nobody waits for it any more: what it lends is lost.
    fn drop(&mut self) {
        for (place, answer) in &self.wanted {
            if answer.is_some() {
                self.inner.shared.observer.lots(LotDid::Lost, 1);
            }
            self.told(*place, (0, 0), None);
        }
    }
}
