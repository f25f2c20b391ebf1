//! Reservations: settled in one process or another, or released at their term.

use std::time::Duration;

use tollgate_core::{
    Clock, Key, Limiter, ManualClock, MemoryStore, StoreErrorKind, types::Reservation,
};
use tollgate_ledger::Ledger;
use tollgate_test_servers::{postgres_server::PostgresServer, redis_server::RedisServer};

use crate::common::{QUOTA, file, limiter, redis, sums, take};

const HOUR: Duration = Duration::from_secs(3_600);
const MOMENT: Duration = Duration::from_millis(50);

async fn reserve(limiter: &Limiter, units: u64, term: Duration) -> Reservation {
    let decision = take(limiter, "acme", units).await;
    let check = limiter.check("units", &Key::of("acme")).expect("the rule");
    let ticket = limiter.ticket(&[check.with_cost(units)], &decision);
    ticket.into_reservation(term).await.expect("it is written")
}

async fn counted(limiter: &Limiter) -> i64 {
    let check = limiter.check("units", &Key::of("acme")).expect("the rule");
    let decision = limiter.peek(&[check.with_cost(0)]).await;
    1_000_000 - decision.verdicts()[0].remaining() as i64
}

/// A ledger that writes, and releases, as often as a test can wait.
async fn open(url: &str) -> Ledger {
    let ledger = Ledger::builder(url).write_every(Duration::from_millis(20));
    ledger.open().await.expect("it opens")
}

#[tokio::test]
async fn whoever_is_first_releases_what_nobody_has_settled_and_the_store_is_told() {
    let (server, postgres) = (RedisServer::start(&[]).await, PostgresServer::start().await);
    let (_folder, file) = file();
    for url in [file, postgres.url()] {
        server.command(&["FLUSHALL"]).await;
        let (ledgers, limiters) = (
            [open(&url).await, open(&url).await],
            [
                limiter(redis(&server).await, QUOTA),
                limiter(redis(&server).await, QUOTA),
            ],
        );
        for (ledger, limiter) in ledgers.iter().zip(&limiters) {
            ledger.attach(limiter).expect("it has none");
        }
        // A process that dies with its reservations.
        let (dead, dying) = (open(&url).await, limiter(redis(&server).await, QUOTA));
        dead.attach(&dying).expect("it has none");
        let (forgotten, extended) = (
            reserve(&dying, 1_000, MOMENT).await,
            reserve(&dying, 300, Duration::from_secs(60)).await,
        );
        let (settled, cancelled) = (
            reserve(&dying, 20, HOUR).await,
            reserve(&dying, 7, HOUR).await,
        );
        dead.close().await.expect("it writes");
        drop(dying);
        let redeem = |reservation| {
            limiters[1]
                .redeem(reservation)
                .expect("it was written here")
        };
        redeem(&extended).extend(HOUR).await.expect("it is open");
        redeem(&settled).settle(45).await.expect("it is open");
        redeem(&cancelled).cancel().await.expect("it is open");
        // Those that are settled, and the one that is open still.
        while counted(&limiters[0]).await != 345 || sums(&ledgers[0]).await["acme"] != 345 {
            tokio::time::sleep(MOMENT).await;
        }
        let late = redeem(&forgotten)
            .settle(900)
            .await
            .expect_err("its term is over");
        assert_eq!(late.kind(), StoreErrorKind::Gone);
        redeem(&extended).settle(1).await.expect("it is open");
        for ledger in &ledgers {
            ledger.flush().await.expect("it writes");
        }
        assert_eq!(
            (counted(&limiters[0]).await, sums(&ledgers[0]).await["acme"]),
            (46, 46)
        );
    }
}

#[tokio::test]
async fn what_was_settled_just_before_its_process_was_killed_comes_back_once() {
    let server = RedisServer::start(&[]).await;
    let (_folder, url) = file();
    let (ledger, limiter_here) = (open(&url).await, limiter(redis(&server).await, QUOTA));
    ledger.attach(&limiter_here).expect("it has none");
    let dead = Ledger::builder(&url).write_every(HOUR).open().await;
    let (dead, dying) = (
        dead.expect("it opens"),
        limiter(redis(&server).await, QUOTA),
    );
    dead.attach(&dying).expect("it has none");
    let (settled, forgotten) = (
        reserve(&dying, 300, HOUR).await,
        reserve(&dying, 5_000, HOUR).await,
    );
    assert!(take(&dying, "acme", 1_000).await.is_allowed());
    dead.flush().await.expect("it writes");
    let ticket = dying.redeem(&settled).expect("it was written here");
    ticket.settle(20).await.expect("it is open");
    drop((dead, dying));
    // An hour later, one after the other.
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(&url).await.expect("the file");
    let later = sqlx::query("UPDATE tollgate_reservations SET until = units");
    later.execute(&pool).await.expect("both are open");
    while counted(&limiter_here).await >= 5_000 {
        tokio::time::sleep(MOMENT).await;
    }
    assert_eq!(counted(&limiter_here).await, 1_020);
    assert_eq!(sums(&ledger).await["acme"], 1_000, "it was never written");
    let ticket = limiter_here.redeem(&forgotten).expect("written here");
    let late = ticket.settle(1).await.expect_err("it was released");
    assert_eq!(late.kind(), StoreErrorKind::Gone);
}

#[tokio::test]
async fn a_settlement_that_comes_after_the_release_changes_nothing() {
    let (_folder, url) = file();
    let (ledger, other) = (open(&url).await, Ledger::builder(&url).write_every(HOUR));
    let other = other.open().await.expect("it opens");
    // In the other process no time passes: it settles what is open, however late.
    let clock = ManualClock::new(Clock::system().now());
    let limiters = [
        limiter(MemoryStore::new(), QUOTA),
        limiter(MemoryStore::builder().clock(&clock).build(), QUOTA),
    ];
    ledger.attach(&limiters[0]).expect("it has none");
    other.attach(&limiters[1]).expect("it has none");
    let reservation = reserve(&limiters[1], 30, Duration::from_secs(2)).await;
    other.flush().await.expect("it writes");
    let ticket = limiters[1].redeem(&reservation).expect("it is open");
    ticket.settle(3).await.expect("it is open");
    while sums(&ledger).await["acme"] != 0 {
        tokio::time::sleep(MOMENT).await;
    }
    // Its process could not write for longer than others have waited.
    other.flush().await.expect("it writes");
    assert_eq!(sums(&ledger).await["acme"], 0);
}
