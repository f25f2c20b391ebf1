//! The states of a client, by one partition of Redis.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::{
    Check, Consistency, Decision, Limiter,
    decision::{Outcome, Retry, Verdict},
};
use tollgate_core::{Tick, types::KeyPrefix};
use tollgate_redis::{Partition, RedisStore};
use tollgate_rules::operators::Explanation;

use crate::{
    failure::Failure,
    redis_args::{KeyArgs, RedisArgs},
    rules::explained_json,
    time_text,
};

/// The rules that count a client, on their states by one partition.
#[derive(Debug)]
pub(crate) struct States<'a> {
    pub(crate) partition: Partition,
    /// Those that count.
    pub(crate) rules: Vec<&'a Explanation>,
    pub(crate) store: RedisStore,
    pub(crate) limiter: Limiter,
    /// One for each of the rules.
    pub(crate) checks: Vec<Check>,
}

/// What a rule says of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a, 'd> {
    pub(crate) rule: &'a Explanation,
    /// As the service's log and its top keys show the client.
    pub(crate) key: KeyPrefix,
    pub(crate) verdict: &'d Verdict,
    /// The time of the decision by the clock of Redis.
    pub(crate) at: Tick,
}

impl<'a> States<'a> {
    /// Those of the rules that are asked for. `only`: as [`is_asked`] takes it.
    pub(crate) async fn find(
        redis: &RedisArgs,
        keys: &KeyArgs,
        explained: &'a [Explanation],
        partition: Partition,
        only: &[String],
    ) -> Result<Self, Failure> {
        let store = redis.store(keys, partition.clone()).await?;
        let rules: Vec<&Explanation> = explained.iter().filter(|rule| rule.counts()).collect();
        // Whatever processes decide by themselves, this one asks Redis.
        let exact = |rule: &&Explanation| rule.limiter_rule.clone().consistency(Consistency::Exact);
        let limiter = Limiter::new(store.clone(), rules.iter().map(exact));
        let limiter = limiter.map_err(Failure::failed)?;
        let mut checks = Vec::new();
        for rule in &rules {
            let name = rule.limiter_rule.name();
            // What counts has a key.
            let Some(key) = &rule.key else { continue };
            let check = match &rule.plan {
                Some(plan) => limiter.check_with_plan(name, plan, key),
                None => limiter.check(name, key),
            };
            // A rule that only tells where the others lie is not touched.
            let units = if is_asked(only, &rule.rule) {
                rule.units
            } else {
                0
            };
            checks.push(check.map_err(Failure::failed)?.with_cost(units));
        }
        Ok(Self {
            partition,
            rules,
            store,
            limiter,
            checks,
        })
    }

    /// What each rule says, in the order of the rules.
    pub(crate) fn verdicts<'d>(
        &self,
        decision: &'d Decision,
    ) -> impl Iterator<Item = Said<'a, 'd>> {
        decision.verdicts().iter().filter_map(|verdict| {
            Some(Said {
                rule: self.rules.get(verdict.rule())?,
                key: self.checks.get(verdict.rule())?.key().prefix(),
                verdict,
                at: decision.at(),
            })
        })
    }
}

/// Whether a command is about this rule: where `only` names none, about all.
pub(crate) fn is_asked(only: &[String], rule: &str) -> bool {
    only.is_empty() || only.iter().any(|name| name == rule)
}

/// Whether anything is used.
pub(crate) fn has_state(verdict: &Verdict) -> bool {
    verdict.reset_after_ticks() > 0
}

/// Whether a request would pass the rule now.
pub(crate) fn outcome(said: &Said<'_, '_>) -> String {
    let Said { verdict, at, .. } = *said;
    if let Some((age, level)) = block_age(said).zip(verdict.block_level()) {
        // The limit may deny for longer.
        let left = time_text::from(at, verdict.reset_after());
        let age = time_text::duration(age);
        return format!("blocked for {left}, level {level} since {age}");
    }
    match (verdict.outcome(), verdict.retry()) {
        (_, Retry::After(left)) if verdict.is_blocked() => {
            format!("blocked for {}", time_text::from(at, left))
        }
        _ if verdict.is_blocked() => "blocked".to_owned(),
        (Outcome::Allow, _) => "allowed".to_owned(),
        (Outcome::Deny, Retry::After(after)) => {
            format!("denied, retry after {}", time_text::from(at, after))
        }
        (Outcome::Deny, Retry::Never) => "denied: it costs more than ever fits".to_owned(),
        (Outcome::Deny, _) => "denied".to_owned(),
        _ => "not decided: Redis has failed".to_owned(),
    }
}

/// How long ago the growing block began that is in force.
fn block_age(said: &Said<'_, '_>) -> Option<Duration> {
    let block = said.rule.limiter_rule.block_setting()?;
    let time = block.time_of(said.verdict.block_level()?);
    let left = said.verdict.reset_after_ticks();
    Some(Duration::from_micros(time.saturating_sub(left)))
}

/// A rule and its verdict, for programs, with what is `left` whatever a request costs.
pub(crate) fn verdict_json(said: &Said<'_, '_>, left: &Verdict) -> Value {
    let Said { verdict, at, .. } = *said;
    let mut json = explained_json(said.rule);
    json["key"] = json!(said.key.to_string());
    json["blocked"] = json!(verdict.is_blocked());
    json["block_level"] = json!(verdict.block_level());
    let time = |after| time_text::time(time_text::then(at, after));
    let begun = |age| time_text::time(time_text::then(at, Duration::ZERO) - age);
    json["blocked_since"] = json!(block_age(said).map(begun));
    let retry = match verdict.retry() {
        Retry::After(after) => Some(after),
        _ => None,
    };
    json["retry_after_seconds"] = json!(retry.map(|after| after.as_secs_f64()));
    json["retry_at"] = json!(retry.map(time));
    json["allowed"] = json!(verdict.outcome() == Outcome::Allow);
    json["remaining"] = json!(left.remaining());
    json["debt"] = json!(left.debt());
    json["reset_after_seconds"] = json!(left.reset_after().as_secs_f64());
    json["reset_at"] = json!(time(left.reset_after()));
    json["has_state"] = json!(has_state(left));
    json
}
