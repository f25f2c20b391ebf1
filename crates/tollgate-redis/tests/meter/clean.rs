//! What is exact is seen to be.

use std::time::Duration;

use tollgate_core::{
    Check, Consistency, LeaseShare, MINUTE, Outcome, Quota, Rule, SECOND, Source,
    store::Fingerprint,
};

use crate::{Fleet, seen};

fn quotas() -> [Quota; 4] {
    [
        Quota::gcra(200, SECOND),
        Quota::token_bucket(100).refill(6_007, MINUTE),
        Quota::fixed_window(200, SECOND),
        Quota::sliding_window(200, SECOND),
    ]
}

/// Of the quotas that have one, in µs.
const WINDOW: u64 = 1_000_000;

/// Two processes at about twice the limit for some ten seconds by their clock. Gives what the meters have seen, and how many
/// requests were answered from leases.
async fn at_twice_the_limit(quota: Quota, consistency: Consistency) -> (crate::Seen, u64) {
    let fleet = Fleet::start().await;
    let rules = [Rule::new("per-key", quota).consistency(consistency)];
    let processes = [
        fleet.process(1, &rules).await,
        fleet.process(1, &rules).await,
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let (mut from_grants, mut refused) = (0, 0);
    let requests = 4_000;
    for request in 1..=requests {
        let pause = random.u64(..5_000);
        let now = fleet.clock.now();
        if request % 10 == 0 || now / WINDOW != (now + pause) / WINDOW {
            // Time goes on only if the meters do, as far as it does for them in a service: to the end of a window, and for no
            // longer than they rely upon.
            let [one, other] = &processes;
            seen(&[one, other], request - 1).await;
        }
        fleet.clock.advance(Duration::from_micros(pause));
        let process = &processes[random.usize(..2)];
        let check = Check::new(0, Fingerprint::from_bits(7), 1);
        let decision = process.acquire(&[check]).await;
        from_grants += u64::from(decision.verdicts()[0].source() == Source::Lease);
        refused += u64::from(decision.outcome() == Outcome::Deny);
    }
    assert!(refused > 500, "{refused} of {quota:?}");
    let [one, other] = &processes;
    (seen(&[one, other], requests).await, from_grants)
}

#[tokio::test]
async fn an_exact_rule_is_never_above_its_limit_and_refuses_nothing_falsely() {
    for quota in quotas() {
        let (seen, _) = at_twice_the_limit(quota, Consistency::Exact).await;
        assert_eq!((seen.over, seen.falsely), (0, 0), "{seen:?} of {quota:?}");
        assert!(seen.followed > 3_000, "{seen:?} of {quota:?}");
    }
}

#[tokio::test]
async fn a_leased_rule_is_never_above_its_limit() {
    for quota in quotas() {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(10),
        };
        let (seen, from_grants) = at_twice_the_limit(quota, leased).await;
        assert_eq!(seen.over, 0, "{seen:?} of {quota:?}");
        assert!(
            from_grants > 0 && seen.followed > 3_000,
            "{seen:?} of {quota:?}"
        );
    }
}
