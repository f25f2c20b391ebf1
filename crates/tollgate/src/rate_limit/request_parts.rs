//! One decision about several heads, for servers that proxies ask: without a service behind the layer.

use std::{fmt, future::IntoFuture as _, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, request::Parts};
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tollgate_core::{Decision, Outcome, RuleSet, Verdict, observe::Timer};

use crate::rate_limit::{
    admit::one_per_rule,
    config::Config,
    decide::{is_preflight, jitter_seed},
    deny::{denial, reject, response_without_quota},
    layer::RateLimitLayer,
    request_rules::{KnownChecks, Refusal, RequestChecks},
};

use crate::head::Head;

/// What a proxy asks about in one call: the head of its client's request, or something that it counts by. See
/// [`RateLimitLayer::decide`].
#[derive(Clone, Debug)]
pub struct RequestPart {
    head: Parts,
    hits: u64,
    is_fragment: bool,
}

impl RequestPart {
    /// The head of a request, which counts once.
    #[must_use]
    pub fn new(head: Parts) -> Self {
        Self {
            head,
            hits: 1,
            is_fragment: false,
        }
    }

    /// How often it counts: so many times the cost that its rules have. 0 looks whether it would pass once, and takes nothing.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        self.hits = hits;
        self
    }

    /// The head says only a part of its request: a rule whose key it lacks does not apply to it, whatever the rule does with
    /// [missing keys](crate::RequestRule::when_missing).
    #[must_use]
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
    #[must_use]
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

impl fmt::Debug for PartsDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartsDecision")
            .field("decision", &self.decision)
            .field("of_part", &self.of_part)
            .finish_non_exhaustive()
    }
}

/// The checks of all parts.
#[derive(Default)]
struct Collected {
    known: KnownChecks,
    of_part: SmallVec<[SmallVec<[u16; 4]>; 4]>,
    /// The checks of parts that only look: 0 here, and their cost for one hit.
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
    /// use tollgate::{MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, key::header, service::RequestPart};
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
    /// assert!(layer.decide(&both, None).await.decision().is_allowed());
    /// // The second part does not fit, so nothing is taken from the first.
    /// let denied = layer.decide(&both, None).await;
    /// assert_eq!(denied.verdicts_of(0).next().unwrap().remaining(), 1);
    /// assert_eq!(denied.into_response().status(), 429);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave units taken.
    pub async fn decide(&self, parts: &[RequestPart], deadline: Option<Instant>) -> PartsDecision {
        let timer = Timer::start();
        let config = self.live().load();
        let collected = match collect(&config, parts).await {
            Ok(collected) => collected,
            Err((head, refusal)) => {
                let response = reject(&config, &head, &refusal);
                return PartsDecision {
                    config,
                    decision: Decision::without_key(),
                    of_part: SmallVec::new(),
                    response,
                };
            }
        };
        let checks = &collected.known.checks;
        let decision = match checks.is_empty() {
            true => Decision::unlimited(0),
            false => {
                let decision = acquire(&config, &collected, deadline).await;
                config.rules.limiter.report(checks, &decision, timer, "");
                decision
            }
        };
        let response = respond(&config, parts, &collected, &decision);
        PartsDecision {
            config,
            decision,
            of_part: collected.of_part,
            response,
        }
    }
}

/// Collects the checks of each part. Of two on the same state the larger counts.
async fn collect<'a>(
    config: &Config,
    parts: &'a [RequestPart],
) -> Result<Collected, (Head<'a>, Box<Refusal>)> {
    let mut all = Collected::default();
    for part in parts {
        let mut of_part = SmallVec::new();
        let head = Head::from(&part.head);
        if config.settings.count_preflight || !is_preflight(&head, false) {
            let mut asked = RequestChecks::default();
            let refused = |refusal| (head, refusal);
            match part.is_fragment {
                true => config.rules.collect_of_fragment(&head, &mut asked),
                false => config.rules.collect(&head, &mut asked),
            }
            .map_err(refused)?;
            let known = match asked.has_look_ups() {
                // Boxed, as all that is rare: a future is moved with each call.
                true => Box::pin(config.rules.look_up(asked))
                    .await
                    .map_err(refused)?,
                false => asked.checks.into(),
            };
            all.known.found.extend(known.found);
            let checks = &mut all.known.checks;
            for check in &known.checks {
                let once = check.cost();
                let check = check.with_cost(once.saturating_mul(part.hits));
                let same = |it: &tollgate_core::Check| {
                    it.rule() == check.rule() && it.key() == check.key()
                };
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
                if part.hits == 0 {
                    all.looks.push((index, once));
                }
                // More would not fit into a call of a store.
                of_part.push(u16::try_from(index).unwrap_or(u16::MAX));
            }
        }
        all.of_part.push(of_part);
    }
    Ok(all)
}

/// Takes what is asked for, unless what is only looked at does not fit.
async fn acquire(config: &Config, collected: &Collected, deadline: Option<Instant>) -> Decision {
    let (limiter, checks) = (&config.rules.limiter, &collected.known.checks);
    if !collected.looks.is_empty()
        && let Some(denied) = Box::pin(look(config, collected, deadline)).await
    {
        return denied;
    }
    let mut attempt = limiter.attempt(checks).within(Duration::ZERO);
    if let Some(deadline) = deadline {
        attempt = attempt.answered_by(deadline);
    }
    attempt.decide().await
}

/// The denial of what is only looked at. A store that fails is answered for later, by the rules.
async fn look(
    config: &Config,
    collected: &Collected,
    deadline: Option<Instant>,
) -> Option<Decision> {
    let mut looked = collected.known.checks.clone();
    for (index, once) in &collected.looks {
        let cost = looked[*index].cost().max(*once);
        looked[*index] = looked[*index].with_cost(cost);
    }
    let seeing = config.rules.limiter.peek(&looked).into_future();
    let seen = match deadline {
        Some(deadline) => timeout_at(deadline, seeing).await.ok(),
        None => Some(seeing.await),
    };
    seen.filter(|seen| seen.outcome() == Outcome::Deny)
}

/// The response, with the fields of each rule once.
fn respond(
    config: &Config,
    parts: &[RequestPart],
    collected: &Collected,
    decision: &Decision,
) -> Response<Bytes> {
    let mut response = Response::default();
    let whole = parts
        .iter()
        .find(|part| !part.is_fragment)
        .or(parts.first());
    if let Some(whole) = whole.filter(|_| !decision.is_allowed()) {
        for (part, of_part) in parts.iter().zip(&collected.of_part) {
            let verdicts = of_part
                .iter()
                .filter_map(|it| decision.verdicts().get(usize::from(*it)));
            config.rules.denied(
                &Head::from(&part.head),
                verdicts,
                decision,
                &collected.known.found,
            );
        }
        let seed = jitter_seed(&collected.known.checks);
        response = response_without_quota(
            config,
            &denial(config, Head::from(&whole.head), decision, seed),
        );
    }
    if config.settings.shows_quota() {
        let verdicts = one_per_rule(decision.verdicts().iter());
        config
            .headers
            .write(response.headers_mut(), &verdicts, config.rules.set());
    }
    response
}
