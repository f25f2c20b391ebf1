//! More requests at once than may wait, and requests before there is anything to wait for.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tollgate_core::{
    Decision, Key, Limiter, MAX_PERIOD, MINUTE, Quota, Reason, Rule, Source, store::Stepping,
};
use tollgate_redis::{BreakerState, Keys, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    redis_server::{RedisServer, free_port},
};
use tollgate_test_services::{
    instance::{Instance, PATIENCE},
    rules::rules,
};

use crate::fault::SERVER;

/// Calls of one store that may wait to be sent.
const WAITING: usize = 4096;

fn poll(answer: &mut Stepping<Decision>) -> Poll<Decision> {
    pin!(answer).poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn before_a_server_that_stands_still_a_flood_is_answered_at_once_but_for_those_that_may_wait()
{
    let server = RedisServer::start(&SERVER).await;
    let mut instance = Instance::start(&server.url()).await;
    eventually("it trusts the server", || async {
        instance.is_trusting().then_some(())
    })
    .await;
    instance.end().await;
    let limiter = &instance.limiter;
    let check = limiter.check("deny", &Key::of("flood"));
    let check = [check.expect("the rule is there")];
    server.stop();
    // Nothing else runs until the first await.
    let answers = (0..5 * WAITING).map(|_| limiter.acquire(&check).into_future());
    let mut answers: Vec<_> = answers.collect();
    answers.retain_mut(|answer| match poll(answer) {
        Poll::Pending => true,
        Poll::Ready(decision) => {
            assert_eq!(decision.reason(), Some(Reason::StoreFailed));
            false
        }
    });
    assert_eq!(answers.len(), WAITING);
    for answer in answers {
        let decision = tokio::time::timeout(PATIENCE, answer).await;
        let decision = decision.expect("a request waits no longer than its deadline");
        assert_eq!(decision.reason(), Some(Reason::StoreFailed));
    }
    server.resume();
}

#[tokio::test]
async fn requests_in_flight_of_known_clients_take_nothing_of_the_cap_on_new_keys() {
    let server = RedisServer::start(&[]).await;
    let limiter = async |is_capped| {
        let mut builder = RedisStore::builder(server.url(), "capped", Keys::plain());
        if is_capped {
            // One key in 16 seconds.
            builder = builder.cap_new_keys("rate", 1).without_heartbeats();
        }
        let store = builder
            .deadline(PATIENCE)
            .connect()
            .expect("valid settings");
        store.connected().await;
        let rule = Rule::new("rate", Quota::fixed_window(100, MAX_PERIOD));
        Limiter::new(store, [rule]).expect("a valid rule")
    };
    let (whole, capped) = (limiter(false).await, limiter(true).await);
    let check = |limiter: &Limiter, who| limiter.check("rate", &Key::of(who)).expect("the rule");
    let mut left = Vec::new();
    let old = check(&whole, "old");
    assert!(whole.acquire(&[old]).await.is_allowed());
    for new in ["first", "second"] {
        let both = ["old", new].map(|who| [check(&capped, who)]);
        let (old, _) = tokio::join!(capped.acquire(&both[0]), capped.acquire(&both[1]));
        assert!(old.is_allowed());
        let looked = whole.peek(&[check(&whole, new).with_cost(0)]).await;
        left.push(looked.verdicts()[0].remaining());
    }
    assert_eq!(left, [99, 100], "the second one is beyond it");
}

#[tokio::test]
async fn while_it_is_being_connected_no_request_waits() {
    let address = format!("redis://127.0.0.1:{}", free_port());
    let store = RedisStore::builder(&address, "faults", tollgate_redis::Keys::plain()).connect();
    let store = store.expect("a valid address");
    let limiter = Limiter::new(store, rules()).expect("the rules are valid");
    for _ in 0..20 {
        for rule in rules() {
            let check = limiter.check(rule.name(), &Key::of("client"));
            let check = check.expect("the rule is there");
            let answer = poll(&mut limiter.acquire(&[check]).into_future());
            assert!(answer.is_ready(), "{}", rule.name());
        }
        tokio::task::yield_now().await;
    }
}

// A service that starts while Redis is down.

#[tokio::test]
async fn connected_means_that_redis_decides_the_first_request() {
    let port = free_port();
    let store = RedisStore::builder(format!("redis://127.0.0.1:{port}"), "start", Keys::plain())
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("a valid address, a deadline and a runtime");
    let rule = Rule::new("api", Quota::gcra(10, MINUTE));
    let limiter = Limiter::new(store.clone(), [rule]).expect("a rule it can serve");
    let checks = [limiter.check("api", &Key::shared()).expect("it is there")];
    // One attempt after the other fails.
    eventually("the breaker opens", || async {
        (store.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    let _server = RedisServer::start_on(port, &[]).await;

    store.connected().await;

    assert_eq!(store.breaker(), BreakerState::Closed);
    let decision = limiter.acquire(&checks).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Store);
}
