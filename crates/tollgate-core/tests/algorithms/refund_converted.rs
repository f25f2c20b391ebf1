//! Refunds of units that were taken under a quota which another one has replaced since.

use num_bigint::BigInt;
use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Quota, Tick,
    algorithm::{Algorithm, Gcra, GcraState, Taken},
};

use crate::{
    agreement::Run,
    history::{Request, for_each_algorithm, property, quota, requests, requests_back, start},
    oracle::{GcraOracle, Oracle, big, left},
};

for_each_algorithm! {
    a_refund_of_converted_units_never_lifts_above_what_would_be_left_had_they_never_been_taken => never_above;
    a_refund_at_once_gives_all_converted_units_back => at_once;
}

/// Two histories: in one our units were taken, in the other they were not.
struct Twins<O: Oracle> {
    before: O::Algorithm,
    with: Run<O>,
    without: <O::Algorithm as Algorithm>::State,
    taken: Taken,
    cost: u64,
    /// All that was taken: when, and how much.
    all: Vec<(Tick, u64)>,
}

/// Requests before ours, ours, requests after it, requests under the other quota.
type Story = (Vec<Request>, Vec<Request>, Vec<Request>, Vec<Request>);

fn story() -> impl Strategy<Value = Story> {
    (requests(6), requests(2), requests(6), requests(8))
}

impl<O: Oracle> Twins<O> {
    /// `None`: our request was denied, or cost nothing.
    fn new(old: Quota, new: Quota, start: Tick, story: Story) -> Option<Self> {
        let (earlier, ours, later, under_new) = story;
        let mut with = Run::<O>::new(old, start);
        let (before, mut all) = (with.algorithm.clone(), Vec::new());
        go(&mut with, earlier, None, &mut all);
        let mut without = with.state.clone();
        let cost = with.moved(ours[0]);
        let answer = with.decide(cost);
        if !answer.fits || cost == 0 {
            return None;
        }
        let taken = Taken::new(with.now, with.now + answer.reset_after);
        go(&mut with, later, Some(&mut without), &mut all);
        let after: O::Algorithm = O::Algorithm::new(&new).expect("a valid quota");
        let carried = after.convert(&before, &with.state, with.now);
        without = after.convert(&before, &without, with.now);
        let mut with = Run::<O>::new(new, with.now);
        with.state = carried;
        go(&mut with, under_new, Some(&mut without), &mut all);
        Some(Self {
            before,
            with,
            without,
            taken,
            cost,
            all,
        })
    }

    fn left(&self, now: Tick) -> u64 {
        let run = &self.with;
        run.algorithm.assess(&run.state, now, 0).remaining
    }

    fn left_without(&self, now: Tick) -> u64 {
        let run = &self.with;
        run.algorithm.assess(&self.without, now, 0).remaining
    }

    fn refund(&mut self, units: u64) {
        let Run {
            algorithm,
            state,
            now,
            ..
        } = &mut self.with;
        algorithm.refund_converted(&self.before, state, *now, self.taken, units);
    }

    /// Now, and later: until nothing counts.
    fn times(&self) -> [Tick; 4] {
        let run = &self.with;
        let reset = run.algorithm.assess(&run.state, run.now, 0).reset_after;
        [0, 1, reset / 3, reset.saturating_sub(1)].map(|wait| run.now + wait)
    }
}

/// Lets requests pass or not; what passes is taken in the other history too, where it fits all the more.
fn go<O: Oracle>(
    run: &mut Run<O>,
    requests: Vec<Request>,
    mut other: Option<&mut <O::Algorithm as Algorithm>::State>,
    all: &mut Vec<(Tick, u64)>,
) {
    for request in requests {
        let cost = run.moved(request);
        if run.decide(cost).fits {
            all.push((run.now, cost));
            if let Some(other) = &mut other {
                run.algorithm.take(other, run.now, cost);
            }
        }
    }
}

fn never_above<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), quota(kind), start(), story());
    property(200, &values, |(old, new, start, story)| {
        let Some(mut twins) = Twins::<O>::new(old, new, start, story) else {
            return Ok(());
        };
        let had = twins.left(twins.with.now);
        twins.refund(twins.cost);
        prop_assert!(twins.left(twins.with.now) >= had, "a refund takes nothing");
        for at in twins.times() {
            let (has, most) = (twins.left(at), twins.left_without(at));
            prop_assert!(
                has <= most,
                "{has} left, {most} without: {old:?} to {new:?}"
            );
        }
        Ok(())
    });
}

