//! Balances: granted, paid from, lost and back.

use std::{
    ops::ControlFlow,
    time::{Duration, SystemTime},
};

use tollgate_core::{
    Key, Limiter, MAX_PERIOD, MemoryStore, OnStoreError, Quota, Rule, Source, store::CreditChange,
};
use tollgate_ledger::{Adjustment, Ledger, Period, Reconciliation};
use tollgate_test_servers::{postgres_server::PostgresServer, redis_server::RedisServer};

use crate::common::{file, limiter_of, redis, take, usage};

fn rule() -> Rule {
    Rule::new("units", Quota::fixed_window(10, MAX_PERIOD))
        .credits()
        .on_store_error(OnStoreError::Deny)
}

/// What is granted or taken back.
async fn grant(limiter: &Limiter, units: u64, until: SystemTime, id: &str) -> u64 {
    let granted = limiter.grant("units", &Key::of("acme"), units, until, id);
    granted
        .expect("valid")
        .await
        .expect("it is written")
        .changed
}

async fn revoke(limiter: &Limiter, id: &str) -> u64 {
    let revoked = limiter.revoke("units", &Key::of("acme"), id);
    revoked
        .expect("valid")
        .await
        .expect("it is written")
        .changed
}

async fn balance(limiter: &Limiter) -> u64 {
    let told = limiter.balance("units", &Key::of("acme"));
    told.expect("valid").await.expect("it answers").units
}

/// What the store has.
async fn balance_in(limiter: &Limiter) -> u64 {
    let check = limiter.check("units", &Key::of("acme")).expect("the rule");
    let told = limiter.rule_store().credits(&check, CreditChange::Query);
    told.await.expect("it answers").units
}

/// The kinds and units of the account's entries, with their sums.
async fn lines(ledger: &Ledger) -> Vec<(String, i64, i64)> {
    let mut lines = Vec::new();
    let each = |entry: &tollgate_ledger::Entry| {
        lines.push((entry.kind.clone(), entry.units, entry.sum));
        ControlFlow::Continue(())
    };
    let statement = ledger.statement("acme", None, Period::ALL, each);
    statement.await.expect("it answers");
    lines
}

#[tokio::test]
async fn a_balance_that_redis_has_lost_is_back_before_anything_is_paid_from_it() {
    let (server, postgres) = (RedisServer::start(&[]).await, PostgresServer::start().await);
    let (_folder, file) = file();
    let until = crate::now() + Duration::from_secs(3_600);
    for url in [file, postgres.url()] {
        server.command(&["FLUSHALL"]).await;
        let ledger = Ledger::open(&url).await.expect("it opens");
        let limiter = limiter_of(redis(&server).await, rule());
        ledger.attach(&limiter).expect("it has none");
        assert_eq!(grant(&limiter, 100, until, "a").await, 100);
        // Postgres takes no such id.
        let odd = limiter.grant("units", &Key::of("acme"), 1, until, "a\0");
        assert!(odd.is_err(), "nothing is granted that cannot be written");
        assert_eq!(
            take(&limiter, "acme", 10).await.verdicts()[0].source(),
            Source::Store
        );
        let decision = take(&limiter, "acme", 9).await;
        assert_eq!(decision.verdicts()[0].source(), Source::Credits);
        let check = limiter.check("units", &Key::of("acme")).expect("the rule");
        let checks = [check.with_cost(9)];
        limiter.ticket(&checks, &decision).settle(4);
        // The balance pays it, which its answer says.
        limiter.ticket(&checks, &decision).settle(25);
        while usage(&ledger)
            .await
            .first()
            .is_none_or(|it| (it.units, it.credits) != (10, 20))
        {
            ledger.flush().await.expect("it writes");
        }
        for lost in 0..3 {
            server.command(&["FLUSHALL"]).await;
            match lost {
                0 => assert!(!take(&limiter, "acme", 81).await.is_allowed()),
                // The store knows the id again, whatever the end.
                1 => {
                    let later = until + Duration::from_secs(1);
                    assert_eq!(grant(&limiter, 100, later, "a").await, 0);
                }
                _ => assert_eq!(balance(&limiter).await, 80),
            }
            assert_eq!(balance(&limiter).await, 80);
        }
        assert!(take(&limiter, "acme", 5).await.is_allowed());
        ledger.flush().await.expect("it writes");
        // One key was evicted, of which another process has never heard.
        let other = limiter_of(redis(&server).await, rule());
        ledger.attach(&other).expect("it has none");
        // The state of a balance with one grant.
        let evict = "for _, key in ipairs(redis.call('KEYS', '*')) do
            if redis.pcall('STRLEN', key) == 41 then redis.call('DEL', key) end
        end";
        server.command(&["EVAL", evict, "0"]).await;
        assert_eq!(balance_in(&other).await, 0);
        assert!(take(&other, "acme", 5).await.is_allowed());
        assert_eq!(
            (revoke(&other, "a").await, revoke(&limiter, "a").await),
            (70, 0)
        );
        assert_eq!(grant(&limiter, 7, until, "b").await, 7);
        server.command(&["FLUSHALL"]).await;
        assert_eq!(
            (revoke(&limiter, "a").await, balance(&limiter).await),
            (0, 7)
        );
        ledger.flush().await.expect("it writes");
        let lines = lines(&ledger).await;
        let of_balance = lines.iter().filter(|(kind, ..)| kind != "usage");
        assert_eq!(of_balance.map(|it| it.1).sum::<i64>(), 7, "{lines:?}");
        assert_eq!(lines.last(), Some(&("grant".to_owned(), 7, 7)));

        // What a store has more or less is found, and set right.
        let how = Reconciliation {
            again_after: Duration::from_millis(10),
            repairs: true,
            ..Reconciliation::default()
        };
        let reconcile = async || {
            let mut drifts = Vec::new();
            let each = |drift: &tollgate_ledger::Drift| {
                drifts.push((drift.is_balance, drift.written, drift.counted));
                ControlFlow::Continue(())
            };
            let compared = ledger.reconcile(&limiter, how, each).await;
            assert_eq!(compared.expect("it answers"), 2);
            drifts
        };
        let _ = take(&limiter, "acme", 1).await;
        let check = limiter.check("units", &Key::of("acme")).expect("the rule");
        let more = CreditChange::Correct(5);
        let told = limiter.rule_store().credits(&check, more).await;
        assert_eq!(told.expect("it is done").changed, 5);
        assert_eq!(reconcile().await, [(true, 6, 11)]);
        assert_eq!((reconcile().await, balance(&limiter).await), (vec![], 6));
    }
}

