//! Leases beside the state machines of the prefilter, which a model checker has explored.

use std::time::Duration;

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder, reply::ScriptReply},
};
use tollgate_core::{
    Check, Quota, Rule, RuleSet, SECOND, calendar::CalendarUnit, store::Fingerprint,
};
use tollgate_prefilter::{Grant, LeaseQuery, LeaseTerms, ReturnedLease};
use tollgate_test_reference::LimitState;
use tollgate_test_servers::numbers::Numbers;
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::parity::{holds::histories, server::Server};

const STEPS: u64 = 400;
const HISTORIES: u64 = 30;
const MARGIN: Duration = Duration::from_secs(10_000_000_000);

/// Runs a history, and says how often units were granted that the bucket did not have, and how often to a request that was denied.
fn history(server: &mut Server, quota: Quota, seed: u64) -> [u64; 2] {
    let mut numbers = Numbers(seed);
    let terms = LeaseTerms::new(&quota, 20 + numbers.below(480) as u16).expect("it is granted");
    let mut twin = LimitState::new(&quota, Some(terms)).expect("they are its terms");
    let rules = RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule");
    let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
    let encoder = Encoder::new(&rules, keyspace).expect("no plans");
    let check = Check::new(0, Fingerprint::from_bits(u128::from(seed)), 1);
    let mut now = 1_700_000_000_000_000 + numbers.below(1_000_000_000);
    let mut grants: Vec<(Grant, u64)> = Vec::new();
    // Units of a window that were spent of leases that are closed.
    let mut spent = (0, 0);
    let mut ahead = [0; 2];
    let mut written: Option<Vec<u8>> = None;
    let unit = (quota.period().as_micros() as u64 / quota.rate()).max(1);
    for step in 0..STEPS {
        now += match numbers.below(12) {
            0 => numbers.below(30_000_000),
            1 => 10_000_000 - now % 10_000_000,
            2..4 => 0,
            _ => numbers.below(unit * 8),
        };
        let returned = match (numbers.below(3), grants.len()) {
            (0, 1..) => {
                let (grant, left) = grants.swap_remove(numbers.below(grants.len() as u64) as usize);
                match grant {
                    Grant::Tracked {
                        units, generation, ..
                    } => {
                        // Of a window also units of leases before it, which come back later.
                        let mut earlier = 0;
                        if terms.window.is_some() {
                            if spent.0 != generation {
                                spent = (generation, 0);
                            }
                            earlier = numbers.below(2) * numbers.below(spent.1 + 1);
                            spent.1 = spent.1 + units - left - earlier;
                        }
                        Some(ReturnedLease {
                            size: units,
                            left: left + earlier,
                            generation,
                        })
                    }
                    // Of a scheduled lease nothing comes back.
                    _ => None,
                }
            }
            _ => None,
        };
        let resets = numbers.below(20) == 0;
        let query = LeaseQuery {
            returned,
            tracked: numbers.below(3) * numbers.below(quota.limit()),
            scheduled: numbers.below(2) * numbers.below(quota.limit()),
        };
        let cost = match numbers.below(16) {
            // Near the limit, where what is out is in the way.
            0 => quota.limit() - numbers.below(1 + quota.limit() / 4),
            _ => 1 + numbers.below(4) * numbers.below(1 + quota.limit() / 10),
        };
        let mut call = ScriptCall::at(now, MARGIN);
        if resets {
            spent.1 = 0;
            assert!(call.reset(&encoder, 0, check.key()));
            twin.reset(now);
        }
        if let Some(returned) = returned {
            assert!(call.close(&encoder, &check, returned).is_some());
        }
        let checks = [check.with_cost(cost)];
        let layout = call.acquire(&encoder, &checks).expect("there is room");
        let grant = call
            .grant(&encoder, &check, &query, &terms)
            .expect("there is room");
        let carried_out = server.carry_out(&call);
        let integers = carried_out.answer.integers();
        let reply = ScriptReply::new(call.checks(), integers).expect("a whole reply");
        let decision = reply.decision(&layout, &checks, &rules);
        let verdict = decision.verdicts()[0];
        let by_script = reply.grant(grant).expect("it is ours");
        let (answer, grant) = twin.acquire(now, cost, &query);
        let at = format_args!(
            "seed {seed}, step {step}, {quota:?}, {terms:?}, {query:?}, cost {cost}, {twin:?}"
        );
        assert_eq!(by_script, grant, "{at}");
        let units = grant.map_or(0, |grant| grant.units());
        assert_eq!(
            verdict.remaining().saturating_sub(units),
            answer.remaining,
            "{at}"
        );
        assert_eq!(
            (decision.is_allowed(), verdict.retry()),
            (answer.fits, answer.retry),
            "{at}"
        );
        if units == 0 {
            let reset = Duration::from_micros(answer.reset_after);
            assert_eq!(verdict.reset_after(), reset, "{at}");
        }
        let state = carried_out.states.into_iter().next();
        let state = state.and_then(|(_, state)| state);
        // What is not written again lives for as long as was right then.
        if let Some((bytes, lives)) = &state
            && written.as_ref() != Some(bytes)
        {
            let (begun, ended) = carried_out.between;
            let right = twin.fresh_at().saturating_sub(now).div_ceil(1_000);
            let right = (right + MARGIN.as_millis() as u64) as i64;
            let least = right - (ended / 1_000 - begun / 1_000) as i64;
            assert!((least..=right).contains(lives), "{lives}, {right}: {at}");
        }
        written = state.map(|(bytes, _)| bytes);
        if matches!(grant, Some(Grant::Scheduled { .. })) {
            ahead[0] += 1;
            ahead[1] += u64::from(!answer.fits);
        }
        if let Some(grant) = grant {
            grants.push((grant, numbers.below(grant.units() + 1)));
        }
    }
    ahead
}

fn holds(quotas: &[Quota]) -> [u64; 2] {
    let mut server = Server::start();
    let mut ahead = [0; 2];
    for seed in 0..histories(HISTORIES) {
        let quota = quotas[seed as usize % quotas.len()];
        let [all, denied] = history(&mut server, quota, seed);
        ahead = [ahead[0] + all, ahead[1] + denied];
    }
    ahead
}

#[test]
fn leases_of_buckets_are_granted_by_the_script_as_by_the_state_machine() {
    let [ahead, denied] = holds(&[
        Quota::gcra(100, SECOND),
        Quota::token_bucket(1_000).refill(7, SECOND),
        Quota::token_bucket(97).refill(999_983, SECOND),
        Quota::gcra(6_000, Duration::from_secs(60)),
        Quota::leaky_bucket(50).leak(3, Duration::from_millis(10)),
        Quota::token_bucket(1_000_003).refill(1_000_000, Duration::from_secs(86_400)),
    ]);
    let histories = histories(HISTORIES);
    assert!(
        ahead > 3 * histories && denied > histories,
        "{ahead}, {denied}"
    );
}

#[test]
fn leases_of_windows_are_granted_by_the_script_as_by_the_state_machine() {
    let none = holds(&[
        Quota::fixed_window(100, SECOND),
        Quota::sliding_window(100, SECOND),
        Quota::fixed_window(100_000, Duration::from_secs(60)),
        Quota::sliding_window(9_973, Duration::from_secs(60)),
        Quota::calendar(500, CalendarUnit::Day),
    ]);
    assert_eq!(none, [0, 0]);
}