/// Whatever the two quotas: at the instant of the take all of it is still there.
fn at_once<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), quota(kind), start(), requests(6), requests(2));
    property(200, &values, |(old, new, start, earlier, ours)| {
        let story = (earlier, ours, Vec::new(), Vec::new());
        let Some(mut twins) = Twins::<O>::new(old, new, start, story) else {
            return Ok(());
        };
        twins.refund(twins.cost);
        let now = twins.with.now;
        let (has, exact) = (twins.left(now), twins.left_without(now));
        // A smaller burst may have forgotten as much as it is smaller by.
        prop_assume!(kind != AlgorithmKind::Gcra || new.limit() >= old.limit());
        let slack = 1 + O::new(&old).slack() + O::new(&new).slack();
        let slack = if kind == AlgorithmKind::Gcra || slack > 1 {
            slack
        } else {
            0
        };
        prop_assert!(
            has <= exact && has + slack >= exact,
            "{has} left, {exact} without: {old:?} to {new:?}"
        );
        Ok(())
    });
}

/// The same quota with another limit.
fn relimited(quota: Quota, limit: u64) -> Option<Quota> {
    let period = quota.period();
    let other = match quota.algorithm() {
        AlgorithmKind::FixedWindow => Quota::fixed_window(limit, period),
        AlgorithmKind::SlidingWindow => Quota::sliding_window(limit, period),
        AlgorithmKind::SlidingLog => Quota::sliding_log(limit % 1_000 + 1, period),
        _ => Quota::sliding_buckets(limit, period).buckets(quota.bucket_count()),
    };
    other.validate().is_ok().then_some(other)
}

/// Against the exact oracle of the new quota, which knows all units that were taken and not refunded, under either quota.
fn exact<O: Oracle>(kind: AlgorithmKind) {
    let limits = prop_oneof![1..12_u64, 1..2_000_u64, 1..1_u64 << 30];
    let values = (quota(kind), limits, start(), story(), 0..1_001_u64);
    property(200, &values, |(old, limit, start, story, part)| {
        let new = relimited(old, limit);
        prop_assume!(new.is_some());
        let new = new.expect("just looked");
        let Some(mut twins) = Twins::<O>::new(old, new, start, story) else {
            return Ok(());
        };
        let back = (u128::from(twins.cost) * u128::from(part)).div_ceil(1_000) as u64;
        let mut oracle = O::new(&new);
        let kept = (twins.taken.at, twins.cost - back);
        let (mut all, mut is_refunded) = (twins.all.clone(), false);
        all.push((Tick::MAX, 0));
        for (at, cost) in all {
            if !is_refunded && at > kept.0 {
                oracle.take(kept.0, kept.1);
                is_refunded = true;
            }
            if cost > 0 {
                oracle.take(at, cost);
            }
        }
        twins.refund(back);
        let slack = oracle.slack();
        for at in twins.times() {
            let (has, exact) = (twins.left(at), left(&oracle, new.limit(), at, 0));
            prop_assert!(
                has <= exact && has + slack >= exact,
                "{has} left, {exact} by the oracle: {old:?} to {new:?}"
            );
        }
        Ok(())
    });
}

mod under_windows_of_the_same_length_a_refund_of_converted_units_is_exact {
    use tollgate_core::AlgorithmKind;

    use crate::oracle;

    #[test]
    fn fixed_window() {
        super::exact::<oracle::FixedWindowOracle>(AlgorithmKind::FixedWindow);
    }

    #[test]
    fn sliding_window() {
        super::exact::<oracle::SlidingWindowOracle>(AlgorithmKind::SlidingWindow);
    }

    #[test]
    fn sliding_buckets() {
        super::exact::<oracle::SlidingBucketsOracle>(AlgorithmKind::SlidingBuckets);
    }

    #[test]
    fn sliding_log() {
        super::exact::<oracle::SlidingLogOracle>(AlgorithmKind::SlidingLog);
    }
}

/// What a refund from one bucket to another gives back too little, and the units that each rate yields since the take.
fn lost_by_a_bucket(story: impl Strategy<Value = Story>, most: impl Fn(u128, u128) -> u128) {
    let values = (
        quota(AlgorithmKind::Gcra),
        quota(AlgorithmKind::Gcra),
        start(),
        story,
    );
    property(500, &values, |(old, new, start, story)| {
        let Some(mut twins) = Twins::<GcraOracle>::new(old, new, start, story) else {
            return Ok(());
        };
        twins.refund(twins.cost);
        let now = twins.with.now;
        let since = u128::from(now - twins.taken.at);
        let refilled =
            |quota: &Quota| since * u128::from(quota.rate()) / quota.period().as_micros();
        let per_tick =
            |quota: &Quota| u128::from(quota.rate()).div_ceil(quota.period().as_micros());
        let forgotten = u128::from(old.limit().saturating_sub(new.limit()));
        let rounded = 2 + per_tick(&old) + per_tick(&new);
        let most = most(refilled(&old), refilled(&new)) + forgotten + rounded;
        let (has, exact) = (twins.left(now), twins.left_without(now));
        prop_assert!(
            u128::from(has) + most >= u128::from(exact),
            "{has} left, {exact} without, {since} µs later: {old:?} to {new:?}"
        );
        Ok(())
    });
}

