//! Two processes reserve and redeem while replies are lost, and while the server is killed and starts empty: units are given back once,
//! and charged once.

use tollgate_core::{
    Check, Consistency, Key, Limiter, MAX_PERIOD, MINUTE, OnStoreError, Quota, Rule, StoreError,
    StoreErrorKind, types::Reservation,
};
use tollgate_redis::{Keys, RedisStore, Secret};
use tollgate_test_servers::{
    eventually::eventually,
    numbers::Numbers,
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};
use tollgate_test_services::instance::DEADLINE;

use crate::fault::Seed;

const LIMIT: u64 = 1_000_000;
const COST: u64 = 10;
const ROUNDS: usize = 150;

struct Process {
    proxy: Proxy,
    limiter: Limiter,
    check: Check,
}

impl Process {
    async fn start(server: &RedisServer, seed: u64) -> Self {
        let proxy = Proxy::start(server.port(), seed).await;
        let secret = Secret::from_bytes([7; 32]).expect("it is long enough");
        let store = RedisStore::builder(proxy.url(), "exports", Keys::hashed(secret));
        let store = store.deadline(DEADLINE).connect().expect("an address");
        store.connected().await;
        let quota = Quota::fixed_window(LIMIT, MAX_PERIOD);
        let rule = Rule::new("rows", quota).on_store_error(OnStoreError::Deny);
        let limiter = Limiter::new(store, [rule]).expect("a valid rule");
        let check = limiter.check("rows", &Key::of("acme")).expect("the rule");
        Self {
            proxy,
            limiter,
            check: check.with_cost(COST),
        }
    }

    /// The units in use, once the store answers again.
    async fn used(&self) -> u64 {
        eventually("the store answers", || async {
            let looked = self.limiter.peek(&[self.check.with_cost(0)]).await;
            let verdict = looked.verdicts()[0];
            verdict.has_numbers().then(|| LIMIT - verdict.remaining())
        })
        .await
    }

    /// From now on, half of the time, its connection is reset after some bytes of replies.
    async fn lose_replies(&self, numbers: &mut Numbers) {
        self.proxy.set(Fault::None);
        self.used().await;
        if numbers.one_in(2) {
            let bytes = numbers.below(150) as usize;
            self.proxy.set(Fault::ResetAfter(bytes));
        }
    }

    async fn settle(&self, text: &Reservation, cost: u64) -> Result<(), StoreError> {
        self.limiter.redeem(text)?.settle(cost).await
    }

