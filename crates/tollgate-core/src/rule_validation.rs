//! Whether the settings of a rule go together, and what would be right.

use std::{collections::HashSet, fmt};

use crate::{
    algorithm_kind::AlgorithmKind,
    check_policy::OnStoreError,
    consistency::Consistency,
    error::{RuleError, RuleErrorKind},
    quota::{MAX_PERIOD, MAX_UNITS, Quota},
    quota_conflict::{debt_conflict, plan_conflict, wait_conflict},
    rule::Rule,
};

/// Whether the settings of a rule go together.
pub(crate) fn validate(rule: &Rule) -> Result<(), RuleError> {
    validate_name(rule.name())?;
    validate_unit(rule)?;
    let quota = |quota: &Quota, of: &dyn fmt::Display| {
        quota
            .validate()
            .map_err(|error| rule.error(RuleErrorKind::Quota, format!("{of}{error}")))
    };
    quota(rule.quota(), &"")?;
    let is_limited = |quota: &&Quota| quota.has_state();
    let mut limited = Some(rule.quota()).filter(is_limited);
    let mut names = HashSet::new();
    for (index, name) in rule.plan_names().enumerate() {
        let plan = rule.quota_of(index + 1);
        quota(plan, &format_args!("plan {name:?}: "))?;
        if let Some(other) = limited
            && let Some(wrong) = plan_conflict(plan, other)
        {
            return Err(rule.error(RuleErrorKind::Plan, format!("plan {name:?} {wrong}")));
        }
        if !names.insert(name) {
            return Err(rule.error(
                RuleErrorKind::Plan,
                format!("there are two plans {name:?}; give each a name of its own"),
            ));
        }
        limited = limited.or(Some(plan).filter(is_limited));
    }
    if rule.quotas() > usize::from(u16::MAX) {
        return Err(rule.error(RuleErrorKind::Plan, "more than 65 534 plans"));
    }
    if let OnStoreError::Cap(cap) = rule.store_error_answer() {
        quota(&cap, &"cap for store failures: ")?;
        if cap.is_none() {
            return Err(rule.error(
                RuleErrorKind::Quota,
                "a cap of none for store failures denies all; take OnStoreError::Deny",
            ));
        }
    }
    validate_cost(rule)?;
    validate_wait(rule)?;
    validate_debt(rule)?;
    validate_durable(rule)?;
    validate_credits(rule)?;
    validate_block(rule)?;
    validate_idempotency(rule)?;
    validate_consistency(rule)
}

fn validate_wait(rule: &Rule) -> Result<(), RuleError> {
    let max_waiting = rule.max_waiting_of();
    if max_waiting.per_key == 0 || max_waiting.in_all == 0 {
        return Err(rule.error(
            RuleErrorKind::Wait,
            "with room for 0 requests none could wait; take at least 1, or leave wait() out to deny at once",
        ));
    }
    let Some(at_most) = rule.at_most_wait() else {
        return Ok(());
    };
    let wrong = |message| Err(rule.error(RuleErrorKind::Wait, message));
    if at_most.is_zero() || at_most > MAX_PERIOD {
        return wrong(format!(
            "a wait of at most {at_most:?} is not between 1 µs and {MAX_PERIOD:?}; take less than the timeout of your clients, \
             such as 5 * SECOND, or leave wait() out to deny at once"
        ));
    }
    if !at_most.subsec_nanos().is_multiple_of(1_000) {
        return wrong(format!(
            "a wait of at most {at_most:?} is not a whole number of microseconds, in which time is counted"
        ));
    }
    for plan in 0..rule.quotas() {
        if let Some(conflict) = wait_conflict(rule.quota_of(plan), at_most) {
            return wrong(conflict);
        }
    }
    if matches!(rule.consistency_of(), Consistency::Eventual { .. }) {
        return wrong(
            "requests wait in the order of the store, and under Consistency::Eventual each process decides by itself; take \
             Consistency::Exact"
                .into(),
        );
    }
    Ok(())
}

