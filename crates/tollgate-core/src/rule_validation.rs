//! Whether the settings of a rule go together, and what would be right.

use std::{collections::HashSet, fmt};

use crate::{
    algorithm_kind::AlgorithmKind,
    check_policy::OnStoreError,
    consistency::Consistency,
    error::{RuleError, RuleErrorKind},
    quota::{MAX_UNITS, Quota, validate_time},
    quota_conflict::{debt_conflict, plan_conflict, wait_conflict},
    rule::Rule,
};

/// What is wrong with a setting.
type Wrong = Result<(), String>;
type Validate = fn(&Rule) -> Wrong;

/// What is checked of a rule whose name and quotas are valid.
const SETTINGS: [(RuleErrorKind, Validate); 8] = [
    (RuleErrorKind::Cost, validate_cost),
    (RuleErrorKind::Wait, validate_wait),
    (RuleErrorKind::Debt, validate_debt),
    (RuleErrorKind::Mode, validate_durable),
    (RuleErrorKind::Credits, validate_credits),
    (RuleErrorKind::Block, validate_block),
    (RuleErrorKind::Idempotency, validate_idempotency),
    (RuleErrorKind::Mode, validate_consistency),
];

/// Whether the settings of a rule go together.
pub(crate) fn validate(rule: &Rule) -> Result<(), RuleError> {
    validate_name(rule.name())?;
    validate_unit(rule)?;
    validate_quotas(rule)?;
    for (kind, validate) in SETTINGS {
        validate(rule).map_err(|wrong| rule.error(kind, wrong))?;
    }
    Ok(())
}

