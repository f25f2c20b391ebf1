//! Three processes that pace one provider: 200 events a second into five a second, twenty times as fast.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time};
use tollgate_core::{Clock, Key, Limiter, MINUTE, OnStoreError, Quota, Rule, SECOND};
use tollgate_test_servers::{
    blocking_server::RedisServer,
    process::{self, Process},
};

use crate::support::child::patient_store;

const PROCESSES: u64 = 3;
/// Events of each process. They come within a twentieth of a second, and take two to start.
const EVENTS: u32 = 66;
const APART: Duration = Duration::from_micros(750);
/// A hundred a second.
const UNIT: u64 = 10_000;
/// Every so many events one gives up while it waits.
const GIVES_UP: u32 = 6;

/// What a process is started for.
#[derive(Serialize, Deserialize)]
struct Role {
    paces_on: String,
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
        let rule = Rule::new("provider", Quota::gcra(100, SECOND).burst(1)).wait(MINUTE);
        Limiter::new(store, [rule.on_store_error(OnStoreError::Deny)]).expect("requests wait")
    });
    for () in process::loads() {
        process::reply(&runtime.block_on(run(&limiter)));
    }
}

async fn run(limiter: &Limiter) -> Vec<Started> {
    let mut tasks = JoinSet::new();
    let mut pause = time::interval(APART);
    for event in 0..EVENTS {
        pause.tick().await;
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let key = Key::of(["the provider"]);
            let wait = limiter.wait("provider", &key, MINUTE);
            if event % GIVES_UP == GIVES_UP - 1 {
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
    let server = RedisServer::start(&[]);
    let role = Role {
        paces_on: format!("redis://{}", server.address()),
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&role)).collect();
    for process in &mut processes {
        process.begin(&());
    }
    let finish = |process: &mut Process| process.finish::<Vec<Started>>().expect("it lives");
    let mut all: Vec<Started> = processes.iter_mut().flat_map(finish).collect();
    let abandoned = u64::from(EVENTS / GIVES_UP) * PROCESSES;
    let events = u64::from(EVENTS) * PROCESSES;
    // Nobody starves: who does not give up has started.
    assert_eq!(all.len() as u64, events - abandoned);
    all.sort_by_key(|event| event.due);
    // First come, first served, by the clock of Redis.
    assert!(all.is_sorted_by_key(|event| event.at), "{all:?}");
    // One a hundredth of a second, to the tick. Who gave up with others behind leaves a gap.
    let first = all[0].due;
    let places = all.iter().map(|event| {
        let since = event.due - first;
        assert_eq!(since % UNIT, 0, "{event:?} of {first}");
        since / UNIT
    });
    let places: Vec<u64> = places.collect();
    assert!(places.windows(2).all(|two| two[0] < two[1]), "{places:?}");
    let gaps = places[places.len() - 1] + 1 - places.len() as u64;
    assert!(gaps <= abandoned, "{gaps} of {abandoned}: {places:?}");
    for event in &all {
        assert!(event.started >= event.due, "it starts too early: {event:?}");
    }
}
