//! Refunds: against a history in which the units were never taken.

use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Check, Decision, Limiter, ManualClock, MemoryStore, Rule, Tick,
    algorithm::{Algorithm, Taken},
    store::Fingerprint,
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

// Tickets that are held and settled in whatever order, against a history in which what they gave back was never taken.

for_each_algorithm! {
    settled_tickets_stay_within_the_quota => kept;
}

/// A take that was allowed, and its ticket as long as it is held.
struct Take {
    at: Tick,
    kept: u64,
    ticket: Option<([Check; 1], Decision)>,
}

fn kept<O: Oracle>(kind: AlgorithmKind) {
    // After each request, perhaps some tickets are settled, each to a part of its cost: the last ones that are held or the
    // first ones.
    let settled = prop::collection::vec((0..2_usize, 0..1_001_u64), 0..4);
    let settled = prop_oneof![1 => Just(Vec::new()), 2 => settled];
    let settled = prop::collection::vec(settled, 30);
    property(
        150,
        &(quota(kind), start(), requests(30), settled),
        |(quota, start, requests, settled)| {
            let clock = ManualClock::new(start);
            let store = MemoryStore::builder().clock(&clock).build();
            let limiter = Limiter::new(store, [Rule::new("rule", quota)]).expect("valid");
            let check = Check::new(0, Fingerprint::from_bits(7 << 64 | 7), 0);
            let mut takes: Vec<Take> = Vec::new();
            let mut retry = start;
            for (request, settled) in requests.into_iter().zip(settled) {
                let now = clock.now();
                let period = quota.period().as_micros() as u64;
                clock.set(request.step.from(now, period, retry).max(now));
                let now = clock.now();
                let available = remaining(&limiter, check);
                let check = [check.with_cost(request.cost.of(quota.limit(), available))];
                let decision = limiter.acquire(&check).ready().expect("at once");
                if let Some(wait) = decision.retry_after() {
                    retry = now + wait.as_micros() as u64;
                }
                if decision.is_allowed() {
                    takes.push(Take {
                        at: now,
                        kept: check[0].cost(),
                        ticket: Some((check, decision)),
                    });
                }
                for (end, part) in settled {
                    let mut held = takes.iter_mut().filter(|taken| taken.ticket.is_some());
                    let found = if end == 0 {
                        held.next()
                    } else {
                        held.next_back()
                    };
                    let Some(taken) = found else { break };
                    let (check, decision) = taken.ticket.take().expect("it is held");
                    let cost = check[0].cost();
                    let back = (u128::from(cost) * u128::from(part)).div_ceil(1_000) as u64;
                    limiter.ticket(&check, &decision).settle(cost - back);
                    taken.kept = cost - back;
                }
                let mut oracle = O::new(&quota);
                for taken in &takes {
                    oracle.take(taken.at, taken.kept);
                }
                let most = left(&oracle, quota.limit(), now, 0);
                let has = remaining(&limiter, check[0]);
                prop_assert!(has <= most, "{} of at most {}", has, most);
            }
            Ok(())
        },
    );
}

fn remaining(limiter: &Limiter, check: Check) -> u64 {
    let looked = limiter.peek(&[check.with_cost(0)]).ready();
    looked.expect("memory answers at once").verdicts()[0].remaining()
}
