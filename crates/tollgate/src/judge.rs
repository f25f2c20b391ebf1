//! How a request is judged by its head.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, header, request};
use smallvec::SmallVec;
use tollgate_core::{Check, Checks, Decision, Fingerprint, KeyBuf, Mode, PartKind, Pending, Step};

use crate::{
    config::Config,
    deny::Refusal,
    key::{Extracted, NoKey},
    observe::Timer,
    rule::Missing,
};

/// What was decided about a request.
#[derive(Debug)]
pub(crate) enum Judgement {
    /// It passes, and there is nothing to tell.
    Pass,
    /// It passes; what was asked is kept only where a handler may want it.
    Allow {
        decision: Decision,
        checks: Option<Box<Checks>>,
    },
    /// It does not pass, and the answer was made.
    Rejected(Box<Response<Bytes>>),
    /// It does not pass, and the answer is still to be made from its head, which was not at hand.
    Deny(Box<(Decision, u64)>),
    /// A rule rejects it because it has no key; the answer is still to be made.
    Refuse(Box<Refusal>),
}

/// The checks of a request, as far as they are known.
struct Asked {
    checks: Checks,
    /// Checks whose key is being looked up; their places in `checks` are held by checks of no key.
    later: Vec<(usize, Pending<Result<KeyBuf, NoKey>>)>,
}

impl Config {
    /// Decides about a request by its head. Nothing was told to anybody yet.
    #[inline]
    pub(crate) fn judge(self: &Arc<Self>, head: &request::Parts) -> Step<Judgement> {
        let timer = Timer::start();
        if head.method == Method::OPTIONS && !self.count_preflight && is_preflight(&head.headers) {
            self.observer.preflight();
            return Step::Ready(Judgement::Pass);
        }
        let mut asked = Asked {
            checks: Checks::new(),
            later: Vec::new(),
        };
        if let Err(refusal) = self.ask(head, &mut asked) {
            return Step::Ready(Judgement::Rejected(Box::new(self.refuse(head, &refusal))));
        }
        if !asked.later.is_empty() {
            return Step::Wait(Pending::new(Arc::clone(self).look_up(asked, timer)));
        }
        if asked.checks.is_empty() {
            return Step::Ready(Judgement::Pass);
        }
        match self.limiter.acquire(&asked.checks) {
            Step::Ready(decision) => {
                self.observe(&asked.checks, &decision, timer);
                Step::Ready(if decision.is_allowed() {
                    self.allow(&asked.checks, decision)
                } else {
                    // At once, while everything lies at hand.
                    let response = self.deny(head, &decision, seed_of(&asked.checks));
                    Judgement::Rejected(Box::new(response))
                })
            }
            Step::Wait(answer) => {
                let config = Arc::clone(self);
                Step::Wait(Pending::new(async move {
                    config.judgement(&asked.checks, answer.await, timer)
                }))
            }
        }
    }

    /// Collects the checks of a request.
    #[inline]
    fn ask(&self, head: &request::Parts, asked: &mut Asked) -> Result<(), Box<Refusal>> {
        let mut key = KeyBuf::new();
        for (place, request_rule) in self.rules.iter().enumerate() {
            let (rule, Some(extractor)) = (&request_rule.rule, &request_rule.key) else {
                continue;
            };
            // A rule set has fewer than 65 536 rules.
            let number = place as u16;
            if *rule.mode() == Mode::Off || request_rule.applies.as_ref().is_some_and(|f| !f(head))
            {
                continue;
            }
            if request_rule.exempt.as_ref().is_some_and(|f| f(head)) {
                self.observer.skipped(number);
                continue;
            }
            let plan = request_rule.plan.as_ref().map_or(0, |f| f(head, rule));
            if rule.quota_of(usize::from(plan)).is_unlimited() {
                self.observer.skipped(number);
                continue;
            }
            let cost = request_rule
                .cost
                .as_ref()
                .map_or_else(|| rule.fixed_cost(), |f| f(head));
            key.clear();
            match extractor.extract(head, &mut key) {
                Extracted::Key => {}
                Extracted::Nothing(why) => {
                    if !self.resolve_missing(number, why, &mut key)? {
                        continue;
                    }
                }
                Extracted::Later(answer) => {
                    asked.later.push((asked.checks.len(), answer));
                    let nobody = Fingerprint::from_bits(0);
                    asked
                        .checks
                        .push(Check::new(number, nobody, cost).with_plan(plan));
                    continue;
                }
            }
            let check = self.limiter.check_at(number, &key, cost);
            asked.checks.push(check.with_plan(plan));
        }
        Ok(())
    }

