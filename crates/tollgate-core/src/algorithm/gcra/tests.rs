//! Tests of GCRA.

use super::*;
use crate::time::{DAY, SECOND};

fn ready(quota: Quota) -> Gcra {
    Gcra::new(&quota).expect("a valid quota")
}

#[test]
fn an_answer_bounds_a_state_by_the_earliest_one_that_answers_like_it() {
    let now = 1_700_000_000_000_000;
    let mut narrower = 0;
    for (rate, burst) in [
        (7, 10),
        (3, 4),
        (13, 5),
        (999_983, 1_000_000),
        (1_000_000, 9),
    ] {
        let quota = ready(Quota::gcra(rate, SECOND).burst(burst));
        let d = quota.denominator as u32;
        for n in 0..200_u64 {
            let tat = now + n * 6_700_417 % u64::max(quota.micros(quota.tolerance), 2) + 1;
            let state = GcraState::new(tat, (n % u64::from(d)) as u32, 0);
            let answers = |state: &GcraState, cost| {
                (quota.fresh_at(state), quota.assess(state, now, cost).retry)
            };
            for cost in [1, burst / 2, burst] {
                let (fresh_at, retry) = answers(&state, cost);
                let Retry::After(wait) = retry else { continue };
                if quota.assess(&state, now, cost).fits {
                    continue;
                }
                let reply = (now + micros(wait), cost);
                let bound = quota.earliest(fresh_at, Some(reply));
                assert!((bound.tat, bound.rest) <= (state.tat, state.rest));
                let by_fresh = quota.earliest(fresh_at, None);
                assert!((by_fresh.tat, by_fresh.rest) <= (bound.tat, bound.rest));
                narrower += u32::from(by_fresh != bound);
                if state.rest == 0 && d > 1 {
                    continue;
                }
                assert_eq!(answers(&bound, cost), (fresh_at, retry));
                let parts = quota.parts(bound.tat) + u128::from(bound.rest) - 1;
                let less = quota.state(0, parts);
                assert_ne!(answers(&less, cost), (fresh_at, retry));
                // A wait longer than that of the bucket has another reason, and a cost above the burst shows nothing.
                for reply in [
                    (fresh_at + DAY.as_micros() as u64, cost),
                    (reply.0, burst + 1),
                ] {
                    assert_eq!(quota.earliest(fresh_at, Some(reply)), by_fresh);
                }
            }
        }
    }
    assert!(narrower > 0);
}
