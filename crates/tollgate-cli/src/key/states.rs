//! Which client, under which rules, and its states by one partition of Redis.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tollgate::{
    Check, Consistency, Decision, Limiter,
    decision::{Outcome, Retry, Verdict},
};
use tollgate_core::{RuleError, Tick, types::KeyPrefix};
use tollgate_ledger::Ledger;
use tollgate_redis::{Partition, RedisStore};
use tollgate_rules::{
    RuleDocument,
    operators::{Explained, Explanation},
};

use crate::{
    args::{KeyArgs, RedisArgs, RequestArgs},
    report::{self, Failure},
    rule_args::StateArgs,
    rules::explained_json,
};

/// A client of one rule.
#[derive(Args, Debug)]
pub(crate) struct NamedClient {
    /// The name of the rule.
    pub(crate) rule: String,

    /// The client as it is known: its API key, its address, its tenant; one text for each part that the rule counts by.
    #[arg(required = true)]
    pub(crate) key: Vec<String>,
}

impl NamedClient {
    /// What a rule does with it.
    pub(crate) fn explained(
        &self,
        document: &RuleDocument,
        rule: &str,
    ) -> Result<Explanation, Failure> {
        let parts = self.key.iter().flat_map(|part| part.split('\t'));
        let explained = document.explain_key(rule, &parts.collect::<Vec<_>>());
        explained.map_err(|wrong| Failure::usage(wrong.to_string()))
    }
}

/// Which client, and under which rules.
#[derive(Args, Debug)]
pub(crate) struct ClientArgs {
    /// The client as it is known: its API key, its address, its tenant; one text for each part that the rule counts by, or tabs between them.
    #[arg(value_name = "PART")]
    parts: Vec<String>,

    /// Only this rule; may be given several times.
    #[arg(long = "rule", value_name = "NAME")]
    pub(super) only: Vec<String>,

    #[command(flatten)]
    request: Option<RequestArgs>,

    #[command(flatten)]
    pub(crate) states: StateArgs,
}

impl ClientArgs {
    /// What the rules do with the client: those that count, and those that refuse or skip it.
    pub(crate) async fn explained(&self) -> Result<Vec<Explanation>, Failure> {
        let document = self.states.document().await?;
        let is_unknown = |name: &&String| document.names().all(|known| known != **name);
        if let Some(name) = self.only.iter().find(is_unknown) {
            let unknown = RuleError::unknown("rule", name, document.names());
            return Err(Failure::usage(format!("--rule: {unknown}")));
        }
        let mut explained = match (self.parts.is_empty(), &self.request) {
            (false, None) => self.by_parts(&document)?,
            (true, Some(request)) => document.explain(&request.head()?),
            (true, None) => {
                return Err(Failure::usage(
                    "which client? Give its API key or address, such as `acme-key-1`, or a request, such as \
                     `--path /search -H 'x-api-key: acme-key-1'`",
                ));
            }
            (false, Some(_)) => {
                return Err(Failure::usage(
                    "a client is given by its parts or by a request, and here are both; leave out one of them",
                ));
            }
        };
        explained.retain(|it| is_asked(&self.only, &it.rule) || self.lies_with(&it.rule));
        // Whether such a client passes is not known here.
        let is_open = |rule: &Explanation| {
            matches!(
                rule.outcome,
                Explained::DependsOnRequest | Explained::LeftToHandler | Explained::Elsewhere
            )
        };
        match uncounted(&explained) {
            Some(lines) if explained.iter().any(is_open) => Err(Failure::usage(lines)),
            _ => Ok(explained),
        }
    }

    /// Whether states lie with the client of this rule, so that it is needed to find them.
    fn lies_with(&self, rule: &str) -> bool {
        let partition = self.states.keys.partition.as_ref();
        partition.is_some_and(|named| matches!(named, Partition::ByRule(with) if **with == *rule))
    }

    /// Under each rule whose key may have these parts.
    fn by_parts(&self, document: &RuleDocument) -> Result<Vec<Explanation>, Failure> {
        let parts = self.parts.iter().flat_map(|part| part.split('\t'));
        let parts: Vec<&str> = parts.collect();
        let (mut explained, mut refused) = (Vec::new(), None);
        for rule in document.names().filter(|name| is_asked(&self.only, name)) {
            match document.explain_key(rule, &parts) {
                Ok(rule) => explained.push(rule),
                // A rule that was asked for has to take it.
                Err(wrong) if !self.only.is_empty() => {
                    return Err(Failure::usage(wrong.to_string()));
                }
                Err(wrong) => refused = Some(wrong),
            }
        }
        match refused {
            Some(wrong) if explained.is_empty() => Err(Failure::usage(format!(
                "this is not a key of any rule; the last one says: {wrong}"
            ))),
            _ => Ok(explained),
        }
    }
}

/// What a rule does, and what would say more.
fn line(rule: &Explanation) -> String {
    let more = match rule.outcome {
        Explained::DependsOnRequest => ": give its head with -H",
        Explained::Elsewhere => ": look from there with --at",
        _ => "",
    };
    format!("\n{}: {}{more}", rule.rule, rule.outcome)
}

/// The rules that may block the client, a line and a part of the JSON for each.
pub(super) fn undecided(explained: &[Explanation]) -> (String, Vec<Value>) {
    let rules = (explained.iter()).filter(|it| it.outcome == Explained::DependsOnRequest);
    rules.map(|rule| (line(rule), explained_json(rule))).unzip()
}

