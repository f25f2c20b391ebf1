//! Refunds: against a history in which the units were never taken.

use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind,
    algorithm::{Algorithm, Taken},
};

use crate::{
    agreement::Run,
    history::{Request, for_each_algorithm, property, quota, requests, start},
    oracle::{Oracle, assess, left},
};

for_each_algorithm! {
    a_refund_never_lifts_above_what_would_be_left_had_the_units_never_been_taken => never_above;
    a_refund_at_once_gives_everything_back => at_once;
}

fn never_above<O: Oracle>(kind: AlgorithmKind) {
    let values = (
        quota(kind),
        start(),
        requests(12),
        requests(2),
        requests(12),
        0..1_001_u64,
    );
    property(150, &values, |(quota, start, before, ours, after, part)| {
        let mut run = Run::<O>::new(quota, start);
        go(&mut run, before);
        let mut without = run.oracle.clone();
        let cost = run.moved(ours[0]);
        let answer = run.decide(cost);
        prop_assume!(answer.fits && cost > 0);
        let taken = Taken::new(run.now, run.now + answer.reset_after);
        let back = (u128::from(cost) * u128::from(part)).div_ceil(1_000) as u64;
        without.take(run.now, cost - back);
        for (at, cost) in go(&mut run, after) {
            without.take(at, cost);
        }
        let limit = quota.limit();
        let had = run.algorithm.assess(&run.state, run.now, 0);
        run.algorithm.refund(&mut run.state, run.now, taken, back);
        let has = run.algorithm.assess(&run.state, run.now, 0);
        prop_assert!(has.remaining >= had.remaining, "a refund takes nothing");
        prop_assert!(has.remaining <= left(&without, limit, run.now, 0));
        prop_assert!(has.reset_after >= assess(&without, limit, run.now, 0).reset_after);
        // Nor does it come out later, when what is left has grown.
        for wait in [1, has.reset_after / 3, has.reset_after.saturating_sub(1)] {
            let later = run.now + wait;
            let has = run.algorithm.assess(&run.state, later, 0).remaining;
            prop_assert!(has <= left(&without, limit, later, 0));
        }
        Ok(())
    });
}

fn at_once<O: Oracle>(kind: AlgorithmKind) {
    property(
        80,
        &(quota(kind), start(), requests(12), requests(2)),
        |(quota, start, before, ours)| {
            let mut run = Run::<O>::new(quota, start);
            go(&mut run, before);
            let cost = run.moved(ours[0]);
            let had = run.algorithm.assess(&run.state, run.now, 0);
            let answer = run.algorithm.assess(&run.state, run.now, cost);
            prop_assume!(answer.fits && cost > 0);
            let taken = Taken::new(run.now, run.now + answer.reset_after);
            run.algorithm.take(&mut run.state, run.now, cost);
            run.algorithm.refund(&mut run.state, run.now, taken, cost);
            prop_assert_eq!(run.algorithm.assess(&run.state, run.now, 0), had);
            Ok(())
        },
    );
}

/// Lets requests pass or not; what was taken, and when.
fn go<O: Oracle>(run: &mut Run<O>, requests: Vec<Request>) -> Vec<(u64, u64)> {
    let mut taken = Vec::new();
    for request in requests {
        let cost = run.moved(request);
        if run.decide(cost).fits {
            taken.push((run.now, cost));
        }
    }
    taken
}
