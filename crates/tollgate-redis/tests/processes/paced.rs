//! Three processes that pace one provider: 200 events a second into five a second; and the same twenty times as fast, with more
//! events, and some that are abandoned.

use std::{env, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time};
use tollgate_core::{Clock, Key, Limiter, MINUTE, OnStoreError, Quota, Rule, SECOND};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    process::{self, Process},
};
use tollgate_test_services::child::patient_store;

const PROCESSES: u64 = 3;
/// By how many µs the median start may be late; `TOLLGATE_PACED_LATE` is another number. A machine that compiles on all of its cores is
/// late by seconds itself; the figures of one that does not are in `docs/design/waiting.md`.
const LATE: u64 = 5_000_000;

/// Which events come, and how fast they start.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Pace {
    /// Of each process.
    events: u32,
    apart: Duration,
    /// How many start a second.
    rate: u64,
    /// One event in this many gives up while it waits; 0: none does.
    gives_up: u32,
}

impl Pace {
    /// 200 a second, of all processes together, into five a second.
    const LITERAL: Self = Self {
        events: 10,
        apart: Duration::from_millis(15),
        rate: 5,
        gives_up: 0,
    };

    /// They come within a twentieth of a second, and take two to start.
    const FAST: Self = Self {
        events: 66,
        apart: Duration::from_micros(750),
        rate: 100,
        gives_up: 6,
    };

    fn is_abandoned(&self, event: u32) -> bool {
        self.gives_up > 0 && event % self.gives_up == self.gives_up - 1
    }

    /// Between two starts, in µs.
    fn unit(&self) -> u64 {
        1_000_000 / self.rate
    }
}

/// What a process is started for.
#[derive(Serialize, Deserialize)]
struct Role {
    paces_on: String,
    pace: Pace,
}

/// An event that has started, in µs since the epoch: when the store decided, by its clock; when it said to start; and when
/// the event did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Started {
    at: u64,
    due: u64,
    started: u64,
}

/// The part of a process in the test, if it was started for that.
pub(crate) fn play() {
    let Some(role) = process::role::<Role>() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let limiter = runtime.block_on(async {
        let store = patient_store(&role.paces_on).await;
        let rule = Rule::new("provider", Quota::gcra(role.pace.rate, SECOND).burst(1));
        let rule = rule.wait(MINUTE);
        Limiter::new(store, [rule.on_store_error(OnStoreError::Deny)]).expect("requests wait")
    });
    for () in process::loads() {
        process::reply(&runtime.block_on(run(&limiter, role.pace)));
    }
}

async fn run(limiter: &Limiter, pace: Pace) -> Vec<Started> {
    let mut tasks = JoinSet::new();
    let mut pause = time::interval(pace.apart);
    for event in 0..pace.events {
        pause.tick().await;
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let key = Key::of(["the provider"]);
            let wait = limiter.wait("provider", &key, MINUTE);
            if pace.is_abandoned(event) {
                // It is dropped where it waits; or right after it has started.
                let _ = time::timeout(Duration::from_millis(20), wait).await;
                return None;
            }
            let decision = wait.await.expect("there is room");
            assert!(decision.is_allowed(), "{decision:?}");
            Some(Started {
                at: decision.at(),
                due: decision.at() + decision.waited().as_micros() as u64,
                started: Clock::system().now(),
            })
        });
    }
    let mut all = Vec::new();
    while let Some(started) = tasks.join_next().await {
        all.extend(started.expect("an event"));
    }
    all
}

#[test]
fn three_processes_pace_one_provider_in_the_order_of_redis() {
    check_pace(Pace::LITERAL);
}

#[test]
fn events_that_are_abandoned_leave_gaps_and_keep_the_order() {
    check_pace(Pace::FAST);
}

fn check_pace(pace: Pace) {
    let server = RedisServer::start(&[]);
    let role = Role {
        paces_on: format!("redis://{}", server.address()),
        pace,
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&role)).collect();
    for process in &mut processes {
        process.begin(&());
    }
    let finish = |process: &mut Process| process.finish::<Vec<Started>>().expect("it lives");
    let mut all: Vec<Started> = processes.iter_mut().flat_map(finish).collect();
    let abandoned = (0..pace.events).filter(|event| pace.is_abandoned(*event));
    let abandoned = abandoned.count() as u64 * PROCESSES;
    let events = u64::from(pace.events) * PROCESSES;
    // None starves: each event that did not give up has started.
    assert_eq!(all.len() as u64, events - abandoned);
    all.sort_by_key(|event| event.due);
    // First come, first served, by the clock of Redis.
    assert!(all.is_sorted_by_key(|event| event.at), "{all:?}");
    // One a unit of time, to the tick. Who gave up with others behind leaves a gap.
    let unit = pace.unit();
    let (mut gaps, mut anew) = (0, 0);
    for two in all.windows(2) {
        let apart = two[1].due - two[0].due;
        assert!(apart >= unit, "{two:?}");
        // Where processes stood still, the queue had ended, and begins anew: with this event, or with one that has given up.
        if two[1].at >= two[0].due {
            anew += 1;
            continue;
        }
        assert_eq!(apart % unit, 0, "{two:?}");
        gaps += apart / unit - 1;
    }
    assert!(gaps <= abandoned, "{gaps} of {abandoned}: {all:?}");
    assert!(
        anew < all.len() / 4,
        "{anew} of {}: they hardly wait",
        all.len()
    );
    let late = all.iter().map(|event| {
        let late = event.started.checked_sub(event.due);
        late.unwrap_or_else(|| panic!("it starts too early: {event:?}"))
    });
    let mut late: Vec<u64> = late.collect();
    late.sort_unstable();
    let (median, most) = (late[late.len() / 2], late[late.len() - 1]);
    eprintln!(
        "{} starts at {} a second, {median} µs late in the median and {most} µs at most",
        late.len(),
        pace.rate
    );
    let bound = env::var("TOLLGATE_PACED_LATE").ok();
    let bound = bound.map_or(LATE, |bound| bound.parse().expect("a number of µs"));
    assert!(median < bound, "{late:?}");
}