/// Why no rule counts or refuses the client, if it is so.
pub(super) fn uncounted(explained: &[Explanation]) -> Option<String> {
    let concerns =
        |rule: &Explanation| rule.counts() || matches!(rule.outcome, Explained::Rejects(_));
    if explained.iter().any(concerns) {
        return None;
    }
    let why = explained.iter().map(line).collect::<String>();
    Some(format!(
        "no rule counts this{}\n`tollgate rules explain` says more",
        why.replace('\n', "\n  ")
    ))
}

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
    /// What is left: the verdict of a look that costs nothing, or the same one again.
    pub(crate) left: &'d Verdict,
    /// The time of the decision by the clock of Redis.
    pub(crate) at: Tick,
}

impl<'a> States<'a> {
    /// Those of the rules that are asked for. `only`: as [`is_asked`] takes it. `changes`: whether any is to change. `ledger`: where that
    /// is written.
    pub(crate) async fn find(
        redis: &RedisArgs,
        keys: &KeyArgs,
        explained: &'a [Explanation],
        partition: Partition,
        only: &[String],
        changes: bool,
        ledger: Option<&Ledger>,
    ) -> Result<Self, Failure> {
        let store = redis.store(keys, partition.clone(), changes).await?;
        let rules: Vec<&Explanation> = explained.iter().filter(|rule| rule.counts()).collect();
        // Whatever processes decide by themselves, this one asks Redis.
        let exact = |rule: &&Explanation| rule.limiter_rule.clone().consistency(Consistency::Exact);
        let limiter =
            Limiter::new(store.clone(), rules.iter().map(exact)).map_err(Failure::failed)?;
        if let Some(ledger) = ledger {
            ledger.attach(&limiter)?;
        }
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

    /// What each rule says of a request, with what is `left`, in the order of the rules.
    pub(crate) fn said<'d>(
        &self,
        decision: &'d Decision,
        left: &'d Decision,
    ) -> impl Iterator<Item = Said<'a, 'd>> {
        let verdicts = decision.verdicts().iter().zip(left.verdicts());
        verdicts.filter_map(|(verdict, left)| {
            Some(Said {
                rule: self.rules.get(verdict.rule())?,
                key: self.checks.get(verdict.rule())?.key().prefix(),
                verdict,
                left,
                at: decision.at(),
            })
        })
    }
}

/// Whether a command is about this rule: where `only` names none, about all.
pub(crate) fn is_asked(only: &[String], rule: &str) -> bool {
    only.is_empty() || only.iter().any(|name| name == rule)
}

impl Said<'_, '_> {
    /// Whether anything is used.
    pub(crate) fn has_state(&self) -> bool {
        self.left.reset_after_ticks() > 0
    }

    /// Whether a request would pass the rule now.
    pub(crate) fn outcome(&self) -> String {
        let Self { verdict, at, .. } = *self;
        if let Some((age, level)) = self.block_age().zip(verdict.block_level()) {
            // The limit may deny for longer.
            let left = report::from(at, verdict.reset_after());
            let age = report::duration(age);
            return format!("blocked for {left}, level {level} since {age}");
        }
        match (verdict.outcome(), verdict.retry()) {
            (_, Retry::After(left)) if verdict.is_blocked() => {
                format!("blocked for {}", report::from(at, left))
            }
            _ if verdict.is_blocked() => "blocked".to_owned(),
            (Outcome::Allow, _) => "allowed".to_owned(),
            (Outcome::Deny, Retry::After(after)) => {
                format!("denied, retry after {}", report::from(at, after))
            }
            (Outcome::Deny, Retry::Never) => "denied: it costs more than ever fits".to_owned(),
            (Outcome::Deny, _) => "denied".to_owned(),
            _ => "not decided: Redis has failed".to_owned(),
        }
    }

    /// How long ago the growing block began that is in force.
    fn block_age(&self) -> Option<Duration> {
        let block = self.rule.limiter_rule.block_setting()?;
        let time = block.time_of(self.verdict.block_level()?);
        let left = self.verdict.reset_after_ticks();
        Some(Duration::from_micros(time.saturating_sub(left)))
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let Self { verdict, left, .. } = *self;
        let now = report::then(self.at, Duration::ZERO);
        let retry = match verdict.retry() {
            Retry::After(after) => Some(after),
            _ => None,
        };
        let mut json = explained_json(self.rule);
        json["key"] = json!(self.key.to_string());
        json["blocked"] = json!(verdict.is_blocked());
        json["block_level"] = json!(verdict.block_level());
        json["blocked_since"] = json!(self.block_age().map(|age| report::time(now - age)));
        json["retry_after_seconds"] = json!(retry.map(|after| after.as_secs_f64()));
        json["retry_at"] = json!(retry.map(|after| report::time(report::then(self.at, after))));
        json["allowed"] = json!(verdict.outcome() == Outcome::Allow);
        json["remaining"] = json!(left.remaining());
        json["debt"] = json!(left.debt());
        json["reset_after_seconds"] = json!(left.reset_after().as_secs_f64());
        json["reset_at"] = json!(report::time(report::then(self.at, left.reset_after())));
        json["has_state"] = json!(self.has_state());
        json
    }
}
