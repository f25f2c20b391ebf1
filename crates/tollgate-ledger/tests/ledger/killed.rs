//! Two processes on one Redis and one Postgres, which are killed in turn. The third witness is what each process was allowed, by its
//! own log.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, task::spawn_blocking, time::sleep};
use tollgate_core::{Key, Limiter, MAX_PERIOD, OnStoreError, Quota, Rule};
use tollgate_ledger::Ledger;
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{
    postgres_server::PostgresServer,
    process::{self, Process},
    redis_server::RedisServer,
};

use crate::common::{account, sums};

const ACCOUNTS: u64 = 20;
/// Below what the slowest machine asks for.
const LIMIT: u64 = 80;

#[derive(Deserialize, Serialize)]
struct Role {
    redis: String,
    postgres: String,
}

/// Requests for some time.
#[derive(Deserialize, Serialize)]
struct Load {
    seed: u64,
    millis: u64,
}

/// What was allowed in a load, settled to what it really cost.
type Log = BTreeMap<String, i64>;

/// The role of another process.
pub(crate) fn play() {
    let Some(role) = process::role::<Role>() else {
        return;
    };
    let runtime = Runtime::new().expect("a runtime");
    let (ledger, limiter) = runtime.block_on(async {
        let store = RedisStore::builder(&role.redis, "shop", Keys::plain());
        let store = store.connect().expect("valid");
        store.connected().await;
        let quota = Quota::fixed_window(LIMIT, MAX_PERIOD);
        let rule = Rule::new("units", quota).durable(account);
        let rule = rule.on_store_error(OnStoreError::Deny);
        let limiter = Limiter::new(store, [rule]).expect("valid");
        let ledger = Ledger::builder(&role.postgres).write_every(Duration::from_millis(50));
        let ledger = ledger.open().await.expect("it opens");
        ledger.attach(&limiter).expect("it has none");
        (ledger, limiter)
    });
    process::reply(&());
    for load in process::loads::<Load>() {
        let log = runtime.block_on(async {
            let log = requests(&limiter, &load).await;
            while ledger.flush().await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
            log
        });
        process::reply(&log);
    }
}

async fn requests(limiter: &Limiter, load: &Load) -> Log {
    let (mut log, mut rng) = (Log::new(), fastrand::Rng::with_seed(load.seed));
    let until = tokio::time::Instant::now() + Duration::from_millis(load.millis);
    while tokio::time::Instant::now() < until {
        let name = format!("account-{}", rng.u64(0..ACCOUNTS));
        let units = rng.u64(1..6);
        let check = limiter.check("units", &Key::of(&*name)).expect("the rule");
        let checks = [check.with_cost(units)];
        let decision = limiter.acquire(&checks).await;
        if !decision.is_allowed() {
            sleep(Duration::from_millis(1)).await;
            continue;
        }
        let sum: &mut i64 = log.entry(name).or_default();
        *sum += units as i64;
        // Some cost less in the end.
        if rng.u8(0..4) == 0 {
            let cost = rng.u64(0..units);
            *sum += cost as i64 - units as i64;
            limiter.ticket(&checks, &decision).settle(cost);
        }
    }
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_has_what_was_allowed_whatever_is_killed() {
    let (mut redis, mut postgres) = (RedisServer::start(&[]).await, PostgresServer::start().await);
    let ledger = Ledger::open(&postgres.url()).await.expect("it opens");
    let role = Role {
        redis: redis.url(),
        postgres: postgres.url(),
    };
    let mut processes = [Process::start(&role), Process::start(&role)];
    for process in &mut processes {
        process.finish::<()>().expect("it starts");
    }
    let (mut log, mut most, mut rng) = (Log::new(), Log::new(), fastrand::Rng::with_seed(11));
    let rounds = 6;
    for round in 0..rounds {
        for process in &mut processes {
            let seed = rng.u64(..);
            process.begin(&Load { seed, millis: 400 });
        }
        sleep(Duration::from_millis(rng.u64(20..200))).await;
        if round % 2 == 0 {
            redis.kill();
            redis.restart().await;
        } else {
            postgres.end();
            postgres.restart().await;
        }
        let ended = processes.map(|mut process| {
            spawn_blocking(move || {
                let said = process.finish::<Log>();
                (process, said.expect("it lives"))
            })
        });
        let [one, other] = ended;
        let ((one, said), (other, also_said)) =
            (one.await.expect("it ends"), other.await.expect("it ends"));
        processes = [one, other];
        let mut of_round = Log::new();
        for (account, units) in said.into_iter().chain(also_said) {
            *of_round.entry(account).or_default() += units;
        }
        for (account, units) in of_round {
            *log.entry(account.clone()).or_default() += units;
            let most = most.entry(account).or_default();
            *most = units.max(*most);
        }
    }
    assert_eq!(sums(&ledger).await, log);
    // Redis was killed in every other round, and forgot. What was not written at the time may have been admitted again: no more than
    // what was allowed in a round.
    for (account, units) in &log {
        let bound = LIMIT as i64 + rounds / 2 * most[account];
        assert!(*units <= bound, "{account} has used {units} of {LIMIT}");
    }
    assert!(
        log.values().any(|units| *units > LIMIT as i64 * 9 / 10),
        "{log:?}"
    );
}
