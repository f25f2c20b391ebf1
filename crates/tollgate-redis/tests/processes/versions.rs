//! Two versions of a service, while one replaces the other: both are asked at the same time, by processes of their own.

use std::fs;

use tempfile::NamedTempFile;

use crate::support::{
    blocking_server::RedisServer,
    child::{self, Load, RuleLoad},
    quotas::ALGORITHMS,
};

/// 64 tasks that ask twelve times each of a version with this limit.
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
