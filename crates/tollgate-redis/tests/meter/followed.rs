//! What is followed, and what is not.

use tollgate_core::{
    Check, HOUR, Quota, Rule, Source,
    algorithm::Taken,
    store::{Fingerprint, Receipt, Settlement},
};
use tollgate_redis::{Keys, RedisStore};

use crate::{Fleet, Process, seen, unit};

pub(crate) async fn take(process: &Process, check: Check) -> Receipt {
    let decision = process.acquire(&[check]).await;
    assert!(decision.is_allowed());
    let lasts = decision.verdicts()[0].reset_after().as_micros() as u64;
    Receipt::of_store(check, Taken::new(decision.at(), decision.at() + lasts))
}

#[tokio::test]
async fn processes_agree_on_the_keys_that_they_follow() {
    let fleet = Fleet::start().await;
    let rules = [Rule::new("per-key", Quota::fixed_window(2, HOUR))];
    let (one, other) = (
        fleet.process(10, &rules).await,
        fleet.process(10, &rules).await,
    );
    let mut random = fastrand::Rng::with_seed(7);
    let keys: Vec<_> = (0..500).map(|_| random.u128(..)).collect();
    for key in keys {
        take(&one, unit(key)).await;
        take(&other, unit(key)).await;
    }
    let of_one = seen(&[&one], 20).await;
    let both = seen(&[&one, &other], 40).await;
    assert!((20..100).contains(&of_one.followed), "{of_one:?}");
    assert_eq!((both.over, both.dropped), (0, 0));
    let end = tokio::time::Instant::now() + crate::PATIENCE;
    while one.seen().followed != other.seen().followed {
        assert!(tokio::time::Instant::now() < end, "they never agreed");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn refunds_and_resets_reach_the_account() {
    for quota in [
        Quota::fixed_window(10, HOUR),
        Quota::sliding_window(10, HOUR),
        Quota::gcra(10, HOUR),
        Quota::sliding_buckets(10, HOUR),
    ] {
        let fleet = Fleet::start().await;
        let process = fleet.process(1, &[Rule::new("per-key", quota)]).await;
        let ten = unit(7).with_cost(10);
        let holding = take(&process, ten).await;
        process.bound.settle(&[holding], Settlement::Refund(6));
        take(&process, unit(7).with_cost(6)).await;
        let key = Fingerprint::from_bits(7);
        process
            .bound
            .reset(&[Check::new(0, key, 1)])
            .await
            .expect("it is forgotten");
        take(&process, ten).await;
        let seen = seen(&[&process], 3).await;
        assert_eq!(
            (seen.followed, seen.over, seen.dropped),
            (3, 0, 0),
            "{quota:?}"
        );
    }
}

#[tokio::test]
async fn a_refusal_by_one_rule_is_none_of_the_others() {
    let fleet = Fleet::start().await;
    let rules = [
        Rule::new("small", Quota::fixed_window(1, HOUR)),
        Rule::new("large", Quota::fixed_window(100, HOUR)),
    ];
    let process = fleet.process(1, &rules).await;
    let key = Fingerprint::from_bits(7);
    let both = [Check::new(0, key, 1), Check::new(1, key, 1)];
    assert!(process.acquire(&both).await.is_allowed());
    for _ in 0..20 {
        assert!(!process.acquire(&both).await.is_allowed());
    }
    // Of the large one only what passed.
    let seen = seen(&[&process], 22).await;
    assert_eq!((seen.followed, seen.over, seen.falsely), (22, 0, 0));
    let large = process.store.accuracy().into_iter();
    let large: Vec<_> = large.filter(|seen| seen.rule() == "large").collect();
    assert_eq!((large[0].followed(), large[0].consistency()), (1, "exact"));
}

#[tokio::test]
async fn checks_of_one_request_on_one_state_are_followed_as_one() {
    let fleet = Fleet::start().await;
    let rules = [Rule::new("per-key", Quota::fixed_window(4, HOUR))];
    let process = fleet.process(1, &rules).await;
    for is_allowed in [true, true, false] {
        let decision = process.acquire(&[unit(7), unit(7)]).await;
        assert_eq!(decision.is_allowed(), is_allowed);
    }
    // Those of another key are for themselves.
    assert!(process.acquire(&[unit(8), unit(9)]).await.is_allowed());
    let seen = seen(&[&process], 5).await;
    assert_eq!((seen.followed, seen.over, seen.falsely), (5, 0, 0));
}

#[tokio::test]
async fn a_lost_meter_report_is_counted_and_delays_no_request() {
    let mut fleet = Fleet::start().await;
    let rules = [Rule::new("per-key", Quota::fixed_window(100, HOUR))];
    let process = fleet.process(1, &rules).await;
    take(&process, unit(7)).await;
    assert_eq!(seen(&[&process], 1).await.dropped, 0);
    fleet.server.kill();
    let limiter = tollgate_core::Limiter::new(process.store.clone(), rules).expect("a valid rule");
    let check = limiter.check("per-key", &tollgate_core::Key::shared());
    let check = check.expect("it is there");
    for _ in 0..10 {
        let decision = limiter.acquire(&[check]).await;
        assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
    }
    assert_eq!(seen(&[&process], 11).await.dropped, 10);
}

#[tokio::test]
async fn without_a_meter_there_is_no_second_account_and_no_figure() {
    let fleet = Fleet::start().await;
    let address = format!("redis://127.0.0.1:{}", fleet.server.port());
    let store = RedisStore::builder(&address, "meter", Keys::plain());
    let store = store.connect().expect("a runtime");
    store.connected().await;
    let rules = [Rule::new("per-key", Quota::fixed_window(100, HOUR))];
    let limiter = tollgate_core::Limiter::new(store.clone(), rules).expect("a valid rule");
    let check = limiter.check("per-key", &tollgate_core::Key::shared());
    assert!(
        limiter
            .acquire(&[check.expect("it is there")])
            .await
            .is_allowed()
    );
    assert!(store.accuracy().is_empty());
}

#[test]
fn a_meter_without_samples_is_refused_with_a_remedy() {
    let builder = RedisStore::builder("redis://localhost", "meter", Keys::plain());
    let error = builder.meter(0).connect().map(drop);
    let error = error.expect_err("it follows nothing").to_string();
    assert!(error.contains("1000"), "{error}");
}
