//! Durable rules on a server that loses its states: what a ledger knows is there before anything is admitted.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use tollgate_core::{
    Check, Decision, Key, Limiter, MAX_PERIOD, OnStoreError, Pending, Quota, Reason, Rule, SECOND,
    Verdict, journal::Base,
};
use tollgate_redis::{Keys, Partition, RedisStore};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};

/// `used` at `u64::MAX` is a ledger that does not answer.
#[derive(Clone, Default)]
struct Ledger {
    used: Arc<AtomicU64>,
    asked: Arc<AtomicUsize>,
}

impl Ledger {
    fn attach(&self, limiter: &Limiter) {
        let this = self.clone();
        limiter.journal().attach(1_000, move |_| {
            this.asked.fetch_add(1, Ordering::SeqCst);
            let used = this.used.load(Ordering::SeqCst);
            let base = Base {
                used,
                ..Base::default()
            };
            Pending::new(async move { (used < u64::MAX).then_some(base) })
        });
    }
}

fn durable(name: &'static str, quota: Quota) -> Rule {
    Rule::new(name, quota).durable(|_| String::from("acme"))
}

async fn limiter_on(server: &RedisServer, partition: Partition, rules: Vec<Rule>) -> Limiter {
    let store = RedisStore::builder(server.url(), "shop", Keys::plain())
        .partition(partition)
        .deadline(20 * SECOND)
        .connect()
        .expect("valid");
    store.connected().await;
    Limiter::new(store, rules).expect("valid")
}

fn check(limiter: &Limiter, rule: &str) -> Check {
    limiter.check(rule, &Key::of("acme")).expect("the rule")
}

async fn take(limiter: &Limiter, units: u64) -> Decision {
    let check = check(limiter, "units").with_cost(units);
    limiter.acquire(&[check]).await
}

#[tokio::test]
async fn after_a_loss_a_window_begins_with_what_the_ledger_has() {
    for partition in [Partition::One, Partition::Key] {
        let server = RedisServer::start(&[]).await;
        let month = Quota::calendar(100, tollgate_core::calendar::CalendarUnit::Month);
        for (quota, debt) in [
            (Quota::fixed_window(100, MAX_PERIOD), 0),
            (month, 0),
            (month, 50),
        ] {
            server.command(&["FLUSHALL"]).await;
            let mut rule = durable("units", quota);
            if debt > 0 {
                rule = rule.debt(debt);
            }
            let other = Rule::new("other", Quota::fixed_window(5, MAX_PERIOD));
            let limiter = limiter_on(&server, partition.clone(), vec![rule, other]).await;
            let ledger = Ledger::default();
            ledger.attach(&limiter);
            let decision = take(&limiter, 10).await;
            assert_eq!(decision.verdicts()[0].remaining(), 90);
            let checks = [check(&limiter, "units").with_cost(10)];
            assert_eq!(
                ledger.asked.load(Ordering::SeqCst),
                1,
                "the window began before"
            );
            let _ = take(&limiter, 1).await;
            assert_eq!(ledger.asked.load(Ordering::SeqCst), 1);

            server.command(&["FLUSHALL"]).await;
            ledger.used.store(95, Ordering::SeqCst);
            // What comes for a state that is lost does not begin it.
            limiter.ticket(&checks, &decision).settle(13);
            let unit = [checks[0].with_cost(1)];
            let many: Vec<_> = (0..20).map(|_| limiter.acquire(&unit)).collect();
            let mut admitted = 0;
            for decision in many {
                admitted += usize::from(decision.await.is_allowed());
            }
            assert_eq!(admitted, 5, "{quota:?} by {partition:?}");
            let asked = ledger.asked.load(Ordering::SeqCst);
            // The denial was written too.
            assert!(!take(&limiter, 6).await.is_allowed());
            assert_eq!(ledger.asked.load(Ordering::SeqCst), asked);
            // What another rule has taken with a request that is asked again goes back.
            let of_bolt = |rule| limiter.check(rule, &Key::of("bolt")).expect("the rule");
            let both = ["other", "units"].map(of_bolt);
            server.command(&["FLUSHALL"]).await;
            let decision = limiter.acquire(&both).await;
            let remaining = decision.verdicts().iter().map(Verdict::remaining);
            assert_eq!(remaining.collect::<Vec<_>>(), [4, 4]);
        }
    }
}

