//! Processes that ask as often as they are told.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tollgate_core::{
    Check, Consistency, Decision, Key, LeaseShare, Limiter, MAX_PERIOD, OnStoreError, Outcome,
    Rule, Source,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::process::{self, Process};

use crate::quotas::every_algorithm;

/// One rule of a request: `limit` units in ten years.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleLoad {
    /// Its name.
    pub rule: String,
    /// The algorithm's place among [`every_algorithm`].
    pub algorithm: usize,
    /// The units.
    pub limit: u64,
    /// What each request costs.
    pub cost: u64,
    /// Clients that take turns.
    pub clients: u64,
    /// The share of the limit that may be on lease, in percent; 0: the rule is exact.
    pub leased: u16,
}

/// What a process is told to do: so many tasks ask so many times each, each admission is a byte in the meter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// The tasks.
    pub tasks: u64,
    /// The requests of each.
    pub attempts: u64,
    /// The process kills itself, as `kill -9` does, once it has been admitted so often; 0 is never.
    pub dies_after: u64,
    /// The rules of each request.
    pub rule_loads: Vec<RuleLoad>,
}

impl Load {
    /// The rules on a store.
    ///
    /// # Panics
    ///
    /// A rule is not valid.
    #[must_use]
    pub fn limiter(&self, store: &RedisStore) -> Limiter {
        let rules = self.rule_loads.iter().map(|rule_load| {
            let quota = every_algorithm(rule_load.limit, MAX_PERIOD)[rule_load.algorithm];
            let consistency = match rule_load.leased {
                0 => Consistency::Exact,
                percent => Consistency::Leased {
                    share: LeaseShare::percent(percent),
                },
            };
            let rule = Rule::new(&*rule_load.rule, quota).consistency(consistency);
            rule.on_store_error(OnStoreError::Deny)
        });
        Limiter::new(store.clone(), rules).expect("the rules of a job are valid")
    }

    /// The checks of attempt number `attempt`.
    ///
    /// # Panics
    ///
    /// `limiter` is that of another load.
    #[must_use]
    pub fn checks(&self, limiter: &Limiter, attempt: u64) -> Vec<Check> {
        let check = |rule_load: &RuleLoad| {
            let client = format!("client-{}", attempt % rule_load.clients.max(1));
            let check = limiter.check(&rule_load.rule, &Key::of([client]));
            check.expect("the rule is there").with_cost(rule_load.cost)
        };
        self.rule_loads.iter().map(check).collect()
    }
}

/// In the meter: an admission from a lease.
pub const FROM_A_LEASE: u8 = b'L';

/// A store of tests that count to the unit: no answer is given up.
///
/// # Panics
///
/// The address is not valid.
pub async fn patient_store(address: &str) -> RedisStore {
    let store = RedisStore::builder(address, "processes", tollgate_redis::Keys::plain())
        .deadline(Duration::from_secs(20))
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// Asks, and wants an answer from the store.
///
/// # Panics
///
/// The store has not answered.
pub async fn acquire(limiter: &Limiter, checks: &[Check]) -> Decision {
    let decision = limiter.acquire(checks).await;
    let answered = decision
        .verdicts()
        .iter()
        .all(|verdict| verdict.outcome() == Outcome::NotDecided || verdict.has_numbers());
    assert!(answered, "the store has not answered: {decision:?}");
    decision
}

/// A process with a store on the server at this address, which writes its admissions to this file. It replies with the units
/// that were admitted in a job.
#[must_use]
pub fn start(address: &str, meter: &Path) -> Process {
    Process::start(&(address, meter))
}

/// Does jobs until there are no more, if this process was started for that.
///
/// # Panics
///
/// A job fails.
pub fn play() {
    let Some((address, meter)) = process::role::<(String, PathBuf)>() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let store = runtime.block_on(patient_store(&address));
    for load in process::loads() {
        process::reply(&runtime.block_on(run(&load, &store, &meter)));
    }
}

/// What an admission is in the meter.
fn source(decision: &Decision) -> u8 {
    let mut verdicts = decision.verdicts().iter();
    match verdicts.any(|verdict| verdict.source() == Source::Lease) {
        true => FROM_A_LEASE,
        false => b'.',
    }
}

async fn run(load: &Load, store: &RedisStore, meter: &Path) -> u64 {
    let limiter = load.limiter(store);
    let admitted = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..load.tasks {
        let (limiter, load, admitted) = (limiter.clone(), load.clone(), Arc::clone(&admitted));
        let meter = OpenOptions::new().append(true).open(meter);
        let mut meter = meter.expect("the meter is there");
        tasks.spawn(async move {
            for attempt in 0..load.attempts {
                let checks = load.checks(&limiter, task + attempt);
                let decision = acquire(&limiter, &checks).await;
                if !decision.is_allowed() {
                    continue;
                }
                // One byte at the end of a file is written whole, and stays when the process dies.
                meter
                    .write_all(&[source(&decision)])
                    .expect("the meter is written");
                let before = admitted.fetch_add(1, Ordering::SeqCst);
                if before + 1 == load.dies_after {
                    let own = std::process::id().to_string();
                    let _ = Command::new("kill").args(["-9", &own]).status();
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a task asks to the end");
    }
    admitted.load(Ordering::SeqCst)
}