fn validate_debt(rule: &Rule) -> Result<(), RuleError> {
    let Some(at_most) = rule.debt_setting() else {
        return Ok(());
    };
    let wrong = |message: String| Err(rule.error(RuleErrorKind::Debt, message));
    if at_most == 0 {
        return wrong(
            "a debt of 0 units allows none; take what a request may cost more than it took first, or leave debt() out: what is not \
             there lapses then"
                .into(),
        );
    }
    if rule.at_most_wait().is_some() {
        return wrong(
            "where requests wait, those behind know when they start, and a charge would come before them; leave wait() out, or \
             debt()"
                .into(),
        );
    }
    if matches!(rule.consistency_of(), Consistency::Eventual { .. }) {
        return wrong(
            "under Consistency::Eventual each process counts by itself, and the store does not know when a debt is paid; take \
             Consistency::Exact or Consistency::Leased"
                .into(),
        );
    }
    if at_most > MAX_UNITS {
        return wrong(format!("a debt of {at_most} units is above {MAX_UNITS}"));
    }
    let mut quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
    quotas
        .find_map(|quota| debt_conflict(quota, at_most))
        .map_or(Ok(()), wrong)
}

fn validate_durable(rule: &Rule) -> Result<(), RuleError> {
    if !rule.is_durable() {
        return Ok(());
    }
    let wrong = |message: String| Err(rule.error(RuleErrorKind::Mode, message));
    let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
    let windowless = quotas
        .filter(|quota| quota.has_state())
        .find(|quota| quota.algorithm() != AlgorithmKind::FixedWindow);
    if let Some(quota) = windowless {
        return wrong(format!(
            "a ledger has an account of each window, and a {} has no windows; take Quota::fixed_window or Quota::calendar, or leave \
             durable() out",
            quota.algorithm()
        ));
    }
    if matches!(rule.consistency_of(), Consistency::Eventual { .. }) {
        return wrong(
            "under Consistency::Eventual each process counts by itself, and a store that has lost its states would not be noticed; take \
             Consistency::Exact or Consistency::Leased for a durable rule"
                .into(),
        );
    }
    Ok(())
}

fn validate_credits(rule: &Rule) -> Result<(), RuleError> {
    if !rule.has_credits() {
        return Ok(());
    }
    let wrong = |message: &str| Err(rule.error(RuleErrorKind::Credits, message));
    if rule.has_slots() {
        return wrong(
            "slots come back when requests end, so no credits are used up; give the credits to a rule of a rate or a budget, such as \
             Quota::fixed_window",
        );
    }
    if !(0..rule.quotas()).any(|plan| rule.quota_of(plan).has_state()) {
        return wrong(
            "a rule without a limit never needs credits; give it a quota, such as Quota::fixed_window(10_000, DAY)",
        );
    }
    if rule.at_most_wait().is_some() {
        return wrong(
            "a request cannot both wait for the quota and take credits in its place; leave wait() out, or credits()",
        );
    }
    if matches!(rule.consistency_of(), Consistency::Eventual { .. }) {
        return wrong(
            "under Consistency::Eventual each process counts by itself, and several would spend one balance; take Consistency::Exact or \
             Consistency::Leased",
        );
    }
    Ok(())
}

fn validate_block(rule: &Rule) -> Result<(), RuleError> {
    let Some(block) = rule.block_setting() else {
        return Ok(());
    };
    let wrong = |message| Err(rule.error(RuleErrorKind::Block, message));
    if rule.has_slots() {
        return wrong(
            "a limit on how many run at once cannot block: who runs too many at once has not failed; give the block to a rule of a \
             rate, such as Quota::sliding_log"
                .into(),
        );
    }
    if !(0..rule.quotas()).any(|plan| rule.quota_of(plan).has_state()) {
        return wrong(
            "a rule without a limit denies nothing that a block could count; give it a quota, such as \
             Quota::sliding_log(5, MINUTE)"
                .into(),
        );
    }
    block.validate().or_else(wrong)
}

fn validate_idempotency(rule: &Rule) -> Result<(), RuleError> {
    let Some(idempotency) = rule.idempotency() else {
        return Ok(());
    };
    let wrong = |message| Err(rule.error(RuleErrorKind::Idempotency, message));
    if rule.has_slots() {
        return wrong(
            "a request that is repeated runs a second time, and holds a second slot; leave idempotent() out, or give it to a rule of \
             a rate"
                .into(),
        );
    }
    if rule.at_most_wait().is_some() {
        return wrong(
            "a repeat would pass before those that wait; leave wait() out, or idempotent()".into(),
        );
    }
    if !(0..rule.quotas()).any(|plan| rule.quota_of(plan).has_state()) {
        return wrong(
            "a rule without a limit counts nothing that a repeat could be spared; leave idempotent() out"
                .into(),
        );
    }
    idempotency.validate().or_else(wrong)
}

