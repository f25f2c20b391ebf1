//! Settings that cannot work: what is wrong with them, and what would be right.

use http::StatusCode;
use tollgate_core::{MINUTE, Rule, RuleError, RuleErrorKind as K, types::CheckPolicy};

use crate::{
    diagnostics::wrong_setting,
    request_settings::{Missing, RequestSettings, SlowDenials},
};

/// Whether the settings of a rule go together.
pub(crate) fn validate(request_rule: &RequestSettings) -> Result<(), RuleError> {
    let rule: &Rule = &request_rule.rule;
    let wrong = |kind, text: String| Err(RuleError::new(kind, rule.name(), text));
    if let Some(key) = &request_rule.key {
        key.validate().or_else(|text| wrong(K::Key, text))?;
    } else if let Some(call) = request_rule.call_about_requests() {
        let text = format!(
            "{call} is a setting for the layer, but with by_handler() the handler decides when to check, with which key and at \
             what cost; remove {call}, or count with by(..)"
        );
        return wrong(K::Key, text);
    }
    if let Some(id) = &request_rule.id {
        id.validate().or_else(|text| wrong(K::Idempotency, text))?;
    } else if rule.idempotent_for().is_some() {
        let text = "the layer finds no id of a request; say where it is, behind the key: \
                    by(..).idempotent(header(\"idempotency-key\"), 10 * MINUTE)";
        return wrong(K::Idempotency, text.to_owned());
    }
    if let Some(mistake) = &request_rule.condition_mistake {
        return wrong(K::RuleSet, mistake.to_string());
    }
    if request_rule.plan.is_some() && rule.quotas() == 1 {
        let text = "plan_by selects a plan, and the rule has none; add plans with plan(name, quota), or remove plan_by";
        return wrong(K::Plan, text.to_owned());
    }
    if let Some(call) = request_rule.call_about_responses()
        && rule.has_slots()
    {
        let text = format!(
            "{call} settles units, and a slot goes back when its request ends, whatever the response is; remove {call}, or limit \
             a rate in a rule of its own"
        );
        return wrong(K::Quota, text);
    }
    for (_, answer) in &request_rule.store_errors {
        if *answer != rule.store_error_answer()
            && let Err(mistake) = CheckPolicy::default().on_store_error(*answer)
        {
            return wrong(K::Mode, format!("on_store_error_when: {mistake}"));
        }
    }
    for (_, plan) in &*request_rule.plans_by_key {
        if rule.plan_number(plan).is_none() {
            let unknown = RuleError::unknown("plan", plan, rule.plan_names());
            return wrong(K::Plan, format!("plan_for_key: {unknown}"));
        }
    }
    if let Missing::Reject(status) = request_rule.missing {
        refuse_success(status).or_else(|text| wrong(K::Key, text.to_string()))?;
    }
    for (threshold, _) in &request_rule.challenges {
        if !rule.threshold_names().any(|name| name == &**threshold) {
            let unknown = RuleError::unknown("threshold", threshold, rule.threshold_names());
            return wrong(K::Plan, format!("challenge: {unknown}"));
        }
    }
    if let Some(SlowDenials { by, at_most }) = request_rule.slow_denials
        && (by.is_zero() || by > MINUTE || at_most == 0)
    {
        let text = format!(
            "slow_denials({by:?}, {at_most}) holds no denial, or each for too long; take a time of up to a minute, such as \
             2 * SECOND, and at least one request"
        );
        return wrong(K::Wait, text);
    }
    let status = request_rule.blocked_status;
    if !status.is_client_error() {
        let text =
            format!("{status} does not tell a client that it is blocked; take 401, 403 or 429");
        return wrong(K::RuleSet, text);
    }
    Ok(())
}

/// A denial with a status below 400 would look like a success.
pub(crate) fn refuse_success(status: StatusCode) -> Result<(), RuleError> {
    if status.is_client_error() || status.is_server_error() {
        return Ok(());
    }
    Err(wrong_setting(format!(
        "{status} does not tell a client that it was denied; take a status of 400 to 599, 429 for a limit"
    )))
}
