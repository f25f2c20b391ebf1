//! A client, by what an operator knows of it: a line of its headers, its address, or the text that an override has.

use std::{net::IpAddr, time::Duration};

use http::{HeaderName, HeaderValue, Method, Request, Uri, request::Parts};
use serde_json::{Value, json};
use tollgate::{
    Check, Key, RateLimitLayer,
    decision::{Outcome, Retry, Verdict},
    key::PeerAddr,
};
use tollgate_core::{Mode, Rule, observe::TopKey};

use crate::{
    console::Shared,
    response::{Answer, Wrong},
};

/// The longest text that is taken.
const LONGEST: usize = 8_192;

/// What is known of a client. It is not kept, and no log has it.
pub(crate) struct Client {
    head: Parts,
    /// The parts of its key, as an override names them; `None`: it is described by headers.
    texts: Option<Vec<String>>,
}

impl Client {
    /// From lines: headers, as `x-api-key: acme`, an address, or the parts of a key.
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        if text.len() > LONGEST {
            return Err(Wrong::input(format!(
                "a client of {} bytes is above {LONGEST}",
                text.len()
            )));
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.collect();
        if lines.is_empty() {
            return Err(Wrong::input(
                "which client? Write a header as x-api-key: acme, an address, or the key as an override has it",
            ));
        }
        let (mut head, ()) = Request::new(()).into_parts();
        let mut has_header = false;
        for line in &lines {
            if let Ok(address) = line.parse::<IpAddr>() {
                head.extensions.insert(PeerAddr((address, 0).into()));
            } else if let Some((name, value)) = header(line) {
                head.headers.append(name, value);
                has_header = true;
            }
        }
        let texts = lines.into_iter().map(str::to_owned).collect();
        Ok(Self {
            head,
            texts: (!has_header).then_some(texts),
        })
    }

    /// The texts that an override of a rule has for it.
    pub(crate) fn texts(&self) -> Result<&[String], Wrong> {
        self.texts.as_deref().ok_or_else(|| {
            Wrong::input("an override names a key alone: without the name of a header, and with one part of it a line")
        })
    }

    /// Its key under each rule of a layer that has one for it.
    async fn keys(&self, shared: &Shared, layer: &RateLimitLayer) -> Vec<(String, Key)> {
        let mut keys = Vec::new();
        if let (Some(texts), Some(rules)) = (&self.texts, &shared.parts.rules) {
            let document = rules.document();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            // Not every client is one of every rule.
            let explained = document
                .names()
                .filter_map(|rule| document.explain_key(rule, &texts).ok());
            for rule in explained.filter(|rule| rule.counts()) {
                if let Some(key) = rule.key {
                    keys.push((rule.limiter_rule.name().to_owned(), key.clone()));
                }
            }
        }
        // A key that comes from the path or the method is none of a client.
        let mut other = self.head.clone();
        (other.uri, other.method) = (Uri::from_static("/-?-"), Method::PUT);
        for rule in layer.limiter().rules().given() {
            if keys.iter().all(|(name, _)| name != rule.name())
                && let Some(key) = layer.look_up_key_of(rule.name(), &self.head).await
                && layer.look_up_key_of(rule.name(), &other).await.as_ref() == Some(&key)
            {
                keys.push((rule.name().to_owned(), key));
            }
        }
        keys
    }
}

/// A header line, whose colon is followed by a space: keys have colons too.
pub(crate) fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(": ")?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    Some((name, HeaderValue::from_str(value.trim()).ok()?))
}

/// What each rule has of a client. Nothing is taken.
pub(crate) async fn look_up(shared: &Shared, text: &str) -> Answer {
    let client = Client::parse(text)?;
    let mut rules = Vec::new();
    for (_, layer) in &shared.parts.layers {
        let (keys, inspection) = (client.keys(shared, layer).await, layer.inspection());
        let limiter = inspection.limiter();
        let check = |(rule, key): &(String, Key)| inspection.check_of(rule, key);
        let checks: Vec<Check> = keys.iter().filter_map(check).collect();
        if checks.is_empty() {
            continue;
        }
        let decision = limiter.peek(&checks).await;
        // What is left now, whatever a request costs.
        let free: Vec<Check> = checks.iter().map(|check| check.with_cost(0)).collect();
        let now = limiter.peek(&free).await;
        let verdicts = decision.verdicts().iter().zip(now.verdicts());
        for (check, (verdict, now)) in checks.iter().zip(verdicts) {
            let Some(rule) = limiter.rules().rules().get(verdict.rule()) else {
                continue;
            };
            let mut shown = verdict_json(rule, verdict);
            shown["remaining"] = verdict_json(rule, now)["remaining"].clone();
            if let Some((block, level)) = rule.block_setting().zip(verdict.block_level()) {
                let left = verdict.reset_after_ticks();
                let began = block.time_of(level).saturating_sub(left);
                shown["level"] = json!(level);
                shown["blocked_for"] = json!(Duration::from_micros(began).as_secs_f64());
            }
            shown["rule"] = json!(rule.name());
            shown["shadow"] = json!(*rule.mode() == Mode::Shadow);
            shown["key"] = json!(check.key().prefix().to_string());
            rules.push(shown);
        }
    }
    if rules.is_empty() {
        return Err(Wrong::input(
            "no rule has a key like that; write a header as x-api-key: acme, an address, or the key as an override has it, one part a line",
        ));
    }
    Ok(json!({ "rules": rules }))
}

