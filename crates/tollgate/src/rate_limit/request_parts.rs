//! One decision about several heads, for servers that proxies ask: without a service behind the layer.

use std::{future::IntoFuture as _, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, request::Parts};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{
    Check, Decision, Outcome, Pending, RuleSet, Step, Verdict, observe::Timer, store::Checks,
};

use crate::{
    head::Head,
    key::look_ups::LookUps,
    rate_limit::{
        admit::one_per_rule,
        config::Config,
        decide::{is_preflight, jitter_seed},
        deny::{denial, reject, response_without_quota},
        layer::RateLimitLayer,
        request_rules::{KnownChecks, Refusal},
    },
};

/// What a proxy asks about in one call: the head of its client's request, or something that it counts by. See
/// [`RateLimitLayer::decide`].
#[must_use]
#[derive(Clone, Debug)]
pub struct RequestPart {
    head: Parts,
    hits: u64,
    is_fragment: bool,
}

impl RequestPart {
    /// The head of a request, which counts once.
    pub fn new(head: Parts) -> Self {
        Self {
            head,
            hits: 1,
            is_fragment: false,
        }
    }

    /// How often it counts: so many times the cost that its rules have. 0 looks whether it would pass once, and takes nothing.
    pub fn hits(mut self, hits: u64) -> Self {
        self.hits = hits;
        self
    }

    /// The head says only a part of its request: a rule whose key it lacks does not apply to it, whatever the rule does with
    /// [missing keys](crate::RequestRule::when_missing).
    pub fn fragment(mut self) -> Self {
        self.is_fragment = true;
        self
    }
}

/// The decision about all [parts](RequestPart) of a request: made by [`RateLimitLayer::decide`].
pub struct PartsDecision {
    config: Arc<Config>,
    decision: Decision,
    /// By part, the indices of its verdicts.
    of_part: SmallVec<[SmallVec<[u16; 4]>; 4]>,
    response: Response<Bytes>,
}

impl PartsDecision {
    /// The decision. A rule that applies to two parts with one key has one verdict.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The rules that it was made by.
    pub fn rules(&self) -> &RuleSet {
        self.config.rules.set()
    }

    /// The verdicts about the part with this index.
    pub fn verdicts_of(&self, part: usize) -> impl Iterator<Item = &Verdict> {
        let indices = self.of_part.get(part).into_iter().flatten();
        indices.filter_map(|index| self.decision.verdicts().get(usize::from(*index)))
    }

    /// The layer's response: a denial as a service would answer it, or an empty one with the quota's header fields.
    #[must_use]
    pub fn into_response(self) -> Response<Bytes> {
        self.response
    }
}

tollgate_core::debug_fields!(PartsDecision, it => decision: it.decision, of_part: it.of_part);

/// A decision under way.
struct Asking {
    timer: Timer,
    config: Arc<Config>,
    parts: Vec<RequestPart>,
    deadline: Option<Instant>,
    known: KnownChecks,
    of_part: SmallVec<[SmallVec<[u16; 4]>; 4]>,
    /// The checks of parts that only look: 0 in `known`, and their cost for one hit.
    looks: SmallVec<[(usize, u64); 4]>,
}

/// Why a decision cannot be made of what is in the heads.
enum Stop {
    /// A part without a key is rejected.
    Refused(Box<Refusal>),
    /// Keys of the part have to be looked up.
    LookUps(Checks, Box<LookUps>),
}

impl RateLimitLayer {
    /// Decides about several parts of a request, all or nothing, in one step of the store: for a server that proxies ask before they
    /// send a request on. A rule that applies to two parts with the same key counts once, at the larger cost.
    ///
    /// With a `deadline`, a store that has not answered by then has failed: its rules answer by their
    /// [`on_store_error`](crate::Rule::on_store_error).
    ///
    /// There is no response of a service: nothing is settled by it, and a rule that [waits](crate::Rule::wait) denies. The answer holds
    /// the slots of rules that limit how many run at once.
    ///
    /// ```
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header, siblings::RequestPart};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rule = Rule::new("per-key", Quota::gcra(2, MINUTE)).by(header("x-api-key"));
    /// let layer = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    /// let part = |key| -> http::Result<RequestPart> {
    ///     let request = http::Request::get("/").header("x-api-key", key).body(())?;
    ///     Ok(RequestPart::new(request.into_parts().0))
    /// };
    /// let both = [part("a")?, part("b")?.hits(2)];
    /// assert!(layer.decide(both.clone(), None).await.decision().is_allowed());
    /// // The second part does not fit, so nothing is taken from the first.
    /// let denied = layer.decide(both, None).await;
    /// assert_eq!(denied.verdicts_of(0).next().unwrap().remaining(), 1);
    /// assert_eq!(denied.into_response().status(), 429);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave units taken.
    #[doc(hidden)]
    pub fn decide(
        &self,
        parts: impl IntoIterator<Item = RequestPart>,
        deadline: Option<Instant>,
    ) -> Step<PartsDecision> {
        let parts = Vec::from_iter(parts);
        let asking = Asking {
            timer: Timer::start(),
            config: self.live().load(),
            of_part: SmallVec::with_capacity(parts.len()),
            parts,
            deadline,
            known: KnownChecks::default(),
            looks: SmallVec::new(),
        };
        asking.begin()
    }
}

