//! Many processes at once, under a server that is well.

use std::time::Duration;

use tollgate_core::{MINUTE, SECOND};
use tollgate_test_servers::blocking_server::RedisServer;

use crate::{
    counts::Counts,
    fleet::{Fleet, PATIENT},
    load::{EXACT, LEASED, Limit, Load, RuleLoad, bucket, eventual},
};

const LASTS: Duration = Duration::from_millis(1_200);

/// What the processes do of a job.
type Drive = fn(&mut Fleet, &Load) -> Counts;

/// A job under rules of each consistency.
fn holds(limit: Limit, max_unreported: u64, shape: impl Fn(Load) -> Load, drive: Drive) {
    let server = RedisServer::start(&[]);
    let mut fleet = Fleet::start(&format!("redis://{}", server.address()), PATIENT);
    for (name, consistency) in [
        ("exact", EXACT),
        ("leased", LEASED),
        ("eventual", eventual(max_unreported)),
    ] {
        let load = shape(Load::new([RuleLoad::new(name, limit, consistency)], LASTS));
        fleet.turn_over();
        let counts = drive(&mut fleet, &load);
        assert!(counts.allowed > 0, "{name}: {counts:?}");
        assert_eq!(counts.fallback, 0, "{counts:?}");
        fleet.keeps_its_bounds(&load, 0);
    }
}

#[test]
fn one_client_at_twice_its_limit() {
    holds(
        bucket(200, 800, SECOND),
        20,
        |load| Load {
            pause: Duration::from_millis(8),
            ..load
        },
        Fleet::run,
    );
}

#[test]
fn tenants_at_their_limit() {
    holds(
        bucket(300, 6_000, MINUTE),
        10,
        |load| Load {
            keys: 8,
            at_once: 2,
            pause: Duration::from_millis(20),
            ..load
        },
        Fleet::run,
    );
}

#[test]
fn requests_of_many_costs() {
    holds(
        bucket(1_000, 2_000, SECOND),
        100,
        |load| Load {
            rule_loads: load
                .rule_loads
                .into_iter()
                .map(|rule_load| rule_load.costing_up_to(40))
                .collect(),
            pause: Duration::from_millis(10),
            ..load
        },
        Fleet::run,
    );
}

#[test]
fn fixed_windows() {
    holds(Limit::Fixed(400, SECOND), 20, windows, Fleet::run);
}

#[test]
fn sliding_windows() {
    holds(Limit::Sliding(400, SECOND), 20, windows, Fleet::run);
}

fn windows(load: Load) -> Load {
    Load {
        keys: 2,
        pause: Duration::from_millis(10),
        ..load
    }
}

/// Bursts, each of which lands on one process, as a balancer by connection does it.
#[test]
fn bursts_that_land_on_one_process() {
    holds(
        bucket(200, 200, SECOND),
        20,
        |load| Load {
            lasts: Duration::from_millis(300),
            at_once: 100,
            ..load
        },
        |fleet, load| {
            let mut counts = Counts::default();
            for place in [0, 1, 0, 2, 3, 4, 0, 5] {
                let process = &mut fleet.processes[place];
                process.begin(load);
                counts = counts.plus(process.finish().expect("it lives"));
            }
            counts
        },
    );
}

/// No requests come, and the bucket fills up.
fn idle(fleet: &mut Fleet, load: &Load) {
    fleet.run(&Load {
        lasts: Duration::from_millis(300),
        pause: Duration::from_millis(300),
        at_once: 0,
        ..load.clone()
    });
}

/// First each process is asked for a little, so that it holds some, and then one after the other for all it gives.
#[test]
fn an_adversary_that_sweeps_over_all_processes() {
    holds(
        bucket(500, 500, SECOND),
        20,
        |load| load,
        |fleet, load| {
            let little = Load {
                lasts: Duration::from_millis(1_000),
                tasks: 1,
                pause: Duration::from_millis(25),
                ..load.clone()
            };
            let mut counts = fleet.run(&little);
            idle(fleet, load);
            let all = Load {
                lasts: Duration::from_millis(100),
                at_once: 1_000,
                tasks: 1,
                ..load.clone()
            };
            for process in &mut fleet.processes {
                process.begin(&all);
                counts = counts.plus(process.finish().expect("it lives"));
            }
            counts
        },
    );
}

/// All take what they can hold and then nothing, while the bucket fills up; then all ask for everything.
#[test]
fn processes_that_hoard() {
    holds(
        bucket(600, 3_000, SECOND),
        20,
        |load| load,
        |fleet, load| {
            let mut counts = Counts::default();
            for _ in 0..2 {
                let hoard = Load {
                    lasts: Duration::from_millis(600),
                    pause: Duration::from_millis(5),
                    ..load.clone()
                };
                counts = counts.plus(fleet.run(&hoard));
                idle(fleet, load);
                let take = Load {
                    lasts: Duration::from_millis(100),
                    at_once: 200,
                    ..load.clone()
                };
                counts = counts.plus(fleet.run(&take));
            }
            counts
        },
    );
}
