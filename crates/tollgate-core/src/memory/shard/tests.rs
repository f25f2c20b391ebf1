//! Tests of a shard.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::{
    algorithm::{Concurrent, Gcra, SlidingLog},
    memory::hasher::Hasher,
    quota::Quota,
    rule::Rule,
    time::{MINUTE, SECOND},
};

fn made<A: Algorithm>(quota: &Quota, hasher: &Hasher) -> Plan<A> {
    Plan::of_rule(quota, &Rule::new("rule", *quota), hasher).expect("valid")
}

fn plan<A: Algorithm>(quota: Quota) -> Plan<A> {
    made(&quota, &Hasher::default())
}

fn key(n: u64) -> Fingerprint {
    // Spread as a hash would.
    let low = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Fingerprint::from_bits(u128::from(low) | u128::from(low.rotate_left(17)) << 64)
}

#[test]
fn an_entry_of_a_bucket_or_window_has_32_bytes() {
    assert_eq!(size_of::<Entry<<Gcra as Algorithm>::State>>(), 32);
    assert_eq!(
        size_of::<Entry<<crate::algorithm::SlidingWindow as Algorithm>::State>>(),
        32
    );
    assert_eq!(size_of::<Entry<<SlidingLog as Algorithm>::State>>(), 24);
}

/// Numbers below `end` that look random.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut random = 1_u64;
    move |end| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % end
    }
}

/// Keys come and go under one quota and under many, and the shard says what a model without a bound says, but for what it
/// has evicted.
fn agrees_with_a_model<A: Algorithm>(quota: fn(u64) -> Quota, budget: usize) {
    const KEYS: u64 = 300;
    let hasher = Hasher::default();
    let plans: Vec<Plan<A>> = (0..60).map(|n| made(&quota(n), &hasher)).collect();
    let mut shard = Shard::<A>::new(budget);
    let mut model = BTreeMap::<u64, (usize, A::State)>::new();
    let mut below = numbers();
    let (mut now, mut created, mut evicted) = (1_000_000, 0, 0);
    for step in 0..6_000_u64 {
        // One quota, a few, and more than are looked at one after the other.
        let plan = below([1, 60, 5, 9, 60][(step / 500 % 5) as usize]) as usize;
        let n = below(KEYS);
        now += below(20_000);
        match below(20) {
            0 => {
                shard.remove(key(n));
                model.remove(&n);
            }
            1 => shard.sweep(below(40) as usize, now),
            2 => {
                let looked_up = shard.find_unless_of_another(&plans[plan], key(n));
                let found = looked_up.flatten();
                let there = model.get(&n).filter(|(by, _)| *by == plan);
                assert_eq!(found.is_some(), there.is_some());
            }
            _ => {
                let take = |state: &mut A::State| plans[plan].quota.take(state, now, 1);
                let known = model.contains_key(&n);
                let (by, state) = model.entry(n).or_default();
                *by = plan;
                take(state);
                if known {
                    shard.update(key(n), &plans[plan], now, take);
                } else {
                    created += 1;
                    shard.insert(key(n), &plans[plan], state.clone(), now);
                }
                assert!(shard.find(key(n)).is_some(), "at {step}");
            }
        }
        model.retain(|n, (by, state)| {
            let Some(entry) = shard.find(key(*n)) else {
                evicted += u64::from(plans[*by].quota.fresh_at(state) > now);
                return false;
            };
            assert_eq!(&entry.state, state);
            assert!(shard.was_written_under(&plans[*by], entry));
            true
        });
        assert_eq!(shard.len(), model.len(), "at {step}");
        assert_eq!((shard.created, shard.evicted_live), (created, evicted));
        let quotas: BTreeSet<usize> = model.values().map(|(by, _)| *by).collect();
        assert_eq!(shard.writers.len(), quotas.len(), "at {step}");
        let heap = shard.iter().map(|entry| A::heap_bytes(&entry.state));
        assert_eq!(shard.heap, heap.sum::<usize>(), "at {step}");
        let entries = shard.entries.len() * size_of::<Entry<A::State>>();
        let counted = entries + shard.heap + shard.writers.bytes();
        assert_eq!(shard.bytes(), counted);
        assert!(counted <= budget, "{counted} at {step}");
    }
    assert!(evicted > 50, "{evicted}");
    // A sweep ends where it makes the slots fewer.
    (0..9).for_each(|_| shard.sweep(usize::MAX, u64::MAX));
    assert_eq!((shard.len(), shard.heap, shard.writers.len()), (0, 0, 0));
}

