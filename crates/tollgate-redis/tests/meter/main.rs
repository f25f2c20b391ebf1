//! The accuracy meter, beside known mistakes.
//!
//! Two stores stand for two processes. Their clock is the test's, so that what happens in between is known to the
//! microsecond.

#[path = "../support/mod.rs"]
mod support;

mod clean;
mod doubts;
mod followed;
mod mistakes;

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_core::{BoundStore, Check, Decision, Fingerprint, ManualClock, Rule, RuleSet, Store};
use tollgate_redis::{Keys, RedisStore, Secret};

use crate::support::redis_server::{PATIENCE, RedisServer};

/// In the middle of an hour.
const START: u64 = 1_700_001_000_000_000;

/// A Redis, a clock, and processes that share them.
struct Site {
    server: RedisServer,
    clock: ManualClock,
}

/// A process with its rules.
struct Process {
    store: RedisStore,
    bound: Arc<dyn BoundStore>,
}

/// What meters have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    followed: u64,
    over: u64,
    falsely: u64,
    dropped: u64,
}

impl Site {
    async fn start() -> Self {
        Self {
            server: RedisServer::start(&[]).await,
            clock: ManualClock::new(START),
        }
    }

    async fn process(&self, one_in: u32, rules: &[Rule]) -> Process {
        self.open(Some(one_in), rules).await
    }

    /// A process of which no account knows.
    async fn unseen(&self, rules: &[Rule]) -> Process {
        self.open(None, rules).await
    }

    async fn open(&self, one_in: Option<u32>, rules: &[Rule]) -> Process {
        let address = format!("redis://127.0.0.1:{}", self.server.port());
        let keys = Keys::hashed(Secret::from_bytes([7; 32]).expect("it is long enough"));
        let store = RedisStore::builder(&address, "meter", keys)
            .and_then(|builder| builder.deadline(Duration::from_secs(20)))
            .and_then(|builder| match one_in {
                Some(one_in) => builder.meter(one_in),
                None => Ok(builder),
            })
            .and_then(|builder| {
                let margin = Duration::from_secs(1_000_000);
                builder.caller_clock(self.clock.clone(), margin).connect()
            })
            .expect("valid settings and a runtime");
        store.connected().await;
        let rules = RuleSet::new(rules.to_vec()).expect("valid rules");
        let bound = store.bind(Arc::new(rules)).expect("rules it can serve");
        Process { store, bound }
    }
}

impl Process {
    async fn ask(&self, checks: &[Check]) -> Decision {
        self.bound.acquire(checks).await
    }

    fn seen(&self) -> Seen {
        let seen = self.store.accuracy();
        let seen = seen.iter().map(|seen| Seen {
            followed: seen.followed(),
            over: seen.over_admitted(),
            falsely: seen.falsely_refused(),
            dropped: seen.dropped(),
        });
        seen.fold(Seen::default(), Seen::and)
    }
}

impl Seen {
    fn and(self, other: Self) -> Self {
        Self {
            followed: self.followed + other.followed,
            over: self.over + other.over,
            falsely: self.falsely + other.falsely,
            dropped: self.dropped + other.dropped,
        }
    }
}

/// A unit of the first rule.
fn unit(key: u128) -> Check {
    Check::new(0, Fingerprint::from_bits(key), 1)
}

/// What the meters of these processes have seen, once they have followed so many requests, or lost them.
async fn seen(processes: &[&Process], requests: u64) -> Seen {
    let end = Instant::now() + PATIENCE;
    loop {
        let all = processes.iter().map(|process| process.seen());
        let seen = all.fold(Seen::default(), Seen::and);
        if seen.followed + seen.dropped >= requests {
            return seen;
        }
        assert!(Instant::now() < end, "{seen:?} of {requests}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the meter of a process has seen so many false refusals.
async fn refused_falsely(process: &Process, requests: u64) {
    let end = Instant::now() + PATIENCE;
    while process.seen().falsely < requests {
        assert!(Instant::now() < end, "{:?}", process.seen());
        sleep(Duration::from_millis(5)).await;
    }
}
