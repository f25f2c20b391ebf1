//! One decision about several heads, for servers that proxies ask: without a service behind the layer.

use std::{future::IntoFuture as _, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, header, request::Parts};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Check, Decision, Outcome, RuleSet, Verdict, observe::Timer, store::Checks};

use crate::{
    head::Head,
    rate_limit::{
        admit::one_per_rule,
        config::Config,
        decide::is_preflight,
        deny::{denial, reject, response_without_quota},
        layer::RateLimitLayer,
        request_rules::{KnownChecks, Refusal},
    },
};

/// What a proxy asks about in one call: the head of its client's request, or something that it counts by. See
/// [`RateLimitLayer::decide`].
#[derive(Clone, Debug)]
pub struct RequestPart {
    /// The head of a request.
    pub head: Parts,
    /// How often it counts: so many times the cost that its rules have. 0 looks whether it would pass once, and takes nothing.
    pub hits: u64,
    /// Whether the head says only a part of its request: a rule whose key it lacks does not apply to it, whatever the rule does with
    /// [missing keys](crate::RequestRule::when_missing).
    pub is_fragment: bool,
}

/// The decision about all [parts](RequestPart) of a request: made by [`RateLimitLayer::decide`].
pub struct PartsDecision {
    config: Arc<Config>,
    decision: Decision,
    /// By part, the indices of its verdicts.
    of_part: SmallVec<[SmallVec<[usize; 4]>; 4]>,
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
        indices.filter_map(|index| self.decision.verdicts().get(*index))
    }

    /// The layer's response: a denial as a service would answer it, or an empty one with the quota's header fields.
    pub fn into_response(self) -> Response<Bytes> {
        self.response
    }
}

tollgate_core::debug_fields!(PartsDecision, it => decision: it.decision, of_part: it.of_part);

/// What is asked about.
struct Asked {
    config: Arc<Config>,
    known: KnownChecks,
    of_part: SmallVec<[SmallVec<[usize; 4]>; 4]>,
    /// The checks of parts that only look: 0 in `known`, and their cost for one hit.
    looks: SmallVec<[(usize, u64); 4]>,
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
    /// let part = |key, hits| -> http::Result<RequestPart> {
    ///     let request = http::Request::get("/").header("x-api-key", key).body(())?;
    ///     Ok(RequestPart { head: request.into_parts().0, hits, is_fragment: false })
    /// };
    /// let both = [part("a", 1)?, part("b", 2)?];
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
    pub async fn decide(
        &self,
        parts: impl IntoIterator<Item = RequestPart>,
        deadline: Option<Instant>,
    ) -> PartsDecision {
        let timer = Timer::start();
        let parts = Vec::from_iter(parts);
        let mut asked = Asked {
            config: self.live().load(),
            known: KnownChecks::default(),
            of_part: SmallVec::with_capacity(parts.len()),
            looks: SmallVec::new(),
        };
        for part in &parts {
            match asked.checks_of(part).await {
                Ok(known) => asked.add(known, part.hits),
                Err(refusal) => {
                    return PartsDecision {
                        response: reject(&asked.config, &Head::from(&part.head), &refusal),
                        config: asked.config,
                        decision: Decision::without_key(refusal.reason()),
                        of_part: SmallVec::new(),
                    };
                }
            }
        }
        let mut decision = Decision::unlimited(0);
        let (limiter, checks) = (&asked.config.rules.limiter, &asked.known.checks);
        if !checks.is_empty() {
            let mut attempt = limiter.attempt(checks).within(Duration::ZERO);
            if let Some(deadline) = deadline {
                attempt = attempt.answered_by(deadline);
            }
            decision = match asked.look(deadline).await {
                Some(denied) => denied,
                None => attempt.decide().await,
            };
            limiter.report(checks, &decision, timer, "");
        }
        PartsDecision {
            response: asked.response(&parts, &decision),
            config: asked.config,
            decision,
            of_part: asked.of_part,
        }
    }
}

impl Asked {
    /// The checks of a part, when their keys are known.
    async fn checks_of(&self, part: &RequestPart) -> Result<KnownChecks, Box<Refusal>> {
        let (rules, head) = (&self.config.rules, Head::from(&part.head));
        let mut checks = Checks::new();
        if !self.config.settings.count_preflight && is_preflight(&head, || says_no_body(&head)) {
            return Ok(KnownChecks::default());
        }
        match rules.collect(&head, part.is_fragment, &mut checks)? {
            None => Ok(checks.into()),
            Some(look_ups) => rules.look_up(checks, look_ups).await,
        }
    }

    /// Adds the checks of the next part. Of two on the same state the larger counts.
    fn add(&mut self, known: KnownChecks, hits: u64) {
        let checks = &mut self.known.checks;
        let mut of_part = SmallVec::new();
        for check in &known.checks {
            let once = check.cost();
            let check = check.with_cost(once.saturating_mul(hits));
            let same = |it: &Check| it.rule() == check.rule() && it.key() == check.key();
            let index = checks.iter().position(same).unwrap_or(checks.len());
            if index == checks.len() {
                checks.push(check);
            } else if checks[index].cost() < check.cost() {
                checks[index] = check;
            }
            if hits == 0 {
                self.looks.push((index, once));
            }
            of_part.push(index);
        }
        self.known.found.extend(known.found);
        self.of_part.push(of_part);
    }

    /// The denial of what is only looked at. A store that fails is answered for later, by the rules.
    async fn look(&self, deadline: Option<Instant>) -> Option<Decision> {
        if self.looks.is_empty() {
            return None;
        }
        let mut looked = Checks::from_slice(&self.known.checks);
        for (index, once) in &self.looks {
            let cost = looked[*index].cost().max(*once);
            looked[*index] = looked[*index].with_cost(cost);
        }
        let seeing = self.config.rules.limiter.peek(&looked).into_future();
        let seen = match deadline {
            Some(deadline) => timeout_at(deadline, seeing).await.ok(),
            None => Some(seeing.await),
        };
        seen.filter(|seen| seen.outcome() == Outcome::Deny)
    }

    /// The response, with the fields of each rule once.
    fn response(&self, parts: &[RequestPart], decision: &Decision) -> Response<Bytes> {
        let config = &self.config;
        let mut response = Response::default();
        let whole = parts
            .iter()
            .find(|part| !part.is_fragment)
            .or(parts.first());
        if let Some(whole) = whole.filter(|_| !decision.is_allowed()) {
            for (part, of_part) in parts.iter().zip(&self.of_part) {
                let verdicts = of_part.iter().filter_map(|it| decision.verdicts().get(*it));
                config.rules.denied(
                    &Head::from(&part.head),
                    verdicts,
                    decision,
                    &self.known.found,
                );
            }
            let head = Head::from(&whole.head);
            let denial = denial(config, head, decision, &self.known.checks);
            response = response_without_quota(config, &denial);
        }
        if config.shows_quota {
            let verdicts = one_per_rule(decision.verdicts().iter());
            let (map, decided) = (response.headers_mut(), config.moment_of(decision));
            config
                .headers
                .write(map, &verdicts, config.rules.set(), decided);
        }
        response
    }
}

/// Whether the fields of a head say that it has no body: there is none to look at.
fn says_no_body(head: &Head<'_>) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH);
    length.is_none_or(|length| length == "0")
        && !head.headers.contains_key(header::TRANSFER_ENCODING)
}