    /// Does what a rule says of a request without a key. Whether to check it all the same: against the shared bucket.
    #[cold]
    fn resolve_missing(
        &self,
        rule: u16,
        why: NoKey,
        key: &mut KeyBuf,
    ) -> Result<bool, Box<Refusal>> {
        if let NoKey::Misconfigured(what) = &why {
            self.observer.misconfigured(rule, what);
        }
        match self.rules[usize::from(rule)].missing {
            // A client that sends its key twice must not switch the rule off by that.
            Missing::Skip if why != NoKey::Ambiguous => {
                self.observer.skipped(rule);
                Ok(false)
            }
            Missing::Shared | Missing::Skip => {
                key.clear();
                key.push(PartKind::SHARED, []);
                Ok(true)
            }
            // A shadow denies nothing.
            Missing::Reject(_) if !self.limiter.rules().enforces(usize::from(rule)) => {
                self.observer.skipped(rule);
                Ok(false)
            }
            Missing::Reject(status) => Err(Box::new(Refusal { rule, status, why })),
        }
    }

    /// Waits for the keys that are looked up, in the order of the rules, then asks the store.
    async fn look_up(self: Arc<Self>, mut asked: Asked, timer: Timer) -> Judgement {
        let mut skipped: SmallVec<[usize; 4]> = SmallVec::new();
        for (place, answer) in asked.later {
            let number = asked.checks[place].rule();
            let mut key = KeyBuf::new();
            match answer.await {
                Ok(found) => key = found,
                Err(why) => match self.resolve_missing(number, why, &mut key) {
                    Ok(true) => {}
                    Ok(false) => {
                        skipped.push(place);
                        continue;
                    }
                    Err(refusal) => return Judgement::Refuse(refusal),
                },
            }
            let placeholder = asked.checks[place];
            asked.checks[place] = self
                .limiter
                .check_at(number, &key, placeholder.cost())
                .with_plan(placeholder.plan());
        }
        for place in skipped.into_iter().rev() {
            asked.checks.remove(place);
        }
        if asked.checks.is_empty() {
            return Judgement::Pass;
        }
        let decision = self.limiter.acquire(&asked.checks).await;
        self.judgement(&asked.checks, decision, timer)
    }

    /// The judgement of a request whose head is not at hand.
    fn judgement(&self, checks: &Checks, decision: Decision, timer: Timer) -> Judgement {
        self.observe(checks, &decision, timer);
        if decision.is_allowed() {
            self.allow(checks, decision)
        } else {
            Judgement::Deny(Box::new((decision, seed_of(checks))))
        }
    }

    #[inline]
    fn allow(&self, checks: &Checks, decision: Decision) -> Judgement {
        if !self.attach && (!self.tells_budget() || decision.verdicts().is_empty()) {
            return Judgement::Pass;
        }
        Judgement::Allow {
            decision,
            checks: self.attach.then(|| Box::new(checks.clone())),
        }
    }

    #[inline]
    fn observe(&self, checks: &Checks, decision: &Decision, timer: Timer) {
        self.observer
            .decided(self.limiter.bound().as_ref(), checks, decision, timer);
    }
}

/// The same for the same client, and another for each: all keys count, since some may be everybody's.
fn seed_of(checks: &[Check]) -> u64 {
    checks.iter().fold(0, |seed: u64, check| {
        // Two rules by one key must not cancel each other out.
        seed.rotate_left(7) ^ check.key().bits() as u64
    })
}

fn is_preflight(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}