/// Units that were taken after ours leave the bucket after them, so ours seem to have left it.
#[test]
fn a_bucket_loses_no_more_than_was_refilled_and_the_bursts_differ() {
    lost_by_a_bucket(story(), u128::max);
}

// A change of the limit: used units stay used.

for_each_algorithm! {
    used_units_stay_used_under_another_quota => kept;
    going_to_another_quota_and_back_gives_nothing_back => to_and_fro;
}

fn kept<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), quota(kind), start(), requests(15));
    property(100, &values, |(old, new, start, requests)| {
        let mut run = Run::<O>::new(old, start);
        for request in requests {
            let cost = run.moved(request);
            run.decide(cost);
        }
        let after: O::Algorithm = O::Algorithm::new(&new).expect("a valid quota");
        let carried = after.convert(&run.algorithm, &run.state, run.now);
        let parts = run.oracle.parts();
        let exact = run.oracle.used(run.now);
        let used: BigInt = (&exact + &parts - 1) / &parts;
        let has = after.assess(&carried, run.now, 0).remaining;
        let most = (big(new.limit()) - &used).max(big(0));
        prop_assert!(
            big(has) <= most,
            "{used} used of {old:?}, {has} left of {new:?}"
        );
        // Rounding takes a unit at most, and the steps of a sliding window another two on each side.
        let least = most - 1 - 2 * run.oracle.slack() - 2 * O::new(&new).slack();
        prop_assert!(
            big(has) >= least,
            "{used} used of {old:?}, {has} left of {new:?}"
        );
        Ok(())
    });
}

fn to_and_fro<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), quota(kind), start(), requests_back(15));
    property(100, &values, |(old, new, start, requests)| {
        let mut run = Run::<O>::new(old, start);
        for request in requests {
            let cost = run.moved(request);
            run.decide(cost);
        }
        let had = run.algorithm.assess(&run.state, run.now, 0).remaining;
        // A bucket that is too small for what was used is full, and says no more than that.
        let bucket = kind == AlgorithmKind::Gcra;
        prop_assume!(!bucket || old.limit() - had <= new.limit());
        let other: O::Algorithm = O::Algorithm::new(&new).expect("a valid quota");
        let mut state = run.state.clone();
        for _ in 0..3 {
            state = other.convert(&run.algorithm, &state, run.now);
            state = run.algorithm.convert(&other, &state, run.now);
        }
        let has = run.algorithm.assess(&state, run.now, 0).remaining;
        prop_assert!(has <= had, "{has} of {old:?} after {new:?}, {had} before");
        Ok(())
    });
}

/// Used units of a bucket as a fraction: what is ahead of now, in intervals.
#[test]
fn a_bucket_keeps_fractions_of_a_unit_and_rounds_them_up() {
    let values = (
        quota(AlgorithmKind::Gcra),
        quota(AlgorithmKind::Gcra),
        requests(15),
    );
    property(200, &values, |(old, new, requests)| {
        let mut run = Run::<crate::oracle::GcraOracle>::new(old, 1_700_000_000_000_000);
        for request in requests {
            let cost = run.moved(request);
            run.decide(cost);
        }
        let after = Gcra::new(&new).expect("a valid quota");
        let carried = after.convert(&run.algorithm, &run.state, run.now);
        // ahead · rate / (denominator · period), compared crosswise.
        let used = |quota: &Quota, algorithm: &Gcra, state: &GcraState| {
            let ahead = if state.tat < run.now {
                big(0)
            } else {
                big(state.tat - run.now) * algorithm.denominator() + state.rest
            };
            let units = big(algorithm.denominator()) * quota.period().as_micros();
            (ahead * quota.rate(), units)
        };
        let (had, had_of) = used(&old, &run.algorithm, &run.state);
        let (has, has_of) = used(&new, &after, &carried);
        let full = big(new.limit()) * &has_of;
        prop_assert!(
            &has * &had_of >= &had * &has_of || has == full,
            "{old:?} to {new:?}"
        );
        // And by less than the smallest part of a microsecond more.
        let part = big(new.rate());
        prop_assert!((has - part) * had_of <= had * has_of);
        Ok(())
    });
}
