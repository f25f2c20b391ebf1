//! Threads that are blocked until Redis answers, wherever they stand.

use std::time::Duration;

use tokio::{
    runtime::{Builder, Runtime},
    task::{block_in_place, spawn, spawn_blocking},
};
use tollgate::{
    Decision, HOUR, Key, Limiter, Quota, Rule, SECOND,
    error::{WaitError, WaitErrorKind},
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::redis_server::RedisServer;

use crate::keys;

/// Runtimes with one thread for all, and with one to four.
fn runtimes() -> impl Iterator<Item = (Runtime, usize)> {
    (0..=4).map(|workers| {
        let mut builder = match workers {
            0 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(workers.max(1)).enable_all().build();
        (runtime.expect("a runtime"), workers)
    })
}

async fn limiter() -> (RedisServer, Limiter) {
    let redis = RedisServer::start(&[]).await;
    let store = RedisStore::builder(redis.url(), "blocking", keys()).deadline(SECOND / 2);
    let store = store.connect().expect("a valid address");
    store.connected().await;
    let rule = Rule::new("rule", Quota::fixed_window(100, HOUR));
    (redis, Limiter::new(store, [rule]).expect("a valid rule"))
}

fn waits(limiter: &Limiter) -> Result<Decision, WaitError> {
    limiter.wait_blocking("rule", &Key::shared(), 2 * SECOND)
}

fn is_refused(limiter: &Limiter) -> bool {
    let checks = [limiter.check("rule", &Key::shared()).expect("the rule")];
    let answers = [
        waits(limiter),
        limiter.acquire_within_blocking(&checks, SECOND),
    ];
    let kinds = answers.map(|answer| answer.map_err(|error| error.kind()));
    kinds.iter().all(|kind| *kind == Err(WaitErrorKind::InTask))
}

#[test]
fn a_task_of_the_runtime_is_told_at_once_and_a_thread_gets_its_units() {
    for (runtime, workers) in runtimes() {
        let (_redis, limiter) = runtime.block_on(limiter());
        runtime.block_on(async {
            assert!(is_refused(&limiter), "{workers}");
            let of_task = limiter.clone();
            assert!(
                spawn(async move { is_refused(&of_task) })
                    .await
                    .expect("no panic")
            );
            let of_thread = limiter.clone();
            let answer = spawn_blocking(move || waits(&of_thread))
                .await
                .expect("no panic");
            assert!(answer.expect("it may wait").is_allowed(), "{workers}");
            let of_task = limiter.clone();
            if workers > 0 {
                let in_place = spawn(async move { block_in_place(|| waits(&of_task)) });
                let answer = in_place.await.expect("no panic");
                assert!(answer.expect("it may wait").is_allowed(), "{workers}");
            }
        });
        let elsewhere = Builder::new_current_thread().build().expect("a runtime");
        let alone = elsewhere.block_on(async { waits(&limiter) });
        if workers > 0 {
            assert!(alone.expect("it may wait").is_allowed(), "{workers}");
        } else {
            // No thread runs the runtime of the store.
            let kind = alone.expect_err("there is no answer").kind();
            assert_eq!(kind, WaitErrorKind::Unanswered);
        }
    }
}

#[test]
fn a_thread_that_is_blocked_while_the_runtime_of_the_store_is_gone_gives_up() {
    let (runtime, _) = runtimes().nth(1).expect("one with a worker");
    let (_redis, limiter) = runtime.block_on(limiter());
    runtime.shutdown_timeout(Duration::from_secs(60));
    // Its connection went with it: the share of this process answers.
    let answer = waits(&limiter);
    assert!(answer.is_ok_and(|decision| decision.is_allowed()));
}
