//! Many processes at once, under a server that is well.

use std::time::Duration;

use tollgate_core::{MINUTE, SECOND};

use crate::{
    counts::Counts,
    job::{Ask, EXACT, Job, LEASED, Limit, bucket, eventual},
    site::{PATIENT, Site},
    support::blocking_server::RedisServer,
};

const LASTS: Duration = Duration::from_millis(1_200);

/// What the processes do of a job.
type Drive = fn(&mut Site, &Job) -> Counts;

/// A job under rules of each consistency.
fn holds(limit: Limit, max_unreported: u64, shape: impl Fn(Job) -> Job, drive: Drive) {
    let server = RedisServer::start(&[]);
    let mut site = Site::start(&format!("redis://{}", server.address()), PATIENT);
    for (name, consistency) in [
        ("exact", EXACT),
        ("leased", LEASED),
        ("eventual", eventual(max_unreported)),
    ] {
        let job = shape(Job::new([Ask::new(name, limit, consistency)], LASTS));
        site.turn_over();
        let counts = drive(&mut site, &job);
        assert!(counts.allowed > 0, "{name}: {counts:?}");
        assert_eq!(counts.fallback, 0, "{counts:?}");
        site.keeps_its_bounds(&job, 0);
    }
}

#[test]
fn one_client_at_twice_its_limit() {
    holds(
        bucket(200, 800, SECOND),
        20,
        |job| Job {
            pause: Duration::from_millis(8),
            ..job
        },
        Site::run,
    );
}

#[test]
fn tenants_at_their_limit() {
    holds(
        bucket(300, 6_000, MINUTE),
        10,
        |job| Job {
            keys: 8,
            at_once: 2,
            pause: Duration::from_millis(20),
            ..job
        },
        Site::run,
    );
}

#[test]
fn requests_of_many_costs() {
    holds(
        bucket(1_000, 2_000, SECOND),
        100,
        |job| Job {
            asks: job
                .asks
                .into_iter()
                .map(|ask| ask.costing_up_to(40))
                .collect(),
            pause: Duration::from_millis(10),
            ..job
        },
        Site::run,
    );
}

#[test]
fn fixed_windows() {
    holds(Limit::Fixed(400, SECOND), 20, windows, Site::run);
}

#[test]
fn sliding_windows() {
    holds(Limit::Sliding(400, SECOND), 20, windows, Site::run);
}

fn windows(job: Job) -> Job {
    Job {
        keys: 2,
        pause: Duration::from_millis(10),
        ..job
    }
}

/// Bursts, each of which lands on one process, as a balancer by connection does it.
#[test]
fn bursts_that_land_on_one_process() {
    holds(
        bucket(200, 200, SECOND),
        20,
        |job| Job {
            lasts: Duration::from_millis(300),
            at_once: 100,
            ..job
        },
        |site, job| {
            let mut counts = Counts::default();
            for place in [0, 1, 0, 2, 3, 4, 0, 5] {
                let process = &mut site.processes[place];
                process.begin(job);
                counts = counts.plus(process.finish().expect("it lives"));
            }
            counts
        },
    );
}

/// Nobody asks for anything, and the bucket fills up.
fn idle(site: &mut Site, job: &Job) {
    site.run(&Job {
        lasts: Duration::from_millis(300),
        pause: Duration::from_millis(300),
        at_once: 0,
        ..job.clone()
    });
}

/// First each process is asked for a little, so that it holds some, and then one after the other for all it gives.
#[test]
fn an_adversary_that_sweeps_over_all_processes() {
    holds(
        bucket(500, 500, SECOND),
        20,
        |job| job,
        |site, job| {
            let little = Job {
                lasts: Duration::from_millis(1_000),
                tasks: 1,
                pause: Duration::from_millis(25),
                ..job.clone()
            };
            let mut counts = site.run(&little);
            idle(site, job);
            let all = Job {
                lasts: Duration::from_millis(100),
                at_once: 1_000,
                tasks: 1,
                ..job.clone()
            };
            for process in &mut site.processes {
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
        |job| job,
        |site, job| {
            let mut counts = Counts::default();
            for _ in 0..2 {
                let hoard = Job {
                    lasts: Duration::from_millis(600),
                    pause: Duration::from_millis(5),
                    ..job.clone()
                };
                counts = counts.plus(site.run(&hoard));
                idle(site, job);
                let take = Job {
                    lasts: Duration::from_millis(100),
                    at_once: 200,
                    ..job.clone()
                };
                counts = counts.plus(site.run(&take));
            }
            counts
        },
    );
}