#[tokio::test]
async fn what_is_left_at_its_end_lapses_and_a_new_memory_has_the_rest() {
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    let limiter = limiter_of(MemoryStore::new(), rule());
    ledger.attach(&limiter).expect("it has none");
    let now = crate::now();
    grant(&limiter, 30, now + Duration::from_secs(4), "short").await;
    assert!(
        take(&limiter, "acme", 12).await.is_allowed(),
        "a balance pays all of it"
    );
    while balance(&limiter).await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    grant(&limiter, 50, now + Duration::from_secs(3_600), "long").await;
    let expected = [
        ("grant", 30, 30),
        ("credits", -12, 18),
        ("lapse", -18, 0),
        ("grant", 50, 50),
    ];
    let expected = expected.map(|(kind, units, sum)| (kind.to_owned(), units, sum));
    assert_eq!(lines(&ledger).await, expected);
    let again = limiter_of(MemoryStore::new(), rule());
    ledger.attach(&again).expect("it has none");
    assert!(take(&again, "acme", 10).await.is_allowed());
    assert_eq!(
        take(&again, "acme", 40).await.verdicts()[0].source(),
        Source::Credits
    );
    assert_eq!(
        (balance(&again).await, revoke(&again, "long").await),
        (10, 10)
    );
}

#[tokio::test]
async fn a_correction_of_a_window_is_not_paid_by_the_balance() {
    let server = RedisServer::start(&[]).await;
    let until = crate::now() + Duration::from_secs(3_600);
    let quota = Quota::fixed_window(1_000, MAX_PERIOD);
    let rule = || Rule::new("units", quota).credits().debt(1_000);
    for is_redis in [false, true] {
        let of_service = match is_redis {
            true => limiter_of(redis(&server).await, rule()),
            false => limiter_of(MemoryStore::new(), rule()),
        };
        let (_folder, url) = file();
        let ledger = Ledger::open(&url).await.expect("it opens");
        ledger.attach(&of_service).expect("it has none");
        // As that of the command line, which has no ledger.
        let alone = limiter_of(redis(&server).await, rule());
        let limiter = if is_redis { &alone } else { &of_service };
        assert!(take(&of_service, "acme", 1_000).await.is_allowed());
        ledger.flush().await.expect("it writes");
        assert_eq!(grant(&of_service, 500, until, "a").await, 500);
        for (id, told) in [("b", Some(limiter)), ("c", None)] {
            let adjustment = Adjustment {
                account: "acme",
                rule: "units",
                units: 300,
                id,
                actor: "ops",
                reason: "an outage",
                at: None,
            };
            let written = ledger.adjust(&adjustment, told).await;
            assert!(written.expect("it is written"));
            let how = Reconciliation {
                again_after: Duration::from_millis(10),
                repairs: true,
                ..Reconciliation::default()
            };
            for is_second in [false, true] {
                let mut drifts = Vec::new();
                let each = |drift: &tollgate_ledger::Drift| {
                    drifts.push((drift.is_balance, drift.written - drift.counted as i64));
                    ControlFlow::Continue(())
                };
                let compared = ledger.reconcile(limiter, how, each).await;
                assert_eq!(compared.expect("it answers"), 2);
                let lacks = (told.is_none() && !is_second).then_some((false, 300));
                assert_eq!(drifts, Vec::from_iter(lacks));
                assert_eq!(balance_in(limiter).await, 500);
            }
        }
    }
}