    /// Whether it was settled now, once that is known.
    async fn settle_for_sure(&self, text: &Reservation, cost: u64) -> bool {
        eventually("it is settled or gone", || async {
            match self.settle(text, cost).await {
                Ok(()) => Some(true),
                Err(error) if error.kind() == StoreErrorKind::Gone => Some(false),
                Err(_) => None,
            }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_lost_units_are_given_back_once_and_charged_once() {
    let seed = Seed::new();
    let mut numbers = seed.numbers();
    let mut server = RedisServer::start(&["--save", ""]).await;
    let service = Process::start(&server, numbers.next()).await;
    let worker = Process::start(&server, numbers.next()).await;
    let (mut open, mut settled): (Vec<Reservation>, Vec<Reservation>) = Default::default();
    // What is in use, and how much more may be, because a reply to a take was lost.
    let (mut used, mut unknown, mut lost) = (0, 0, 0);
    for _ in 0..ROUNDS {
        service.lose_replies(&mut numbers).await;
        for _ in 0..2 {
            let decision = service.limiter.acquire(&[service.check]).await;
            if !decision.is_allowed() {
                unknown += COST;
                continue;
            }
            used += COST;
            let ticket = service.limiter.ticket(&[service.check], &decision);
            match ticket.into_reservation(5 * MINUTE).await {
                // As it comes out of a queue.
                Ok(text) => open.push(text.to_string().parse().expect("a reservation")),
                Err(_) => lost += 1,
            }
        }
        if !open.is_empty() && !numbers.one_in(3) {
            let text = open.swap_remove(numbers.below(open.len() as u64) as usize);
            let cost = numbers.below(2 * COST);
            for process in [&service, &worker] {
                process.lose_replies(&mut numbers).await;
            }
            // A job that runs twice, with two opinions of what it cost.
            let both = tokio::join!(service.settle(&text, cost), worker.settle(&text, cost));
            let settlers = [both.0, both.1].into_iter().filter(Result::is_ok).count();
            assert!(settlers <= 1, "both have settled it");
            for process in [&service, &worker] {
                process.proxy.set(Fault::None);
            }
            let is_settled = worker.settle_for_sure(&text, cost).await;
            assert!(!is_settled || settlers == 0, "it was settled again");
            used = used - COST + cost;
            settled.push(text);
        }
        if numbers.one_in(10) {
            for process in [&service, &worker] {
                process.proxy.set(Fault::None);
            }
            let now = worker.used().await;
            assert!(
                (used..=used + unknown).contains(&now),
                "{now}, not {used} and {unknown}"
            );
            if numbers.one_in(3) {
                server.kill();
                server.restart().await;
                (used, unknown) = (0, 0);
                // What was open is gone, and gives nothing back.
                settled.append(&mut open);
            }
            for text in &settled {
                assert!(
                    !worker.settle_for_sure(text, 0).await,
                    "it is settled twice"
                );
            }
            settled.clear();
        }
    }
    for process in [&service, &worker] {
        process.proxy.set(Fault::None);
    }
    for text in open {
        assert!(worker.settle_for_sure(&text, 0).await, "it is open");
        used -= COST;
    }
    let now = worker.used().await;
    assert!(
        (used..=used + unknown).contains(&now),
        "{now}, not {used} and {unknown}"
    );
    assert!(lost > 0, "no reply to a reservation was lost");
}

#[tokio::test]
async fn what_cannot_leave_the_process_is_refused_with_a_way_out() {
    let server = RedisServer::start(&[]).await;
    let secret = |byte| Keys::hashed(Secret::from_bytes([byte; 32]).expect("long enough"));
    let eventual = Consistency::Eventual {
        interval: MINUTE,
        max_unreported: 1_000,
    };
    let start = async |namespace: &str, keys: Keys, consistency: Consistency| {
        let store = RedisStore::builder(server.url(), namespace, keys);
        let store = store.deadline(20 * DEADLINE).connect().expect("an address");
        store.connected().await;
        let rule = Rule::new("rows", Quota::fixed_window(LIMIT, MAX_PERIOD));
        Limiter::new(store, [rule.consistency(consistency)]).expect("a valid rule")
    };
    let reserve = async |limiter: &Limiter| {
        let check = limiter.check("rows", &Key::of("acme")).expect("the rule");
        // What is not known of a key, Redis decides.
        for _ in 0..3 {
            assert!(limiter.acquire(&[check]).await.is_allowed());
        }
        let decision = limiter.acquire(&[check]).await;
        limiter
            .ticket(&[check], &decision)
            .into_reservation(MINUTE)
            .await
    };
    for (keys, consistency, way_out) in [
        (Keys::plain(), Consistency::Exact, "take `Keys::hashed`"),
        (secret(7), eventual, "`exact_when`"),
    ] {
        let refused = reserve(&start("one", keys, consistency).await).await;
        let refused = refused.expect_err("it cannot leave");
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured);
        assert!(refused.to_string().contains(way_out), "{refused}");
    }
    // The older secret is known while it changes, and no longer.
    let old = start("two", secret(7), Consistency::Exact).await;
    let text = reserve(&old).await.expect("it is kept");
    let other = start("three", secret(7), Consistency::Exact).await;
    let new = start("two", secret(8), Consistency::Exact).await;
    for stranger in [other, new] {
        let foreign = stranger
            .redeem(&text)
            .expect_err("of another secret or namespace");
        assert_eq!(foreign.kind(), StoreErrorKind::Foreign);
    }
    let older = Secret::from_bytes([7; 32]).expect("long enough");
    let both = secret(8).previous(older).expect("another one");
    let changing = start("two", both, Consistency::Exact).await;
    let ticket = changing.redeem(&text).expect("it knows both");
    assert!(ticket.settle(0).await.is_ok());
}
