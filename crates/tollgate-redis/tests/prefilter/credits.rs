//! Several processes on one balance, on a real server: each has a store of its own.

use std::{sync::Arc, time::SystemTime};

use tokio::{sync::Barrier, task::JoinSet};
use tollgate_core::{Consistency, HOUR, Key, Limiter, MAX_PERIOD, Quota, Rule, Source};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{fleet::PATIENT, load::LEASED, service::check, worker::store};

const LIMIT: u64 = 400;
const GRANTED: u64 = 300;
const PROCESSES: usize = 6;

fn rule(limit: u64, consistency: Consistency) -> Rule {
    let quota = Quota::fixed_window(limit, MAX_PERIOD);
    let rule = Rule::new("budget", quota).credits();
    rule.consistency(consistency)
}

async fn balance(limiter: &Limiter) -> u64 {
    let balance = limiter.balance("budget", &Key::of("client"));
    balance.expect("the rule").await.expect("a balance").units
}

/// Takes units until two requests in a row are denied, and gives a part of them back. What it kept of the quota and of the balance.
async fn spend(limiter: Limiter, start: Arc<Barrier>, until: SystemTime) -> [u64; 2] {
    start.wait().await;
    for n in 0..3 {
        // Every process grants each of them, again and again.
        let id = format!("id-{n}");
        let granted = limiter.grant("budget", &Key::of("client"), GRANTED / 3, until, &id);
        granted.expect("the rule").await.expect("it is granted");
    }
    let (mut kept, mut denied) = ([0; 2], 0);
    for n in 0.. {
        let checks = [check(&limiter, "budget").with_cost(1 + n % 3)];
        let decision = limiter.acquire(&checks).await;
        let is_on_credits = decision.verdicts()[0].source() == Source::Credits;
        match (decision.is_allowed(), n % 5 == 0) {
            (false, _) => denied += 1,
            (true, true) if denied == 0 => limiter.ticket(&checks, &decision).cancel(),
            (true, _) => kept[usize::from(is_on_credits)] += checks[0].cost(),
        }
        if denied > 20 {
            break;
        }
    }
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_use_a_quota_and_a_balance_once() {
    for consistency in [Consistency::Exact, LEASED] {
        let server = RedisServer::start(&[]).await;
        #[expect(clippy::disallowed_methods, reason = "an end that is to come")]
        let until = SystemTime::now() + HOUR;
        let (mut stores, mut tasks) = (Vec::new(), JoinSet::new());
        let start = Arc::new(Barrier::new(PROCESSES));
        for _ in 0..PROCESSES {
            let store = store(&server.url(), PATIENT).await;
            let limiter = Limiter::new(store.clone(), [rule(LIMIT, consistency)]).expect("valid");
            tasks.spawn(spend(limiter, Arc::clone(&start), until));
            stores.push(store);
        }
        let kept = tasks.join_all().await;
        let [quota, credits] = [0, 1].map(|place| kept.iter().map(|it| it[place]).sum::<u64>());
        for store in &stores {
            store.flush(PATIENT).await;
        }
        let limiter = Limiter::new(stores[0].clone(), [rule(LIMIT, consistency)]).expect("valid");
        let left = limiter
            .peek(&[check(&limiter, "budget").with_cost(0)])
            .await;
        let left = left.verdicts()[0].remaining();
        assert_eq!(
            quota + left,
            LIMIT,
            "{consistency:?}: what was not kept is left"
        );
        assert_eq!(
            credits + balance(&limiter).await,
            GRANTED,
            "{consistency:?}"
        );
        assert!(
            credits > 0 && quota > LIMIT / 2,
            "{consistency:?}: {kept:?}"
        );
    }
}
