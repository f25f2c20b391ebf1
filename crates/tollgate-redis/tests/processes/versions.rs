//! Two versions of a service, while one replaces the other: both run at the same time, in processes of their own.

use std::fs;

use tempfile::NamedTempFile;
use tollgate_test_servers::blocking_server::RedisServer;
use tollgate_test_services::{
    child::{self, FROM_A_LEASE, Load, RuleLoad},
    quotas::{ALGORITHMS, FIXED_WINDOW, GCRA, SLIDING_WINDOW},
};

/// 64 tasks with twelve requests each to a version with this limit.
fn load(rule: &str, algorithm: usize, limit: u64) -> Load {
    Load {
        tasks: 64,
        attempts: 12,
        dies_after: 0,
        rule_loads: vec![RuleLoad {
            rule: rule.to_owned(),
            algorithm,
            limit,
            cost: 1,
            clients: 1,
            leased: 0,
        }],
    }
}

#[test]
fn two_versions_together_admit_what_the_larger_limit_admits() {
    const SMALL: u64 = 200;
    const LARGE: u64 = 600;
    let server = RedisServer::start(&[]);
    let meter = NamedTempFile::new().expect("a file for the meter");
    let address = format!("redis://{}", server.address());
    let mut old = child::start(&address, meter.path());
    let mut new = child::start(&address, meter.path());
    for algorithm in 0..ALGORITHMS {
        let rule = format!("rule-{algorithm}");
        old.begin(&load(&rule, algorithm, SMALL));
        new.begin(&load(&rule, algorithm, LARGE));
        let by_old: u64 = old.finish().expect("it lives");
        let by_new: u64 = new.finish().expect("it lives");
        assert!(
            by_old <= SMALL,
            "{by_old} of {SMALL}, algorithm {algorithm}"
        );
        assert_eq!(by_old + by_new, LARGE, "algorithm {algorithm}");
    }
    let metered = fs::metadata(meter.path()).expect("the meter is there");
    assert_eq!(metered.len(), LARGE * ALGORITHMS as u64);
}

/// As in the middle of a rolling deploy: half of the processes have the old rule set, and the others the new one.
#[test]
fn processes_of_two_versions_never_admit_more_than_the_larger_limit() {
    const SMALL: u64 = 1_000;
    const LARGE: u64 = 3_000;
    const EACH: usize = 2;
    let server = RedisServer::start(&[]);
    let meter = NamedTempFile::new().expect("a file for the meter");
    let address = format!("redis://{}", server.address());
    let start = |_| child::start(&address, meter.path());
    let mut processes: Vec<_> = (0..2 * EACH).map(start).collect();
    let mut metered = 0;
    for algorithm in [FIXED_WINDOW, SLIDING_WINDOW, GCRA] {
        for leased in [0, 50] {
            let case = format!("algorithm {algorithm}, {leased} % leased");
            let load = |limit| {
                let mut load = load(&format!("rule-{algorithm}-{leased}"), algorithm, limit);
                // Far more than the limits.
                load.attempts = 24;
                load.rule_loads[0].leased = leased;
                load
            };
            let limits = (0..2 * EACH).map(|number| [SMALL, LARGE][number / EACH]);
            for (process, limit) in processes.iter_mut().zip(limits) {
                process.begin(&load(limit));
            }
            let admitted = processes.iter_mut();
            let admitted: Vec<u64> = admitted.map(|it| it.finish().expect("it lives")).collect();
            let (old, all): (u64, u64) = (admitted[..EACH].iter().sum(), admitted.iter().sum());
            assert!(old <= SMALL, "{old} of {SMALL}, {case}");
            assert!(all <= LARGE, "{all} of {LARGE}, {case}");
            assert!(all > SMALL, "{all} of {LARGE}, {case}");
            let bytes = fs::read(meter.path()).expect("the meter is there");
            let by_meter = &bytes[metered..];
            assert_eq!(by_meter.len() as u64, all, "{case}");
            let is_leased = |byte: &&u8| **byte == FROM_A_LEASE;
            let from_leases = by_meter.iter().filter(is_leased).count();
            match leased {
                // Everything that there is was admitted.
                0 => assert_eq!((all, from_leases), (LARGE, 0), "{case}"),
                _ => assert!(from_leases > 0, "{case}"),
            }
            metered = bytes.len();
        }
    }
}

#[test]
fn a_change_of_algorithm_admits_at_most_the_limits_of_both() {
    const LIMIT: u64 = 300;
    let server = RedisServer::start(&[]);
    let meter = NamedTempFile::new().expect("a file for the meter");
    let address = format!("redis://{}", server.address());
    let mut old = child::start(&address, meter.path());
    let mut new = child::start(&address, meter.path());
    for algorithm in 1..5 {
        let rule = format!("rule-{algorithm}");
        old.begin(&load(&rule, algorithm - 1, LIMIT));
        new.begin(&load(&rule, algorithm, LIMIT));
        assert_eq!(old.finish(), Some(LIMIT));
        assert_eq!(new.finish(), Some(LIMIT));
    }
}
