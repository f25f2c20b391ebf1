//! How often Redis is asked, by its own count.

use std::time::Duration;

use redis::Value;
use serde::{Deserialize, Serialize};
use tollgate_core::{Consistency, HOUR, MINUTE};
use tollgate_test_servers::{blocking_server::RedisServer, redis_client::RedisClient};

use crate::{
    fleet::{Fleet, PATIENT, PROCESSES},
    load::{EXACT, LEASED, Limit, Load, RuleLoad, bucket, eventual},
};

/// Calls of the script so far.
pub(crate) fn calls(server: &RedisServer) -> u64 {
    let Value::BulkString(text) = RedisClient::connect(server.address()).say("INFO commandstats")
    else {
        panic!("INFO answers a text");
    };
    let text = String::from_utf8_lossy(&text);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let number = line.and_then(|line| line.split(',').next());
    number.map_or(0, |number| number.parse().expect("a number"))
}

/// Calls of the script and what became of the requests, without those that came before.
fn counted(server: &RedisServer, fleet: &mut Fleet, load: &Load) -> (u64, Counts) {
    let before = calls(server);
    let counts = fleet.run(load);
    let calls = calls(server) - before;
    assert_eq!(counts.fallback, 0);
    (calls, counts)
}

fn start() -> (RedisServer, Fleet) {
    let server = RedisServer::start(&[]);
    let fleet = Fleet::start(&format!("redis://{}", server.address()), PATIENT);
    (server, fleet)
}

/// Eight clients with about 180 requests a second each, through every process, four at a time.
fn hot(name: &str, limit: Limit, lasts: Duration) -> Load {
    Load {
        keys: 8,
        at_once: 4,
        pause: Duration::from_millis(40),
        ..Load::new([RuleLoad::new(name, limit, LEASED)], lasts)
    }
}

/// Calls for a thousand requests.
fn permille(calls: u64, counts: Counts) -> u64 {
    calls * 1_000 / counts.layout.max(1)
}

#[test]
fn hot_clients_under_their_limit_cost_few_calls() {
    const MOST: u64 = 150;
    // On a slow machine there are fewer requests for what a process asks of a client to begin with.
    const TO_BEGIN: u64 = PROCESSES as u64 * 8 * 8;
    let (server, mut fleet) = start();
    for (name, limit) in [
        ("bucket", bucket(20_000, 20_000, MINUTE)),
        ("fixed", Limit::Fixed(20_000, MINUTE)),
    ] {
        fleet.turn_over();
        let load = hot(name, limit, Duration::from_secs(3));
        let (calls, counts) = counted(&server, &mut fleet, &load);
        let each = permille(calls, counts);
        println!("{name}: {each} ‰ calls a request, {counts:?}");
        assert_eq!(counts.allowed, counts.layout, "somebody is above the limit");
        let most = TO_BEGIN + counts.layout * MOST / 1_000;
        assert!(calls <= most, "{name}: {calls} calls, {most} at most");
        fleet.keeps_its_bounds(&load, 0);
    }
}

#[test]
fn who_is_far_over_the_limit_costs_a_process_about_a_call_a_second() {
    const LIMIT: u64 = 100;
    const SECONDS: u64 = 3;
    const TASKS: u64 = 2;
    let (server, mut fleet) = start();
    for (name, consistency) in [
        ("exact", Consistency::Exact),
        ("leased", LEASED),
        ("eventual", eventual(5)),
    ] {
        let load = Load {
            tasks: TASKS,
            at_once: 10,
            pause: Duration::from_millis(20),
            ..Load::new(
                [RuleLoad::new(name, bucket(LIMIT, 1, HOUR), consistency)],
                Duration::from_secs(SECONDS),
            )
        };
        let (calls, counts) = counted(&server, &mut fleet, &load);
        println!("{name}: {calls} calls, {counts:?}");
        // Until it is over the limit each unit may be a call. Then one for each second that was begun, in which both tasks
        // may ask at once, and reports of what was admitted before.
        let processes = PROCESSES as u64;
        let most = 2 * LIMIT + processes * TASKS * (SECONDS + 2);
        assert!(
            calls <= most,
            "{name}: {calls} calls, {most} at most, {counts:?}"
        );
        assert!(counts.layout > 2 * most, "nobody was far over the limit");
    }
}

#[test]
fn a_client_that_comes_once_costs_one_call_at_most() {
    let (server, mut fleet) = start();
    for (name, consistency) in [
        ("exact", EXACT),
        ("leased", LEASED),
        ("eventual", eventual(5)),
    ] {
        let rule_load = RuleLoad::new(name, bucket(100, 100, MINUTE), consistency);
        let load = Load {
            cold: true,
            at_once: 2,
            pause: Duration::from_millis(10),
            ..Load::new([rule_load], Duration::from_secs(1))
        };
        let (calls, counts) = counted(&server, &mut fleet, &load);
        println!("{name}: {calls} calls, {counts:?}");
        // One more for each process: the server does not know the script yet.
        assert!(
            calls <= counts.layout + PROCESSES as u64,
            "{name}: {calls} calls"
        );
    }
}

// What became of requests.

/// What became of the requests of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) layout: u64,
    pub(crate) allowed: u64,
    /// Verdicts by who made them.
    pub(crate) store: u64,
    pub(crate) deny_cached: u64,
    pub(crate) lease: u64,
    pub(crate) eventual: u64,
    pub(crate) fallback: u64,
}

impl Counts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            layout: self.layout + other.layout,
            allowed: self.allowed + other.allowed,
            store: self.store + other.store,
            deny_cached: self.deny_cached + other.deny_cached,
            lease: self.lease + other.lease,
            eventual: self.eventual + other.eventual,
            fallback: self.fallback + other.fallback,
        }
    }
}
