//! Rule sets at random.

use std::{collections::BTreeSet, time::Duration};

use proptest::{collection::vec, option, prelude::*};
use tollgate::{Head, Quota, RequestRule, Rule, key::constant};

/// A rule with a plan of its own, and whether the requests choose it.
pub(crate) type Drawn = (String, Quota, Option<Quota>, bool);

fn quota(kind: u8) -> impl Strategy<Value = Quota> {
    let limit = prop_oneof![1..10_u64, 1..1_000_000_u64, 1..1_u64 << 52];
    let micros = prop_oneof![
        1..3_000_000_u64,
        (1..100_000_u64).prop_map(|seconds| seconds * 1_000_000),
        1..3_000_000_000_000_u64
    ];
    (limit.clone(), limit, micros).prop_filter_map("invalid", move |(a, b, micros)| {
        of(kind, (a, b), Duration::from_micros(micros))
    })
}

/// A quota of an algorithm, if it is valid.
fn of(kind: u8, (a, b): (u64, u64), period: Duration) -> Option<Quota> {
    let quota = match kind {
        0 => Quota::gcra(a, period).burst(b),
        1 => Quota::token_bucket(a).refill(b, period),
        2 => Quota::leaky_bucket(a).leak(b, period),
        3 => Quota::fixed_window(a, period),
        4 => Quota::sliding_window(a, period),
        5 => Quota::sliding_buckets(a, period),
        _ => Quota::sliding_log(a, period),
    };
    quota.validate().is_ok().then_some(quota)
}

/// A quota and a plan's, of one algorithm. Plans that count in windows have the window of their rule.
fn quotas() -> impl Strategy<Value = (Quota, Option<Quota>)> {
    (0..7_u8)
        .prop_flat_map(|kind| (Just(kind), quota(kind), option::of(quota(kind))))
        .prop_map(|(kind, quota, plan)| {
            let plan = plan.and_then(|plan| match kind {
                0..3 => Some(plan),
                _ => of(kind, (plan.limit(), 1), quota.period()),
            });
            (quota, plan)
        })
}

pub(crate) fn rules() -> impl Strategy<Value = Vec<Drawn>> {
    let name = "[A-Za-z*][A-Za-z0-9_.:/*-]{0,63}";
    let drawn = (name, quotas(), any::<bool>())
        .prop_map(|(name, (quota, plan), choose)| (name, quota, plan, choose));
    vec(drawn, 1..6).prop_map(|mut rules| {
        let mut names = BTreeSet::new();
        rules.retain(|rule| names.insert(rule.0.clone()));
        rules
    })
}

pub(crate) fn request_rule((name, quota, plan, choose): &Drawn) -> RequestRule {
    let rule = Rule::new(name.clone(), *quota);
    let choose = *choose;
    let rule = match plan {
        Some(plan) => rule
            .plan("gold", *plan)
            .by(constant("all"))
            .plan_by(move |_| choose.then_some("gold")),
        None => rule.by(constant("all")),
    };
    rule.cost_by(|head| cost(head).unwrap_or(1))
}

fn cost(head: &Head<'_>) -> Option<u64> {
    head.headers.get("x-cost")?.to_str().ok()?.parse().ok()
}
