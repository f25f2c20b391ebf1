//! Processes that all live.

use tollgate_core::{MAX_PERIOD, Quota};
use tollgate_test_services::{
    child::{Load, RuleLoad},
    quotas::{ALGORITHMS, every_algorithm},
};

use crate::fleet::{Fleet, TASKS};

fn name(algorithm: usize) -> &'static str {
    let quotas: [Quota; ALGORITHMS] = every_algorithm(1, MAX_PERIOD);
    quotas[algorithm].algorithm().name()
}

#[test]
fn four_processes_admit_exactly_the_limit() {
    const LIMIT: u64 = 1_000;
    let mut fleet = Fleet::start();
    for algorithm in 0..ALGORITHMS {
        let before = fleet.metered();
        let admitted = fleet.run(&Load {
            tasks: TASKS,
            attempts: 6,
            dies_after: 0,
            rule_loads: vec![RuleLoad {
                rule: name(algorithm).to_owned(),
                algorithm,
                limit: LIMIT,
                cost: 1,
                clients: 1,
                leased: 0,
            }],
        });
        assert_eq!(admitted, LIMIT, "{}", name(algorithm));
        assert_eq!(fleet.metered() - before, LIMIT, "{}", name(algorithm));
    }
}

#[tokio::test]
async fn among_four_processes_a_request_of_several_rules_takes_from_all_or_from_none() {
    const CLIENTS: u64 = 3;
    const EACH: u64 = 100;
    let mut fleet = Fleet::start();
    let store = fleet.store().await;
    for algorithm in 0..ALGORITHMS {
        let rule_load = |suffix: &str, limit, cost, clients| RuleLoad {
            rule: format!("{}-{suffix}", name(algorithm)),
            algorithm,
            limit,
            cost,
            clients,
            leased: 0,
        };
        let load = Load {
            tasks: TASKS,
            attempts: 3,
            dies_after: 0,
            rule_loads: vec![
                rule_load("all", 1_000, 1, 1),
                rule_load("bytes", 1_000, 2, 1),
                rule_load("client", EACH, 1, CLIENTS),
            ],
        };
        assert_eq!(fleet.run(&load), CLIENTS * EACH, "{}", name(algorithm));
        let limiter = load.limiter(&store);
        for client in 0..CLIENTS {
            let left = limiter.peek(&load.checks(&limiter, client)).await;
            let left: Vec<_> = left
                .verdicts()
                .iter()
                .map(|left| left.remaining())
                .collect();
            assert_eq!(left, [700, 400, 0], "{}", name(algorithm));
        }
        // Now every request is denied, by one of its three rules.
        let before = fleet.dump();
        assert!(before.len() >= 5);
        assert_eq!(fleet.run(&load), 0, "{}", name(algorithm));
        assert_eq!(fleet.dump(), before, "{}", name(algorithm));
    }
}
