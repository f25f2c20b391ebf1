//! Settings that cannot work: what is wrong with them, and what would be right.

use std::sync::Arc;

use http::StatusCode;
use tollgate_core::{Key, MINUTE, Mode, Rule, RuleError, RuleErrorKind, types::UnknownName};

use crate::{
    header::HeaderStyle,
    rule::{Missing, RequestRule, RequestSettings, SlowDenials},
};

/// Rules in code that are all off are a mistake. A document may switch all of its rules off, through a [`RuleSet`] and a
/// [`Limiter`].
pub(crate) fn refuse_all_off(list: &[RequestRule]) -> Result<(), RuleError> {
    let is_off = |rule: &RequestRule| *rule.settings().rule.mode() == Mode::Off;
    if list.is_empty() || !list.iter().all(is_off) {
        return Ok(());
    }
    let names: Vec<_> = list
        .iter()
        .map(|rule| format!("{:?}", rule.settings().rule.name()))
        .collect();
    Err(RuleError::general(
        RuleErrorKind::RuleSet,
        format!(
            "every rule is off ({}), so the layer would limit nothing; remove the layer, or remove off() from a rule, or \
             replace it by shadow() to only count",
            names.join(", ")
        ),
    ))
}

/// Whether the settings of a rule go together.
pub(crate) fn validate(request_rule: &RequestSettings) -> Result<(), RuleError> {
    let rule: &Rule = &request_rule.rule;
    if let Some(key) = &request_rule.key {
        key.validate()
            .map_err(|wrong| RuleError::new(RuleErrorKind::Key, rule.name(), wrong))?;
    } else if let Some(call) = request_rule.call_about_requests() {
        return Err(RuleError::new(
            RuleErrorKind::Key,
            rule.name(),
            format!(
                "{call} is a setting for the layer, but with by_handler() the handler decides when to check, with which \
                 key and at what cost; remove {call}, or count with by(..)"
            ),
        ));
    }
    if let Some(id) = &request_rule.id {
        id.validate()
            .map_err(|wrong| RuleError::new(RuleErrorKind::Idempotency, rule.name(), wrong))?;
    } else if rule.idempotent_for().is_some() {
        return Err(RuleError::new(
            RuleErrorKind::Idempotency,
            rule.name(),
            "the layer finds no id of a request; say where it is, behind the key: \
             by(..).idempotent(header(\"idempotency-key\"), 10 * MINUTE)",
        ));
    }
    if let Some(mistake) = &request_rule.condition_mistake {
        return Err(RuleError::new(
            RuleErrorKind::RuleSet,
            rule.name(),
            &**mistake,
        ));
    }
    if request_rule.plan.is_some() && rule.quotas() == 1 {
        return Err(RuleError::new(
            RuleErrorKind::Plan,
            rule.name(),
            "plan_by selects a plan, and the rule has none; add plans with plan(name, quota), or remove plan_by",
        ));
    }
    if let Some(call) = request_rule.call_about_responses()
        && rule.has_slots()
    {
        return Err(RuleError::new(
            RuleErrorKind::Quota,
            rule.name(),
            format!(
                "{call} settles units, and a slot goes back when its request ends, whatever the response is; remove {call}, or \
                 limit a rate in a rule of its own"
            ),
        ));
    }
    if let Some(policies) = &request_rule.policies {
        policies.validate(rule)?;
    }
    let unknown = |(_, plan): &&(Key, Arc<str>)| rule.plan_number(plan).is_none();
    if let Some((_, plan)) = request_rule.plans_by_key.iter().find(unknown) {
        let unknown = UnknownName::new("plan", plan, rule.plan_names());
        return Err(RuleError::new(
            RuleErrorKind::Plan,
            rule.name(),
            format!("plan_for_key: {unknown}"),
        ));
    }
    if let Missing::Reject(status) = request_rule.missing {
        refuse_success(status)
            .map_err(|wrong| RuleError::new(RuleErrorKind::Key, rule.name(), wrong.to_string()))?;
    }
    let mut challenges = request_rule.challenges.iter();
    let unknown = |(of, _): &&(Arc<str>, _)| !rule.threshold_names().any(|name| name == &**of);
    if let Some((threshold, _)) = challenges.find(unknown) {
        let unknown = UnknownName::new("threshold", threshold, rule.threshold_names());
        let message = format!("challenge: {unknown}");
        return Err(RuleError::new(RuleErrorKind::Plan, rule.name(), message));
    }
    if let Some(SlowDenials { by, at_most }) = request_rule.slow_denials
        && (by.is_zero() || by > MINUTE || at_most == 0)
    {
        return Err(RuleError::new(
            RuleErrorKind::Wait,
            rule.name(),
            format!(
                "slow_denials({by:?}, {at_most}) holds no denial, or each for too long; take a time of up to a minute, such as \
                 2 * SECOND, and at least one request"
            ),
        ));
    }
    let status = request_rule.blocked_status;
    if !status.is_client_error() {
        return Err(RuleError::new(
            RuleErrorKind::RuleSet,
            rule.name(),
            format!("{status} does not tell a client that it is blocked; take 401, 403 or 429"),
        ));
    }
    Ok(())
}

/// Styles that write one field in two ways.
pub(crate) fn refuse_style(style: HeaderStyle) -> Result<(), RuleError> {
    style
        .validate()
        .map_err(|wrong| RuleError::general(RuleErrorKind::RuleSet, wrong))
}

/// A text that no header field may have.
pub(crate) fn refuse_no_value(text: &str) -> Result<(), RuleError> {
    let refused = |_| {
        let message = format!("{text:?} cannot be the value of a header field");
        RuleError::general(RuleErrorKind::RuleSet, message)
    };
    http::HeaderValue::from_str(text).map(drop).map_err(refused)
}

/// A jitter above 100 % is probably in another unit.
pub(crate) fn refuse_much_jitter(percent: u8) -> Result<(), RuleError> {
    if percent <= 100 {
        return Ok(());
    }
    Err(RuleError::general(
        RuleErrorKind::RuleSet,
        format!(
            "a jitter of {percent} % would more than double the wait; take 0 to 100, 20 is usual"
        ),
    ))
}

/// A denial with a status below 400 would look like a success.
pub(crate) fn refuse_success(status: StatusCode) -> Result<(), RuleError> {
    if status.is_client_error() || status.is_server_error() {
        return Ok(());
    }
    Err(RuleError::general(
        RuleErrorKind::RuleSet,
        format!(
            "{status} does not tell a client that it was denied; take a status of 400 to 599, 429 for a limit"
        ),
    ))
}
