//! trypema's hybrid provider.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::runtime::Runtime;
use tollgate_benches::{
    redis::server::Server,
    workload::{Namer, each},
};
use trypema::{
    BucketSize, RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize,
    hybrid::HybridRateLimiterProvider,
    redis::{RedisKey, RedisKeyRef},
};

/// The provider with one rate for everybody. It reports every 10 ms, its default.
#[derive(Clone)]
pub(super) struct Hybrid {
    provider: Arc<HybridRateLimiterProvider>,
    rate: RateLimit,
    sent: Arc<AtomicU64>,
}

/// Queries that are under way at the same time before a bench begins.
const TOGETHER: usize = 256;

impl Hybrid {
    /// With windows of a minute; connected, and at home in the runtime that calls.
    pub(super) async fn connect(server: &Server, per_second: f64) -> Result<Self, Box<dyn Error>> {
        let client = redis_1::Client::open(server.address())?;
        let provider = HybridRateLimiterProvider::builder(client.get_connection_manager().await?)
            .window_size(WindowSize::seconds_or_panic(60))
            .bucket_size(BucketSize::milliseconds_or_panic(10))
            .build()?;
        Ok(Self {
            provider,
            rate: RateLimit::per_second(per_second)?,
            sent: Arc::default(),
        })
    }

    pub(super) fn key(name: &str) -> RedisKey {
        RedisKey::new_or_panic(name.to_owned())
    }

    /// Asks about so many clients, as often as it takes to answer alone.
    pub(super) fn learn(&self, runtime: &Runtime, clients: u32) {
        let clients: Vec<_> = each(clients).collect();
        let mut namer = Namer::new();
        for _ in 0..3 {
            for clients in clients.chunks(TOGETHER) {
                let asking: Vec<_> = clients
                    .iter()
                    .map(|client| {
                        let (this, key) = (self.clone(), Self::key(namer.name(*client)));
                        runtime.spawn(async move { this.send(&key).await })
                    })
                    .collect();
                runtime.block_on(async {
                    for answer in asking {
                        answer.await.expect("a query does not panic");
                    }
                });
            }
        }
        self.sent.store(0, Ordering::Relaxed);
    }

    /// The checks since it has learned that Redis was asked about.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Takes a unit, from a thread that is none of the runtime's.
    #[inline]
    pub(super) fn take(&self, runtime: &Runtime, key: RedisKeyRef<'_>) -> bool {
        let answer = self.provider.absolute().try_inc(key, 1);
        match answer.expect("it decides") {
            Some(decision) => is_allowed(&decision),
            None => runtime.block_on(self.send(&Self::key(key.as_str()))),
        }
    }

    /// Takes a unit: at once, if it can.
    pub(super) async fn take_or_wait(&self, key: &RedisKey) -> bool {
        let answer = self.provider.absolute().try_inc(key.as_key_ref(), 1);
        match answer.expect("it decides") {
            Some(decision) => is_allowed(&decision),
            None => self.send(key).await,
        }
    }

    async fn send(&self, key: &RedisKey) -> bool {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let answer = self.provider.absolute().inc(key, &self.rate, 1).await;
        is_allowed(&answer.expect("it decides"))
    }
}

fn is_allowed(decision: &RateLimitDecision) -> bool {
    matches!(decision, RateLimitDecision::Allowed)
}