#[test]
fn states_are_those_that_were_written_within_the_bound() {
    agrees_with_a_model::<Gcra>(|n| Quota::gcra(10 + n, MINUTE).burst(5), 10 << 10);
    agrees_with_a_model::<SlidingLog>(|n| Quota::sliding_log(50 + n, SECOND), 12 << 10);
}

#[test]
fn of_a_few_entries_an_expired_one_goes_and_else_the_first_in_the_order() {
    let plans = [(10, 5), (40, 9)]
        .map(|(limit, burst)| plan::<Gcra>(Quota::gcra(limit, MINUTE).burst(burst)));
    // As many slots as there are at least: all entries are looked at.
    let mut shard = Shard::<Gcra>::new(LEAST * 32);
    let mut model = Vec::<(u64, usize, <Gcra as Algorithm>::State)>::new();
    let mut below = numbers();
    let (mut now, mut evicted) = (1_000_000, 0);
    for n in 0..3_000 {
        now += below(4_000_000);
        let by = below(2) as usize;
        let mut state = Default::default();
        plans[by].quota.take(&mut state, now, 1 + below(5));
        let is_live = |(_, by, state): &(u64, usize, _)| plans[*by].quota.fresh_at(state) > now;
        let order = |(_, by, state): &(u64, usize, _)| {
            EvictionOrder::new(plans[*by].quota.assess(state, now, 0), plans[*by].limit)
        };
        let full = model.len() == LEAST * 3 / 4;
        let first = model.iter().map(order).min();
        let first = first.filter(|_| full && model.iter().all(is_live));
        shard.insert(key(n), &plans[by], state, now);
        model.retain(|entry| {
            if shard.find(key(entry.0)).is_some() {
                return true;
            }
            if is_live(entry) {
                assert_eq!(Some(order(entry)), first, "at {n}");
                evicted += 1;
            }
            false
        });
        model.push((n, by, state));
        assert_eq!((shard.len(), shard.evicted_live), (model.len(), evicted));
        assert!(shard.len() <= LEAST * 3 / 4);
    }
    assert!((300..2_500).contains(&evicted), "{evicted}");
}

#[test]
fn keys_whose_requests_have_ended_stay_for_about_a_second() {
    let plan = plan::<Concurrent>(Quota::concurrent(5));
    let mut shard = Shard::<Concurrent>::new(1 << 20);
    let mut now = 1_000_000_000;
    // A flood of clients, none of whom runs a request any more.
    let mut newest = 0;
    for _ in 0..2 {
        let (begin, first) = (now, newest);
        while now < begin + 1_000_000 {
            shard.insert(key(newest), &plan, Default::default(), now);
            newest += 1;
            now += 1_000;
        }
        // A pass began with the first of them, and went on as they came: half of them have not been seen since.
        let kept = (first..newest).filter(|n| shard.find(key(*n)).is_some());
        let there = kept.count();
        assert!((400..=600).contains(&there), "{there}");
    }
    assert!(shard.len() < 1_600);
    // Those that come much later make room for themselves.
    for n in newest..newest + 3_000 {
        now += 1_000_000;
        shard.insert(key(n), &plan, Default::default(), now);
    }
    let (keys, slots) = (shard.len(), shard.entries.len());
    assert!(keys < 40 && slots <= 64, "{keys} in {slots}");
    // Nor does a flood stay until a clock that was set back is there again.
    let mut most = 0;
    for n in 0..20_000 {
        shard.insert(key(1 << 40 | n), &plan, Default::default(), 1_000 * n);
        most = most.max(shard.len());
    }
    assert!(most < 3_000, "{most}");
}

#[test]
fn slots_in_use_are_never_evicted_whatever_the_bound() {
    let plan = plan::<Concurrent>(Quota::concurrent(5));
    let mut shard = Shard::<Concurrent>::new(4_096);
    for n in 0..2_000 {
        let mut state = Default::default();
        // Every other request has ended.
        plan.quota.take(&mut state, 0, n % 2);
        shard.insert(key(n), &plan, state, 0);
    }
    assert!((0..2_000).all(|n| n % 2 == 0 || shard.find(key(n)).is_some()));
    assert_eq!(shard.evicted_live, 0);
    // More quotas than numbers: slots count alike under any.
    for n in 0..70_000 {
        let plan = self::plan::<Concurrent>(Quota::concurrent(n + 6));
        let mut state = Default::default();
        plan.quota.take(&mut state, 0, 1);
        shard.insert(key(10_000 + n), &plan, state, 0);
    }
    assert_eq!(shard.evicted_live, 0);
    assert!((0..70_000).all(|n| shard.find(key(10_000 + n)).is_some()));
}
