//! What is written, once, whatever happens in between.

use std::{cell::Cell, collections::BTreeMap, ops::ControlFlow, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_core::{
    Clock, DAY, Key, Limiter, ManualClock, MemoryStore, Quota, SECOND,
    algorithm::Taken,
    store::{Hold, Settlement},
};
use tollgate_ledger::{Adjustment, Drift, Ledger, LedgerError, LedgerErrorKind, Reconciliation};
use tollgate_test_servers::{postgres_server::PostgresServer, redis_server::RedisServer};

use crate::common::{self, QUOTA, file, limiter, redis, sums, take, usage};

fn limiter_of_new_memory(ledger: &Ledger) -> Limiter {
    let limiter = limiter(MemoryStore::new(), QUOTA);
    ledger.attach(&limiter).expect("it has none");
    limiter
}

#[tokio::test]
async fn an_id_is_that_of_one_adjustment_and_what_is_missing_is_named() {
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    let limiter = limiter_of_new_memory(&ledger);
    let _ = take(&limiter, "acme", 500).await;
    ledger.flush().await.expect("it writes");
    let adjustment = Adjustment {
        account: "acme",
        rule: "units",
        units: -100,
        id: "ticket-4711",
        actor: "ann",
        reason: "the outage",
        at: None,
    };
    assert!(
        ledger
            .adjust(&adjustment, Some(&limiter))
            .await
            .expect("new")
    );
    assert!(
        !ledger
            .adjust(&adjustment, Some(&limiter))
            .await
            .expect("there")
    );
    let left = take(&limiter, "acme", 1).await.verdicts()[0].remaining();
    assert_eq!(left, 1_000_000 - 401, "the counter was told, once");
    let other = Adjustment {
        units: -200,
        ..adjustment
    };
    let wrong = ledger.adjust(&other, None).await.expect_err("a conflict");
    assert_eq!(wrong.kind(), LedgerErrorKind::Conflict);
    // An id is that of one window, too; who names none means the same.
    let now = Clock::system().now();
    let earlier = now - 2 * 86_400_000_000;
    for (at, outcome) in [
        (Some(earlier), Some(true)),
        (Some(earlier), Some(false)),
        (None, Some(false)),
        (Some(now), None),
    ] {
        let bolt = Adjustment {
            account: "bolt",
            id: "ticket-4712",
            at,
            ..adjustment
        };
        let limiter = common::limiter(MemoryStore::new(), Quota::fixed_window(9, DAY));
        let adjusted = ledger.adjust(&bolt, Some(&limiter)).await;
        let conflict = |wrong: LedgerError| assert_eq!(wrong.kind(), LedgerErrorKind::Conflict);
        assert_eq!(adjusted.map_err(conflict).ok(), outcome);
    }
    for wrong in [
        Adjustment {
            account: "acmee",
            id: "a",
            ..adjustment
        },
        Adjustment {
            reason: " ",
            id: "b",
            ..adjustment
        },
        // Postgres takes no such text.
        Adjustment {
            reason: "a\0",
            id: "b",
            ..adjustment
        },
        Adjustment {
            units: 0,
            id: "c",
            ..adjustment
        },
        Adjustment {
            at: Some(1),
            id: "d",
            ..adjustment
        },
    ] {
        let error = ledger.adjust(&wrong, None).await.expect_err("it is wrong");
        assert_eq!(error.kind(), LedgerErrorKind::Setup, "{error}");
    }
    for url in ["sqlite::memory:", "mysql://host/db", "ledger.db", "sqlite:"] {
        let error = Ledger::open(url).await.expect_err("it is none");
        assert_eq!(error.kind(), LedgerErrorKind::Setup, "{error}");
    }
    let twice = ledger.attach(&limiter).expect_err("it has one");
    assert!(twice.to_string().contains("written twice"));
}

#[tokio::test]
async fn what_comes_ten_minutes_after_a_window_is_a_correction_of_it() {
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    // Its windows are over by the clock of the database.
    let clock = ManualClock::new(1_700_000_040_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let limiter = limiter(store, Quota::fixed_window(100, tollgate_core::MINUTE));
    ledger.attach(&limiter).expect("it has none");
    let _ = take(&limiter, "acme", 7).await;
    ledger.flush().await.expect("it writes");
    let all = usage(&ledger).await;
    assert_eq!(
        (all[0].units, all[0].corrections, all[0].is_closed),
        (0, 7, true)
    );
}

#[tokio::test]
async fn a_disk_that_is_full_loses_nothing() {
    let (_folder, url) = file();
    let ledger = Ledger::builder(&url)
        .max_bytes(400_000)
        .write_every(Duration::from_secs(3_600))
        .open()
        .await
        .expect("it opens");
    let limiter = limiter_of_new_memory(&ledger);
    let _ = take(&limiter, "acme", 1).await;
    ledger.flush().await.expect("it writes");
    let filler = "x".repeat(1_000);
    let mut n = 0;
    loop {
        n += 1;
        let id = format!("filler-{n}");
        let adjustment = Adjustment {
            account: "acme",
            rule: "units",
            units: 1,
            id: &id,
            actor: "ann",
            reason: &filler,
            at: None,
        };
        if let Err(full) = ledger.adjust(&adjustment, None).await {
            assert_eq!(full.kind(), LedgerErrorKind::Database, "{full}");
            break;
        }
    }
    for account in 0..200 {
        let _ = take(&limiter, &format!("account-{account}"), 5).await;
    }
    let full = ledger.flush().await.expect_err("there is no room");
    assert_eq!(full.kind(), LedgerErrorKind::Database, "{full}");
    assert!(ledger.backlog().delay > Duration::ZERO);
    // Somebody makes room.
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(&url).await.expect("the file");
    sqlx::query("DELETE FROM tollgate_entries WHERE kind = 'adjustment'")
        .execute(&pool)
        .await
        .expect("it is deleted");
    ledger.flush().await.expect("there is room");
    assert_eq!(ledger.backlog().delay, Duration::ZERO);
    let sums = sums(&ledger).await;
    let others = sums.iter().filter(|(account, _)| *account != "acme");
    assert_eq!(others.map(|(_, sum)| sum).sum::<i64>(), 1_000);
}

#[tokio::test]
async fn two_writers_add_up_and_a_database_that_was_away_has_everything_once() {
    let mut server = PostgresServer::start().await;
    let (mut ledgers, mut limiters) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let every = Duration::from_millis(20);
        let ledger = Ledger::builder(&server.url()).write_every(every);
        let ledger = ledger.open().await.expect("it opens");
        let limiter = limiter(MemoryStore::new(), QUOTA);
        ledger.attach(&limiter).expect("it has none");
        ledgers.push(ledger);
        limiters.push(limiter);
    }
    let mut taken: BTreeMap<String, i64> = BTreeMap::new();
    for round in 0..6 {
        if round % 2 == 1 {
            server.end();
        }
        for n in 0..400_u64 {
            let name = format!("account-{}", n % 40);
            let decision = take(&limiters[n as usize % 2], &name, 1 + n % 3).await;
            *taken.entry(name).or_default() +=
                i64::from(decision.is_allowed()) * (1 + n as i64 % 3);
            if n % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        if round % 2 == 1 {
            server.restart().await;
        }
    }
    for ledger in &ledgers {
        while ledger.flush().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(sums(&ledgers[0]).await, taken);
}

#[tokio::test]
async fn a_table_that_somebody_has_locked_does_not_hold_up_usage_or_the_end() {
    let server = PostgresServer::start().await;
    let ledger = Ledger::builder(&server.url()).write_every(Duration::from_millis(20));
    let ledger = ledger.open().await.expect("it opens");
    let limiter = limiter_of_new_memory(&ledger);
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(&server.url())
        .await
        .expect("it is there");
    let mut transaction = pool.begin().await.expect("it begins");
    let lock = sqlx::query("LOCK TABLE tollgate_reservations IN ACCESS EXCLUSIVE MODE");
    lock.execute(&mut *transaction).await.expect("the lock");
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waiting)
        .fetch_one(&pool)
        .await
        .expect("it answers")
        == 0
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(take(&limiter, "acme", 5).await.is_allowed());
    let written = async {
        while sums(&ledger).await.get("acme") != Some(&5) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ledger.close().await
    };
    let closed = tokio::time::timeout(Duration::from_secs(100), written).await;
    closed.expect("in time").expect("it writes");
}

#[tokio::test]
async fn while_the_database_hangs_one_request_a_second_waits_for_it() {
    let server = PostgresServer::start().await;
    let ledger = Ledger::open(&server.url()).await.expect("it opens");
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(&server.url()).await;
    let pool = pool.expect("it is there");
    let locked = async || {
        let mut transaction = pool.begin().await.expect("it begins");
        let lock = sqlx::query("LOCK TABLE tollgate_totals IN ACCESS EXCLUSIVE MODE");
        lock.execute(&mut *transaction).await.expect("the lock");
        transaction
    };
    for client in ["acme", "bolt"] {
        let _ = take(&limiter_of_new_memory(&ledger), client, 500_000).await;
    }
    ledger.flush().await.expect("it writes");
    let limiter = limiter_of_new_memory(&ledger);
    let left_of = async |client| take(&limiter, client, 1).await.verdicts()[0].remaining();
    let left = async || left_of("acme").await;
    let transaction = locked().await;
    assert!(left().await > 500_000);
    transaction.rollback().await.expect("it ends");
    // One client's look-up was late: no other's has to be.
    assert!(left_of("bolt").await < 500_000);
    let transaction = locked().await;
    let began = Instant::now();
    for _ in 0..50 {
        assert!(left().await > 500_000);
    }
    assert!(began.elapsed() < 20 * SECOND, "each alone waits a second");
    transaction.rollback().await.expect("it ends");
    while left().await > 500_000 {
        sleep(SECOND / 20).await;
    }
}

#[tokio::test]
async fn reconciling_finds_a_counter_that_was_evicted_and_repairs_it() {
    let server = RedisServer::start(&[]).await;
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    let limiter = limiter(redis(&server).await, QUOTA);
    ledger.attach(&limiter).expect("it has none");
    for (name, units) in [("acme", 30), ("bolt", 20), ("cone", 10)] {
        assert!(take(&limiter, name, units).await.is_allowed());
    }
    ledger.flush().await.expect("it writes");
    let reconcile = async |keys, repairs| {
        let how = Reconciliation {
            repairs,
            again_after: Duration::from_millis(10),
            ..Default::default()
        };
        let (drifts, compared) = reconcile(&ledger, &limiter, how).await;
        assert_eq!(compared, keys);
        drifts
    };
    assert_eq!(reconcile(3, false).await, []);
    // A failover has lost the last writes.
    let key = limiter.check("units", &Key::of("bolt")).expect("the rule");
    let end = usage(&ledger).await[0].window.end;
    let lost = Hold::of_store(key.with_cost(15), Taken::new(end - 1, end));
    let store = limiter.rule_store();
    let fails_over = || store.settle(&[lost], Settlement::Refund(15));
    fails_over();
    let drift = vec![("bolt".to_owned(), 20, 5)];
    while reconcile(3, false).await != drift {}
    assert_eq!(reconcile(3, true).await, drift);
    while !reconcile(3, false).await.is_empty() {}
    // The account's key of before a change of the rule counts nothing.
    let pool = sqlx::AnyPool::connect(&url).await.expect("it answers");
    let before = "INSERT INTO tollgate_subjects VALUES ('units', '07', 'bolt')";
    sqlx::query(before).execute(&pool).await.expect("a row");
    assert_eq!(reconcile(4, false).await, []);
    // Whose units it has lost is not known: it is told, and not repaired.
    fails_over();
    while reconcile(4, false).await != drift {}
    for repairs in [true, false] {
        assert_eq!(reconcile(4, repairs).await, drift);
    }
}

/// What differs, by account: what the ledger has, and what is counted; and how many were compared.
async fn reconcile(
    ledger: &Ledger,
    limiter: &Limiter,
    how: Reconciliation,
) -> (Vec<(String, i64, u64)>, u64) {
    let mut drifts = Vec::new();
    let each = |drift: &Drift| {
        drifts.push((drift.account.clone(), drift.written, drift.counted));
        ControlFlow::Continue(())
    };
    let compared = ledger.reconcile(limiter, how, each).await;
    (drifts, compared.expect("it answers"))
}

#[tokio::test]
async fn reconciling_leaves_a_key_alone_that_is_in_use() {
    assert_eq!(lacks_after_reconciling(0, Duration::ZERO).await, 0);
}

#[tokio::test]
async fn reconciling_tells_a_key_in_use_what_was_added() {
    let lacks = lacks_after_reconciling(2_000, Duration::from_millis(1)).await;
    // What was used while it was read.
    assert!(lacks < 1_000, "{lacks}");
}

/// What a counter in use lacks of the ledger's sum after it was repaired, once so much was added to the sum.
async fn lacks_after_reconciling(added: i64, pause: Duration) -> i64 {
    let server = RedisServer::start(&[]).await;
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    let limiter = limiter(redis(&server).await, QUOTA);
    ledger.attach(&limiter).expect("it has none");
    let is_over = Cell::new(false);
    let requests = async {
        while !is_over.get() {
            assert!(take(&limiter, "acme", 10).await.is_allowed());
            sleep(pause).await;
        }
    };
    let reconciled = async {
        while sums(&ledger).await.is_empty() {
            ledger.flush().await.expect("it writes");
        }
        let adjustment = Adjustment {
            account: "acme",
            rule: "units",
            units: added,
            id: "outage",
            actor: "ann",
            reason: "the outage",
            at: None,
        };
        if added > 0 {
            let is_new = ledger.adjust(&adjustment, None).await;
            assert!(is_new.expect("it is written"));
        }
        let how = Reconciliation {
            repairs: true,
            again_after: Duration::from_secs(1),
            ..Default::default()
        };
        let (drifts, _) = reconcile(&ledger, &limiter, how).await;
        is_over.set(true);
        drifts
    };
    let (drifts, ()) = tokio::join!(reconciled, requests);
    assert_eq!(drifts.is_empty(), added == 0, "{drifts:?}");
    ledger.flush().await.expect("it writes");
    let left = take(&limiter, "acme", 0).await.verdicts()[0].remaining();
    sums(&ledger).await["acme"] - (1_000_000 - left as i64)
}

#[tokio::test]
async fn reconciling_leaves_a_window_alone_that_has_ended_meanwhile() {
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    let limiter = limiter(MemoryStore::new(), Quota::fixed_window(100, SECOND));
    ledger.attach(&limiter).expect("it has none");
    for name in ["acme", "bolt", "cone"] {
        let _ = take(&limiter, name, 7).await;
    }
    let how = Reconciliation {
        per_second: 2,
        again_after: Duration::ZERO,
        ..Default::default()
    };
    assert_eq!(reconcile(&ledger, &limiter, how).await.0, []);
}
