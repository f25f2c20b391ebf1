//! How often Redis is asked, by its own count.

use std::time::Duration;

use redis::Value;
use serde::{Deserialize, Serialize};
use tollgate_core::{Consistency, HOUR};
use tollgate_test_servers::{blocking_server::RedisServer, redis_client::RedisClient};

use crate::{
    fleet::{Fleet, PATIENT, PROCESSES},
    load::{LEASED, Load, RuleLoad, bucket, eventual},
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
