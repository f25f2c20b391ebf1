//! Tickets that are held and settled in whatever order, against a history in which what they gave back was never taken.

use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Check, Decision, Limiter, ManualClock, MemoryStore, Rule, Tick,
    store::Fingerprint,
};

use crate::{
    history::{for_each_algorithm, property, quota, requests, start},
    oracle::{Oracle, left},
};

for_each_algorithm! {
    settled_tickets_stay_within_the_quota => kept;
}

/// A take that was allowed, and its ticket as long as it is held.
struct Taken {
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
            let mut takes: Vec<Taken> = Vec::new();
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
                    takes.push(Taken {
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
                    limiter.ticket(&check, &decision).refund(back);
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
