//! One client above its limit on all processes at once: what Redis grants ahead.

use std::time::Duration;

use tollgate_core::{Consistency, SECOND};
use tollgate_test_servers::blocking_server::RedisServer;

use crate::{
    calls::{Counts, calls},
    fleet::{Fleet, PATIENT},
    load::{EXACT, LEASED, Load, RuleLoad, bucket},
};

/// A client of 100 units a second that eight processes together are asked for many times as often.
fn crowd(name: &str, consistency: Consistency) -> Load {
    Load {
        at_once: 2,
        pause: Duration::from_millis(20),
        ..Load::new(
            [RuleLoad::new(name, bucket(100, 100, SECOND), consistency)],
            Duration::from_secs(5),
        )
    }
}

/// What became of a job in each process, and how often Redis was asked.
fn run(server: &RedisServer, fleet: &mut Fleet, load: &Load) -> (Vec<Counts>, u64) {
    let before = calls(server);
    fleet.begin(load);
    let processes = fleet.processes.iter_mut();
    let counts: Vec<_> = processes
        .map(|process| process.finish::<Counts>().expect("it lives"))
        .collect();
    (counts, calls(server) - before)
}

#[test]
fn a_client_far_above_its_limit_costs_few_calls_and_every_process_serves_its_part() {
    let server = RedisServer::start(&[]);
    let mut fleet = Fleet::start(&format!("redis://{}", server.address()), PATIENT);
    for (name, consistency) in [("exact", EXACT), ("leased", LEASED)] {
        fleet.turn_over();
        let load = crowd(name, consistency);
        let (counts, calls) = run(&server, &mut fleet, &load);
        println!("{name}: {calls} calls, {counts:?}");
        fleet.keeps_its_bounds(&load, 0);
        if consistency == EXACT {
            continue;
        }
        let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
        let (layout, allowed) = (sum(|it| it.layout), sum(|it| it.allowed));
        // A machine that is too busy for a crowd shows nothing.
        assert!(
            calls <= layout / 4 || layout < 4 * allowed,
            "{calls} calls, {counts:?}"
        );
        assert!(counts.iter().all(|it| it.allowed > 0), "{counts:?}");
    }
}