impl Asking {
    fn begin(mut self) -> Step<PartsDecision> {
        match self.collect() {
            Ok(()) => self.acquire(),
            Err(Stop::Refused(refusal)) => Step::Ready(self.refused(&refusal)),
            Err(Stop::LookUps(checks, look_ups)) => Step::Wait(Pending::new(async move {
                match self.config.rules.look_up(checks, look_ups).await {
                    Ok(known) => self.add(known),
                    Err(refusal) => return self.refused(&refusal),
                }
                self.begin().await
            })),
        }
    }

    /// Collects the checks of the parts that are left.
    fn collect(&mut self) -> Result<(), Stop> {
        while let Some(part) = self.parts.get(self.of_part.len()) {
            let (rules, head) = (&self.config.rules, Head::from(&part.head));
            let (mut checks, mut look_ups) = (Checks::new(), None);
            if self.config.settings.count_preflight || !is_preflight(&head, || true) {
                look_ups = rules
                    .collect(&head, part.is_fragment, &mut checks)
                    .map_err(Stop::Refused)?;
            }
            if let Some(look_ups) = look_ups {
                return Err(Stop::LookUps(checks, look_ups));
            }
            self.add(checks.into());
        }
        Ok(())
    }

    /// Adds the checks of the next part. Of two on the same state the larger counts.
    fn add(&mut self, known: KnownChecks) {
        let hits = self.parts[self.of_part.len()].hits;
        let checks = &mut self.known.checks;
        let mut of_part = SmallVec::new();
        for check in &known.checks {
            let once = check.cost();
            let check = check.with_cost(once.saturating_mul(hits));
            let same = |it: &Check| it.rule() == check.rule() && it.key() == check.key();
            let index = match checks.iter().position(same) {
                Some(index) if checks[index].cost() < check.cost() => {
                    checks[index] = check;
                    index
                }
                Some(index) => index,
                None => {
                    checks.push(check);
                    checks.len() - 1
                }
            };
            if hits == 0 {
                self.looks.push((index, once));
            }
            // More would not fit into a call of a store.
            of_part.push(u16::try_from(index).unwrap_or(u16::MAX));
        }
        self.known.found.extend(known.found);
        self.of_part.push(of_part);
    }

    /// A rule rejects the next part, because it has no key.
    fn refused(self, refusal: &Refusal) -> PartsDecision {
        let head = Head::from(&self.parts[self.of_part.len()].head);
        let response = reject(&self.config, &head, refusal);
        PartsDecision {
            config: self.config,
            decision: Decision::without_key(),
            of_part: SmallVec::new(),
            response,
        }
    }

    /// Takes what is asked for, unless what is only looked at does not fit.
    fn acquire(self) -> Step<PartsDecision> {
        if self.known.checks.is_empty() {
            return Step::Ready(self.answer(Decision::unlimited(0)));
        }
        if !self.looks.is_empty() {
            return Step::Wait(Pending::new(async move {
                let decision = match self.look().await {
                    Some(denied) => denied,
                    None => self.take().await,
                };
                self.decided(decision)
            }));
        }
        match self.take() {
            Step::Ready(decision) => Step::Ready(self.decided(decision)),
            Step::Wait(reply) => Step::Wait(Pending::new(async move {
                let decision = reply.await;
                self.decided(decision)
            })),
        }
    }

    fn take(&self) -> Step<Decision> {
        let limiter = &self.config.rules.limiter;
        let mut attempt = limiter.attempt(&self.known.checks).within(Duration::ZERO);
        if let Some(deadline) = self.deadline {
            attempt = attempt.answered_by(deadline);
        }
        attempt.decide()
    }

    /// The denial of what is only looked at. A store that fails is answered for later, by the rules.
    async fn look(&self) -> Option<Decision> {
        let mut looked = self.known.checks.clone();
        for (index, once) in &self.looks {
            let cost = looked[*index].cost().max(*once);
            looked[*index] = looked[*index].with_cost(cost);
        }
        let seeing = self.config.rules.limiter.peek(&looked).into_future();
        let seen = match self.deadline {
            Some(deadline) => timeout_at(deadline, seeing).await.ok(),
            None => Some(seeing.await),
        };
        seen.filter(|seen| seen.outcome() == Outcome::Deny)
    }

    fn decided(self, decision: Decision) -> PartsDecision {
        let limiter = &self.config.rules.limiter;
        limiter.report(&self.known.checks, &decision, self.timer, "");
        self.answer(decision)
    }

    fn answer(self, decision: Decision) -> PartsDecision {
        let response = self.response(&decision);
        PartsDecision {
            config: self.config,
            decision,
            of_part: self.of_part,
            response,
        }
    }

    /// The response, with the fields of each rule once.
    fn response(&self, decision: &Decision) -> Response<Bytes> {
        let (config, parts) = (&self.config, &self.parts);
        let mut response = Response::default();
        let whole = parts
            .iter()
            .find(|part| !part.is_fragment)
            .or(parts.first());
        if let Some(whole) = whole.filter(|_| !decision.is_allowed()) {
            for (part, of_part) in parts.iter().zip(&self.of_part) {
                let verdicts = of_part
                    .iter()
                    .filter_map(|it| decision.verdicts().get(usize::from(*it)));
                config.rules.denied(
                    &Head::from(&part.head),
                    verdicts,
                    decision,
                    &self.known.found,
                );
            }
            let seed = jitter_seed(&self.known.checks);
            response = response_without_quota(
                config,
                &denial(config, Head::from(&whole.head), decision, seed),
            );
        }
        if config.shows_quota {
            let verdicts = one_per_rule(decision.verdicts().iter());
            config
                .headers
                .write(response.headers_mut(), &verdicts, config.rules.set());
        }
        response
    }
}
