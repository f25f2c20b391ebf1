//! An instance of the service: a store of its own, and tasks that ask continuously.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tollgate_core::{Key, Limiter};
use tollgate_redis::{BreakerState, Partition, RedisStore};

use crate::{
    meter::Meter,
    rules::{INSTANCES, RULES, rules},
};

/// Longer than usual: on a busy machine a server that is well has to be able to answer in it.
pub const DEADLINE: Duration = Duration::from_millis(200);

/// No request takes longer, however busy the machine is. That a call ends at its deadline is a test of the connection's,
/// by a clock that stands.
pub const PATIENCE: Duration = DEADLINE.saturating_mul(300);

/// How many requests of an instance are on their way at once.
pub const TASKS: usize = 3;
/// Between two requests of a task, so that the tasks of all tests together leave the machine time for the servers.
const PAUSE: Duration = Duration::from_millis(4);

/// One instance.
#[derive(Debug)]
pub struct Instance {
    /// Its store.
    pub store: RedisStore,
    /// Its rules.
    pub limiter: Limiter,
    pub(crate) meter: Arc<Meter>,
    ends: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Instance {
    /// Starts one on the server at this address.
    pub async fn start(address: &str) -> Self {
        Self::named("faults", address).await
    }

    /// With states under this namespace.
    ///
    /// # Panics
    ///
    /// The address is not valid.
    pub async fn named(namespace: &str, address: &str) -> Self {
        let store = RedisStore::builder(address, namespace, tollgate_redis::Keys::plain())
            .deadline(DEADLINE)
            // In a cluster it has to be said.
            .partition(Partition::One)
            // What a denial has taught would hide a fault for a second.
            .without_deny_cache()
            .connect()
            .expect("a valid address");
        store.connected().await;
        let instances = NonZeroU32::new(INSTANCES as u32).expect("there are some");
        let limiter = Limiter::new(store.clone(), rules());
        let limiter = limiter.and_then(|limiter| limiter.shared_by(instances));
        let limiter = limiter.expect("the rules are valid");
        let (meter, ends) = (Arc::new(Meter::default()), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (limiter, meter, ends) = (limiter.clone(), Arc::clone(&meter), Arc::clone(&ends));
            tasks.spawn(async move {
                let mut place = task;
                while !ends.load(Ordering::SeqCst) {
                    place = (place + 1) % RULES;
                    acquire(&limiter, &meter, place).await;
                    sleep(PAUSE).await;
                }
            });
        }
        Self {
            store,
            limiter,
            meter,
            ends,
            tasks,
        }
    }

    /// Whether it sends its requests to Redis.
    #[must_use]
    pub fn is_trusting(&self) -> bool {
        self.store.breaker() == BreakerState::Closed
    }

    /// Lets the tasks end.
    ///
    /// # Panics
    ///
    /// One of them has panicked.
    pub async fn end(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a task asks to the end");
        }
    }
}

async fn acquire(limiter: &Limiter, meter: &Meter, place: usize) {
    let rule = &limiter.rules().rules()[place];
    let check = limiter.check(rule.name(), &Key::of("client"));
    let check = check.expect("the rule is there");
    let decision = timeout(PATIENCE, limiter.acquire(&[check]).into_future()).await;
    let decision = decision.expect("a request waits for Redis no longer than its deadline");
    meter.count(place, rule, &decision);
}