fn validate_quotas(rule: &Rule) -> Result<(), RuleError> {
    let quota = |quota: &Quota, of: &dyn fmt::Display| {
        quota
            .validate()
            .map_err(|error| rule.error(RuleErrorKind::Quota, format!("{of}{error}")))
    };
    quota(rule.quota(), &"")?;
    let wrong = |message: String| Err(rule.error(RuleErrorKind::Plan, message));
    let is_limited = |quota: &&Quota| quota.has_state();
    let mut limited = Some(rule.quota()).filter(is_limited);
    let mut names = HashSet::new();
    for (name, plan) in rule.plan_names().zip(rule.all_quotas().skip(1)) {
        quota(plan, &format_args!("plan {name:?}: "))?;
        if let Some(conflict) = limited.and_then(|other| plan_conflict(plan, other)) {
            return wrong(format!("plan {name:?} {conflict}"));
        }
        if !names.insert(name) {
            return wrong(format!(
                "there are two plans {name:?}; give each a name of its own"
            ));
        }
        limited = limited.or(Some(plan).filter(is_limited));
    }
    if rule.quotas() > usize::from(u16::MAX) {
        return wrong("more than 65 534 plans".into());
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
    Ok(())
}

fn is_eventual(rule: &Rule) -> bool {
    matches!(rule.consistency_of(), Consistency::Eventual { .. })
}

/// The message of the first that is wrong.
fn refuse<const N: usize>(wrongs: [(bool, &str); N]) -> Wrong {
    let wrong = wrongs.into_iter().find(|(is_wrong, _)| *is_wrong);
    wrong.map_or(Ok(()), |(_, message)| Err(message.to_owned()))
}

/// The first of the rule's quotas that does not go together with a setting.
fn refuse_quotas(rule: &Rule, conflict: impl Fn(&Quota) -> Option<String>) -> Wrong {
    rule.all_quotas().find_map(conflict).map_or(Ok(()), Err)
}

fn validate_wait(rule: &Rule) -> Wrong {
    let max_waiting = rule.settings.max_waiting;
    refuse([(
        max_waiting.per_key == 0 || max_waiting.in_all == 0,
        "with room for 0 requests none could wait; take at least 1, or leave wait() out to deny at once",
    )])?;
    let Some(at_most) = rule.at_most_wait() else {
        return Ok(());
    };
    let remedy = "; take less than the timeout of your clients, such as 5 * SECOND, or leave wait() out to deny at once";
    validate_time("a wait of at most", at_most, remedy)?;
    refuse_quotas(rule, |quota| wait_conflict(quota, at_most))?;
    refuse([(
        is_eventual(rule),
        "requests wait in the order of the store, and under Consistency::Eventual each process decides by itself; take \
         Consistency::Exact",
    )])
}

fn validate_debt(rule: &Rule) -> Wrong {
    let Some(at_most) = rule.settings.debt else {
        return Ok(());
    };
    refuse([
        (
            at_most == 0,
            "a debt of 0 units allows none; take what a request may cost more than it took first, or leave debt() out: what is not \
             there lapses then",
        ),
        (
            rule.at_most_wait().is_some(),
            "where requests wait, those behind know when they start, and a charge would come before them; leave wait() out, or \
             debt()",
        ),
        (
            is_eventual(rule),
            "under Consistency::Eventual each process counts by itself, and the store does not know when a debt is paid; take \
             Consistency::Exact or Consistency::Leased",
        ),
    ])?;
    if at_most > MAX_UNITS {
        return Err(format!("a debt of {at_most} units is above {MAX_UNITS}"));
    }
    refuse_quotas(rule, |quota| debt_conflict(quota, at_most))
}

fn validate_durable(rule: &Rule) -> Wrong {
    if !rule.is_durable() {
        return Ok(());
    }
    refuse_quotas(rule, |quota| {
        let windowless = quota.algorithm();
        let has_windows = windowless == AlgorithmKind::FixedWindow || !quota.has_state();
        (!has_windows).then(|| {
            format!(
                "a ledger has an account of each window, and a {windowless} has no windows; take Quota::fixed_window or \
                 Quota::calendar, or leave durable() out"
            )
        })
    })?;
    refuse([(
        is_eventual(rule),
        "under Consistency::Eventual each process counts by itself, and a store that has lost its states would not be noticed; take \
         Consistency::Exact or Consistency::Leased for a durable rule",
    )])
}

fn validate_credits(rule: &Rule) -> Wrong {
    if !rule.has_credits() {
        return Ok(());
    }
    refuse([
        (
            rule.has_slots(),
            "slots come back when requests end, so no credits are used up; give the credits to a rule of a rate or a budget, such as \
             Quota::fixed_window",
        ),
        (
            !rule.is_limited(),
            "a rule without a limit never needs credits; give it a quota, such as Quota::fixed_window(10_000, DAY)",
        ),
        (
            rule.at_most_wait().is_some(),
            "a request cannot both wait for the quota and take credits in its place; leave wait() out, or credits()",
        ),
        (
            is_eventual(rule),
            "under Consistency::Eventual each process counts by itself, and several would spend one balance; take Consistency::Exact \
             or Consistency::Leased",
        ),
    ])
}

fn validate_block(rule: &Rule) -> Wrong {
    let Some(block) = rule.block_setting() else {
        return Ok(());
    };
    refuse([
        (
            rule.has_slots(),
            "a limit on how many run at once cannot block: who runs too many at once has not failed; give the block to a rule of a \
             rate, such as Quota::sliding_log",
        ),
        (
            !rule.is_limited(),
            "a rule without a limit denies nothing that a block could count; give it a quota, such as \
             Quota::sliding_log(5, MINUTE)",
        ),
    ])?;
    block.validate()
}

fn validate_idempotency(rule: &Rule) -> Wrong {
    let Some(idempotency) = rule.idempotency() else {
        return Ok(());
    };
    refuse([
        (
            rule.has_slots(),
            "a request that is repeated runs a second time, and holds a second slot; leave idempotent() out, or give it to a rule of \
             a rate",
        ),
        (
            rule.at_most_wait().is_some(),
            "a repeat would pass before those that wait; leave wait() out, or idempotent()",
        ),
        (
            !rule.is_limited(),
            "a rule without a limit counts nothing that a repeat could be spared; leave idempotent() out",
        ),
    ])?;
    idempotency.validate()
}

fn validate_consistency(rule: &Rule) -> Wrong {
    let limits = || rule.all_quotas().filter(|quota| quota.has_state());
    match rule.consistency_of() {
        Consistency::Leased { share } if !(1..=500).contains(&share.as_permille()) => Err(format!(
            "a share of {share} on lease is not between 0.1 % and 50 %; LeaseShare::percent(10) is usual"
        )),
        Consistency::Eventual { interval, .. } if interval.is_zero() => Err(
            "an interval of 0 leaves no time to report in; take 50 to 500 ms, or \
             Consistency::Exact to call the store for each request"
                .into(),
        ),
        Consistency::Eventual { max_unreported, .. } => match limits().map(Quota::limit).max() {
            Some(limit) if max_unreported > limit => Err(format!(
                "{max_unreported} unreported units are above the limit of {limit}: a process alone would let more \
                     than all of it through; take a small part of the limit, {} say",
                (limit / 10).max(1)
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn validate_cost(rule: &Rule) -> Wrong {
    let cost = rule.fixed_cost();
    if cost == 0 {
        return Err(
            "a cost of 0 units would never take anything, and so limit nothing; take at least 1. To query without \
             taking, call `Limiter::peek` or give one check a cost of 0; to limit nothing, take Quota::unlimited() or off()"
                .into(),
        );
    }
    if cost > MAX_UNITS {
        return Err(format!("a cost of {cost} units is above {MAX_UNITS}"));
    }
    let mut limited = rule.all_quotas().filter(|quota| quota.has_state());
    match limited.find(|quota| cost > quota.limit()) {
        Some(quota) => Err(format!(
            "a request costs {cost} units, and {quota:?} never lets more than {} pass at once; \
             take a limit or burst of at least {cost}",
            quota.limit()
        )),
        None => Ok(()),
    }
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
