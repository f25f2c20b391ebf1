//! The accuracy meter, beside known mistakes.
//!
//! Two stores stand for two processes. Their clock is the test's, so that what happens in between is known to the
//! microsecond.

mod clean;
mod cluster;
mod doubts;
mod followed;
mod mistakes;

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_core::{
    Check, Decision, ManualClock, Rule, RuleSet, Store,
    store::{Fingerprint, RuleStore},
};
use tollgate_redis::{Keys, RedisStore, RedisStoreBuilder, Secret};
use tollgate_test_servers::redis_server::{PATIENCE, RedisServer};

/// In the middle of an hour.
const START: u64 = 1_700_001_000_000_000;

/// A Redis, a clock, and processes that share them.
struct Fleet {
    server: RedisServer,
    clock: ManualClock,
}

/// A process with its rules.
struct Process {
    store: RedisStore,
    bound: Arc<dyn RuleStore>,
}

/// What meters have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    followed: u64,
    over: u64,
    falsely: u64,
    dropped: u64,
}

impl Fleet {
    async fn start() -> Self {
        Self {
            server: RedisServer::start(&[]).await,
            clock: ManualClock::new(START),
        }
    }

    async fn process(&self, one_in: u32, rules: &[Rule]) -> Process {
        self.open(|builder| builder.meter(one_in), rules).await
    }

    /// A process that no meter sees.
    async fn unseen(&self, rules: &[Rule]) -> Process {
        self.open(|builder| builder, rules).await
    }

    async fn open(
        &self,
        with: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
        rules: &[Rule],
    ) -> Process {
        Process::start(&self.server.url(), &self.clock, with, rules).await
    }
}

impl Process {
    async fn start(
        address: &str,
        clock: &ManualClock,
        with: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
        rules: &[Rule],
    ) -> Self {
        let keys = Keys::hashed(Secret::from_bytes([7; 32]).expect("it is long enough"));
        let builder = RedisStore::builder(address, "meter", keys).deadline(Duration::from_secs(20));
        let store = with(builder)
            .caller_clock(clock.clone(), Duration::from_secs(1_000_000))
            .connect()
            .expect("valid settings and a runtime");
        store.connected().await;
        let rules = RuleSet::new(rules.to_vec()).expect("valid rules");
        let bound = store.bind(Arc::new(rules)).expect("rules it can serve");
        Self { store, bound }
    }

    async fn acquire(&self, checks: &[Check]) -> Decision {
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
    until(processes, |seen| seen.followed + seen.dropped >= requests).await
}

/// What looks wrong is asked about again after this time.
const LATER: Duration = Duration::from_millis(200);

/// What the meters of these processes have seen, once that is so.
async fn until(processes: &[&Process], is_so: impl Fn(Seen) -> bool) -> Seen {
    let end = Instant::now() + PATIENCE;
    loop {
        let all = processes.iter().map(|process| process.seen());
        let seen = all.fold(Seen::default(), Seen::and);
        if is_so(seen) {
            return seen;
        }
        assert!(Instant::now() < end, "it stays {seen:?}");
        sleep(Duration::from_millis(1)).await;
    }
}
