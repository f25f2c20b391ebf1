//! A change of the limit: used units stay used.

use num_bigint::BigInt;
use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Quota,
    algorithm::{Algorithm, Gcra, GcraState},
};

use crate::{
    agreement::Run,
    history::{for_each_algorithm, property, quota, requests, requests_back, start},
    oracle::{Oracle, big},
};

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
            let ahead = if state.tat() < run.now {
                big(0)
            } else {
                big(state.tat() - run.now) * algorithm.denominator() + state.rest()
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
