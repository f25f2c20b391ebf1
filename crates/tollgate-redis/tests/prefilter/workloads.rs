//! Many processes at once, under a server that is well.

use std::time::Duration;

use tollgate_core::SECOND;
use tollgate_test_servers::blocking_server::RedisServer;

use crate::{
    calls::Counts,
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
fn windows() {
    for limit in [Limit::Fixed(400, SECOND), Limit::Sliding(400, SECOND)] {
        let shape = |mut load: Load| {
            load.rule_loads.iter_mut().for_each(|it| it.costs = 5);
            Load {
                keys: 2,
                pause: Duration::from_millis(10),
                ..load
            }
        };
        holds(limit, 20, shape, Fleet::run);
    }
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
                    pause: Duration::from_millis(10),
                    ..load.clone()
                };
                counts = counts.plus(fleet.run(&hoard));
                idle(fleet, load);
                let take = Load {
                    lasts: Duration::from_millis(50),
                    at_once: 200,
                    ..load.clone()
                };
                counts = counts.plus(fleet.run(&take));
            }
            counts
        },
    );
}