/// With a tenant who has the slots, and where each key is by itself.
#[tokio::test]
async fn slots_next_to_a_window_that_a_ledger_begins_are_taken_once_also_where_nobody_waits_for_it()
{
    let server = RedisServer::start(&[]).await;
    for partition in [Partition::One, Partition::ByRule("jobs".into())] {
        server.command(&["FLUSHALL"]).await;
        let rules = vec![
            durable("units", Quota::fixed_window(100, MAX_PERIOD)),
            Rule::new("other", Quota::fixed_window(5, MAX_PERIOD)),
            Rule::new("jobs", Quota::concurrent(1)),
        ];
        let limiter = limiter_on(&server, partition, rules).await;
        let checks = ["units", "other", "jobs"].map(|rule| check(&limiter, rule));
        let is_first = AtomicBool::new(true);
        limiter.journal().attach(1_000, move |_| {
            let is_first = is_first.swap(false, Ordering::SeqCst);
            Pending::new(async move {
                match is_first {
                    true => pending().await,
                    false => Some(Base::default()),
                }
            })
        });
        let cut = tokio::time::timeout(SECOND / 4, limiter.acquire(&checks));
        assert!(cut.await.is_err(), "the ledger does not answer");
        let looked = checks.map(|check| check.with_cost(0));
        eventually("all of it is back", || async {
            let looked = limiter.peek(&looked).await;
            let left = looked.verdicts()[1..].iter().map(Verdict::remaining);
            left.eq([5, 1]).then_some(())
        })
        .await;
        let decision = limiter.acquire(&checks).await;
        let left = decision.verdicts().iter().map(Verdict::remaining);
        assert_eq!(left.collect::<Vec<_>>(), [99, 4, 0]);
        assert!(decision.is_allowed());
    }
}

/// A repeat came by before its first request got all back.
#[tokio::test]
async fn what_stays_taken_for_a_repeat_stays_taken_in_the_journal() {
    let server = RedisServer::start(&[]).await;
    let rule = durable("units", Quota::fixed_window(10, MAX_PERIOD));
    let rules = vec![rule.idempotent(MAX_PERIOD)];
    let limiter = limiter_on(&server, Partition::One, rules).await;
    Ledger::default().attach(&limiter);
    for id in ["repeated", "once"] {
        let check = check(&limiter, "units").with_cost(4);
        let checks = [limiter.with_id(check, &Key::of(id)).expect("it takes ids")];
        let decision = limiter.acquire(&checks).await;
        if id == "repeated" {
            assert!(limiter.acquire(&checks).await.is_repeat());
        }
        limiter.ticket(&checks, &decision).cancel();
    }
    let (sum, now) = (AtomicI64::new(0), tollgate_core::Clock::system().now());
    let looked = [check(&limiter, "units").with_cost(0)];
    eventually("the store and the journal have the same", || async {
        let taken = limiter.journal().take(now);
        let taken: i64 = taken.iter().map(|it| it.units).sum();
        let written = sum.fetch_add(taken, Ordering::SeqCst) + taken;
        let left = limiter.peek(&looked).await.verdicts()[0].remaining();
        (written == 4 && left == 6).then_some(())
    })
    .await;
}

#[tokio::test]
async fn windows_that_begin_after_the_loss_are_fresh() {
    let server = RedisServer::start(&[]).await;
    let rule = durable("units", Quota::fixed_window(1_000, SECOND));
    let limiter = limiter_on(&server, Partition::One, vec![rule]).await;
    let ledger = Ledger::default();
    ledger.attach(&limiter);
    let first = take(&limiter, 1).await.at();
    ledger.used.store(1_000, Ordering::SeqCst);
    loop {
        let decision = take(&limiter, 1).await;
        if decision.at() / 1_000_000 > first / 1_000_000 {
            assert_eq!(decision.verdicts()[0].remaining(), 999);
            break;
        }
    }
    assert_eq!(ledger.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn without_an_answer_of_the_ledger_the_rule_says_what_happens() {
    let server = RedisServer::start(&[]).await;
    let window = Quota::fixed_window(100, MAX_PERIOD);
    let rule = durable("units", window).on_store_error(OnStoreError::Deny);
    let rules = vec![rule, Rule::new("other", window)];
    let limiter = limiter_on(&server, Partition::One, rules).await;
    let ledger = Ledger::default();
    ledger.used.store(u64::MAX, Ordering::SeqCst);
    ledger.attach(&limiter);
    let decision = take(&limiter, 1).await;
    assert_eq!(decision.reason(), Some(Reason::StoreFailed));
    let other = limiter.acquire(&[check(&limiter, "other")]).await;
    assert!(other.is_allowed(), "other rules never stop");
    ledger.used.store(99, Ordering::SeqCst);
    assert!(take(&limiter, 1).await.is_allowed());
    // Without a ledger nothing is asked, and nothing kept.
    server.command(&["FLUSHALL"]).await;
    let rule = durable("units", window);
    let other = limiter_on(&server, Partition::One, vec![rule]).await;
    assert!(take(&other, 100).await.is_allowed());
    assert_eq!(other.journal().take(0), []);
}
