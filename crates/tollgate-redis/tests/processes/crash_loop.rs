//! A Redis that is killed and started anew without its data, again and again, under four processes.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use redis::Value;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tollgate_core::{
    Decision, Key, Limiter, MAX_PERIOD, OnStoreError, Outcome, Quota, Rule, Source,
};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    process::{self, Process},
    proxy::{Fault, Proxy},
    redis_client::RedisClient,
    redis_server::RedisServer,
};

const PROCESSES: u32 = 4;
const TASKS: u64 = 3;

/// How often the server starts.
const LIVES: u64 = 12;

/// Of each rule in each life of the server.
const LIMIT: u64 = 40;

const DEADLINE: Duration = Duration::from_millis(200);

/// No request takes longer, however busy the machine is. That a call ends at its deadline is a test of the connection's,
/// by a clock that stands.
const PATIENCE: Duration = DEADLINE.saturating_mul(40);

/// What a process is started for: it asks until the file is there.
#[derive(Serialize, Deserialize)]
struct Role {
    address: String,
    ends: PathBuf,
}

/// What a process was allowed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Allowed {
    /// By Redis, of a rule that denies while there is none.
    strict: u64,
    /// By Redis, of a rule that counts against shares while there is none.
    shared: u64,
    /// Of that rule, without Redis.
    in_fallback: u64,
}

/// Plays the role, if this process was started for it.
pub(crate) fn play() {
    let Some(Role { address, ends }) = process::role() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    for () in process::loads() {
        process::reply(&runtime.block_on(acquire_until(&address, &ends)));
    }
}

async fn acquire_until(address: &str, ends: &std::path::Path) -> Allowed {
    let store = RedisStore::builder(address, "crashes", Keys::plain())
        .deadline(DEADLINE)
        // What a denial has taught would hide a new server for a day.
        .without_deny_cache()
        .connect()
        .expect("a valid address");
    let rules = [
        Rule::new("strict", Quota::fixed_window(LIMIT, MAX_PERIOD))
            .on_store_error(OnStoreError::Deny),
        Rule::new("shared", Quota::fixed_window(LIMIT, MAX_PERIOD))
            .on_store_error(OnStoreError::LocalShare),
        Rule::new("once", Quota::fixed_window(LIMIT, MAX_PERIOD))
            .on_store_error(OnStoreError::Deny),
    ];
    let processes = NonZeroU32::new(PROCESSES).expect("there are some");
    let limiter = Limiter::with_instances(store, rules, processes).expect("valid rules");
    let allowed = Arc::new([const { AtomicU64::new(0) }; 3]);
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, allowed, ends) = (limiter.clone(), Arc::clone(&allowed), ends.to_owned());
        tasks.spawn(async move {
            for request in 0_u64.. {
                if ends.exists() {
                    break;
                }
                let decision = acquire(&limiter, "strict", &Key::of("client")).await;
                count(&decision, &allowed[0], &allowed[0]);
                let decision = acquire(&limiter, "shared", &Key::of("client")).await;
                count(&decision, &allowed[1], &allowed[2]);
                // Of a client that comes once.
                let id = std::process::id();
                let _ = acquire(
                    &limiter,
                    "once",
                    &Key::of([format!("{id}-{task}-{request}")]),
                )
                .await;
                sleep(Duration::from_millis(2)).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a task asks to the end");
    }
    let [strict, shared, in_fallback] =
        [0, 1, 2].map(|what: usize| allowed[what].load(Ordering::SeqCst));
    Allowed {
        strict,
        shared,
        in_fallback,
    }
}

async fn acquire(limiter: &Limiter, rule: &str, key: &Key) -> Decision {
    let check = limiter.check(rule, key).expect("the rule is there");
    let decision = timeout(PATIENCE, limiter.acquire(&[check]).into_future()).await;
    decision.expect("a request waits for Redis no longer than its deadline")
}

fn count(decision: &Decision, by_redis: &AtomicU64, in_fallback: &AtomicU64) {
    let verdict = decision.verdicts()[0];
    if verdict.outcome() == Outcome::Allow {
        let of = match verdict.source() {
            Source::Store => by_redis,
            _ => in_fallback,
        };
        of.fetch_add(1, Ordering::SeqCst);
    }
}

/// How often each key was written, in all lives of the server.
type Written = Arc<Mutex<HashMap<String, u64>>>;

/// Follows what a server does until it is gone.
fn follow(server: &RedisServer, written: &Written) {
    let mut monitor = RedisClient::connect(([127, 0, 0, 1], server.port()).into());
    assert_eq!(monitor.say("MONITOR"), Value::Okay);
    let written = Arc::clone(written);
    thread::spawn(move || {
        while let Ok(Value::SimpleString(line)) = monitor.try_answer() {
            // `1763740800.123456 [0 lua] "SET" "{crashes}:…:once:f1" …`
            let words: Vec<_> = line.split('"').collect();
            if let [_, "SET", _, key, ..] = words[..]
                && key.contains(":once:")
            {
                let mut written = written.lock().expect("no thread panics");
                *written.entry(key.to_owned()).or_default() += 1;
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_of_an_empty_redis_counts_nothing_twice_and_keeps_the_bounds() {
    let folder = TempDir::new().expect("a folder");
    let ends = folder.path().join("ends");
    let mut server = RedisServer::start(&[]).await;
    let written = Written::default();
    follow(&server, &written);
    // Replies are under way for some time, so that each crash loses some.
    let slow = Fault::Delay(Duration::from_millis(4), Duration::from_millis(12));
    let proxy = Proxy::start(server.port(), 5).await;
    proxy.set(slow);
    let role = Role {
        address: proxy.url(),
        ends: ends.clone(),
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&role)).collect();
    for process in &mut processes {
        process.begin(&());
    }
    let clients = || written.lock().expect("no thread panics").len();
    for life in 1..=LIVES {
        let before = clients();
        eventually(&format!("it is used in life {life}"), || async {
            (clients() >= before + 20).then_some(())
        })
        .await;
        if life < LIVES {
            proxy.set(Fault::Close);
            server.kill();
            server.restart().await;
            follow(&server, &written);
            proxy.set(slow);
        }
    }
    std::fs::write(&ends, "").expect("a file");
    let mut all = Allowed::default();
    for process in &mut processes {
        let allowed: Allowed = process.finish().expect("the process lives");
        all.strict += allowed.strict;
        all.shared += allowed.shared;
        all.in_fallback += allowed.in_fallback;
    }
    // Each loss of the state in Redis gives away one limit at most; what is decided without Redis adds one at most.
    assert!(all.strict <= LIVES * LIMIT, "{all:?}");
    assert!(all.shared <= LIVES * LIMIT, "{all:?}");
    assert!(all.in_fallback <= LIMIT, "{all:?}");
    assert!(all.strict > 0 && all.in_fallback > 0, "{all:?}");
    let written = written.lock().expect("no thread panics");
    let twice: Vec<_> = written.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?} of {}", written.len());
}
