//! What stalls of a real server cost, beside the simulated table of the guide's page on failures:
//! `cargo run --release -p tollgate-benches --bin stalls --features servers`. It starts the servers itself, and takes two minutes.
//!
//! A server is stopped (SIGSTOP) and goes on (SIGCONT), again and again, while 200 requests a second ask it. The first row is
//! one without stalls: what it shows is the machine's doing.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::Duration;

use tokio::{
    select,
    task::JoinSet,
    time::{Instant, interval, sleep},
};
use tollgate_core::{HOUR, Key, Limiter, Quota, Rule, Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::redis_server::RedisServer;

/// Requests in a second.
const RATE: u32 = 200;

/// More than are asked for.
const LIMIT: u64 = 1_000_000;

/// How long each row takes.
const TIME: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Cost {
    asked: u64,
    by_redis: u64,
    longest: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    println!(
        "| Redis stands still for | every | deadline | share of the time | of the requests | longest wait | counted by Redis, of those |"
    );
    let ms = Duration::from_millis;
    for (lasts, every, deadline) in [
        (0, 1_000, 50),
        (70, 5_000, 50),
        (70, 1_000, 50),
        (200, 2_000, 150),
    ] {
        let server = RedisServer::start(&[]).await;
        let limiter = limiter(&server, ms(deadline)).await;
        let cost = select! {
            cost = load(&limiter) => cost,
            never = stalls(&server, ms(lasts), ms(every)) => never,
        };
        server.resume();
        let taken = taken(&limiter).await;
        assert!(
            (cost.by_redis..=cost.asked).contains(&taken),
            "{cost:?}: {taken}"
        );
        let percent = |part: f64, whole: f64| part * 100.0 / whole;
        let failed = cost.asked - cost.by_redis;
        println!(
            "| {lasts} ms | {every} ms | {deadline} ms | {:.1} % | {:.1} % | {:.0} ms | {taken} of {} |",
            percent(lasts as f64, every as f64),
            percent(failed as f64, cost.asked as f64),
            cost.longest.as_secs_f64() * 1_000.0,
            cost.asked,
        );
    }
}

async fn limiter(server: &RedisServer, deadline: Duration) -> Limiter {
    let store = RedisStore::builder(server.url(), "stalls", Keys::plain()).deadline(deadline);
    let store = store.connect_within(Duration::from_secs(10)).await;
    let rule = Rule::new("api", Quota::fixed_window(LIMIT, 24 * HOUR));
    Limiter::new(store.expect("a server"), [rule]).expect("a valid rule")
}

async fn stalls(server: &RedisServer, lasts: Duration, every: Duration) -> ! {
    loop {
        sleep(every - lasts).await;
        if !lasts.is_zero() {
            server.stop();
            sleep(lasts).await;
            server.resume();
        }
    }
}

async fn load(limiter: &Limiter) -> Cost {
    let check = limiter.check("api", &Key::of("client"));
    let check = check.expect("the rule is there");
    let (mut cost, mut requests) = (Cost::default(), JoinSet::new());
    let (mut ticks, ends) = (
        interval(Duration::from_secs(1) / RATE),
        Instant::now() + TIME,
    );
    while Instant::now() < ends {
        ticks.tick().await;
        let limiter = limiter.clone();
        requests.spawn(async move {
            let began = Instant::now();
            let decision = limiter.acquire(&[check]).await;
            let is_by_redis = decision.verdicts()[0].source() == Source::Store;
            (is_by_redis, began.elapsed())
        });
    }
    while let Some(request) = requests.join_next().await {
        let (is_by_redis, waited) = request.expect("no request panics");
        cost.asked += 1;
        cost.by_redis += u64::from(is_by_redis);
        cost.longest = cost.longest.max(waited);
    }
    cost
}

/// The units that Redis has counted.
async fn taken(limiter: &Limiter) -> u64 {
    let check = limiter.check("api", &Key::of("client"));
    let check = check.expect("the rule is there").with_cost(0);
    loop {
        let verdict = limiter.peek(&[check]).await.verdicts()[0];
        if verdict.outcome() == tollgate_core::Outcome::Allow && verdict.source() == Source::Store {
            return LIMIT - verdict.remaining();
        }
        sleep(Duration::from_millis(20)).await;
    }
}