fn validate_consistency(rule: &Rule) -> Result<(), RuleError> {
    let wrong = |message| Err(rule.error(RuleErrorKind::Mode, message));
    match rule.consistency_of() {
        Consistency::Leased { share } if !(1..=500).contains(&share.as_permille()) => {
            wrong(format!(
                "a share of {share} on lease is not between 0.1 % and 50 %; LeaseShare::percent(10) is usual"
            ))
        }
        Consistency::Eventual { interval, .. } if interval.is_zero() => wrong(
            "an interval of 0 leaves no time to report in; take 50 to 500 ms, or \
             Consistency::Exact to call the store for each request"
                .into(),
        ),
        Consistency::Eventual { max_unreported, .. } => match largest_limit(rule) {
            Some(limit) if max_unreported > limit => wrong(format!(
                "{max_unreported} unreported units are above the limit of {limit}: a process alone would let more \
                 than all of it through; take a small part of the limit, {} say",
                (limit / 10).max(1)
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The largest limit of its quotas; `None` if none has a state.
fn largest_limit(rule: &Rule) -> Option<u64> {
    (0..rule.quotas())
        .map(|plan| rule.quota_of(plan))
        .filter(|quota| quota.has_state())
        .map(Quota::limit)
        .max()
}

fn validate_cost(rule: &Rule) -> Result<(), RuleError> {
    if rule.fixed_cost() == 0 {
        return Err(rule.error(
            RuleErrorKind::Cost,
            "a cost of 0 units would never take anything, and so limit nothing; take at least 1. To query without \
             taking, call `Limiter::peek` or give one check a cost of 0; to limit nothing, take Quota::unlimited() or off()",
        ));
    }
    if rule.fixed_cost() > MAX_UNITS {
        return Err(rule.error(
            RuleErrorKind::Cost,
            format!("a cost of {} units is above {MAX_UNITS}", rule.fixed_cost()),
        ));
    }
    let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
    for quota in quotas {
        if quota.has_state() && rule.fixed_cost() > quota.limit() {
            return Err(rule.error(
                RuleErrorKind::Cost,
                format!(
                    "a request costs {} units, and {quota:?} never lets more than {} pass at once; \
                     take a limit or burst of at least {}",
                    rule.fixed_cost(),
                    quota.limit(),
                    rule.fixed_cost()
                ),
            ));
        }
    }
    Ok(())
}

/// A unit is a word in sentences and a string in header fields.
fn validate_unit(rule: &Rule) -> Result<(), RuleError> {
    let Some(unit) = rule.unit_name() else {
        return Ok(());
    };
    let is_word = unit.starts_with(|c: char| c.is_ascii_alphabetic())
        && unit
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " _./-".contains(c));
    if is_word && unit.len() <= 64 {
        return Ok(());
    }
    Err(rule.error(
        RuleErrorKind::Name,
        format!(
            "a unit {unit:?} cannot be in header fields; take a word in the plural, such as \"tokens\": at most 64 letters, \
             digits, spaces and _ . / -, the first a letter"
        ),
    ))
}

/// Checks the name of a rule or a threshold: what is valid both as a quoted string and as a token of a structured field.
pub(crate) fn validate_name(name: &str) -> Result<(), RuleError> {
    let error = |message: String| Err(RuleError::new(RuleErrorKind::Name, name, message));
    let first = name.bytes().next();
    if !first.is_some_and(|first| first.is_ascii_alphabetic() || first == b'*') {
        return error("a name begins with a letter or '*'".into());
    }
    if let Some(wrong) = name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "_.:/*-".contains(*c)))
    {
        return error(format!(
            "{wrong:?} cannot be in a name, which goes into header fields; take letters, digits and _ . : / * -"
        ));
    }
    if name.len() > 64 {
        return error(format!("a name of {} characters is above 64", name.len()));
    }
    Ok(())
}