/// A verdict and its quota, for the page.
pub(crate) fn verdict_json(rule: &Rule, verdict: &Verdict) -> Value {
    let outcome = match (verdict.outcome(), verdict.retry()) {
        (Outcome::Allow, _) => "would pass",
        (Outcome::Deny, _) if verdict.is_blocked() => "blocked",
        (Outcome::Deny, Retry::Never) => "denied: it costs more than ever fits",
        (Outcome::Deny, _) => "denied",
        _ if *rule.mode() == Mode::Off => "not counted: the rule is off",
        _ => "not decided: the store fails",
    };
    let retry = verdict.retry().delay().map(|it| it.as_secs_f64());
    let is_known = verdict.knows_remaining();
    let plan = rule.plan_name(verdict.plan());
    json!({
        "limit": rule.quota_under(verdict.plan()).to_string(),
        "plan": plan.map(|plan| if is_override(plan) { "an override" } else { plan }),
        "outcome": outcome,
        "allowed": verdict.outcome() == Outcome::Allow,
        "remaining": is_known.then(|| verdict.remaining()),
        "retry": retry.filter(|_| verdict.outcome() == Outcome::Deny),
        "reset": verdict.reset_after().as_secs_f64(),
    })
}

/// Whether a document calls the limits of overrides so, and not a plan.
pub(crate) fn is_override(plan: &str) -> bool {
    plan.starts_with("override ")
}

/// Forgets what a client has used of a rule. Says whether there was anything.
pub(crate) async fn reset(shared: &Shared, rule: &str, text: &str) -> Result<bool, Wrong> {
    let client = Client::parse(text)?;
    let (mut found, mut had_state) = (false, false);
    for (_, layer) in &shared.parts.layers {
        let limiter = layer.limiter();
        for (name, key) in client.keys(shared, layer).await {
            if name == rule
                && let Ok(answer) = limiter.reset(rule, &key)
            {
                found = true;
                had_state |= answer.await.map_err(Wrong::input)?;
            }
        }
    }
    match found {
        true => Ok(had_state),
        false => Err(Wrong::input(format!(
            "rule {rule:?} does not count a client like that"
        ))),
    }
}

/// The keys with the most denials, or the highest cost, of all rules that keep them.
pub(crate) fn top(shared: &Shared) -> Value {
    let (mut keys, mut keeping) = (Vec::new(), 0);
    for (_, layer) in &shared.parts.layers {
        let limiter = layer.limiter();
        let given = limiter.rules().given().iter();
        for rule in given.filter(|rule| rule.keeps_top_keys()) {
            keeping += 1;
            // The name is one of the limiter's own.
            for key in limiter
                .top_keys(rule.name(), usize::MAX)
                .unwrap_or_default()
            {
                keys.push((rule.name().to_owned(), key));
            }
        }
    }
    let mut shown = |by: fn(&TopKey) -> u64| {
        keys.sort_by_key(|(_, key)| std::cmp::Reverse(by(key)));
        let most = keys
            .iter()
            .filter(|(_, key)| by(key) > 0)
            .take(20)
            .map(|(rule, key)| {
                json!({
                    "rule": rule,
                    "key": key.key.to_string(),
                    "label": key.label,
                    "requests": key.at_least,
                    "denials": key.denials,
                    "cost": key.cost,
                })
            });
        most.collect::<Vec<_>>()
    };
    let (denied, cost) = (shown(|key| key.denials), shown(|key| key.cost));
    json!({ "keeping": keeping, "denied": denied, "cost": cost })
}
