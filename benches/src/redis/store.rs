//! tollgate's store in Redis.

use std::{error::Error, sync::Arc, time::Duration};

use tollgate::{
    Limiter, Quota, Rule, SECOND,
    key::{KeyBuf, PartKind},
};
use tollgate_redis::{Keys, RedisStore, Secret};

use crate::redis::server::Server;

/// How long an answer may take before a bench gives up.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Each algorithm with a quota that the bench's clients keep to.
pub fn quotas() -> [(&'static str, Quota); 5] {
    [
        ("gcra", Quota::gcra(1000, SECOND)),
        ("fixed window", Quota::fixed_window(1000, SECOND)),
        ("sliding window", Quota::sliding_window(1000, SECOND)),
        ("sliding buckets", Quota::sliding_buckets(1000, SECOND)),
        ("sliding log", Quota::sliding_log(100, SECOND)),
    ]
}

/// A limiter of one rule in Redis.
#[derive(Clone, Debug)]
pub struct Shared {
    limiter: Arc<Limiter>,
}

impl Shared {
    /// Connects, with the default or the given number of checks in one command.
    ///
    /// # Errors
    ///
    /// A quota that cannot be used, no runtime, or no number of checks.
    pub async fn connect(
        server: &Server,
        quota: Quota,
        together: Option<usize>,
    ) -> Result<Self, Box<dyn Error>> {
        Self::of_rule(server, Rule::new("api", quota), together).await
    }

    /// The same of a rule, which says how exactly it is counted.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn of_rule(
        server: &Server,
        rule: Rule,
        together: Option<usize>,
    ) -> Result<Self, Box<dyn Error>> {
        // As services do it.
        let keys = Keys::hashed(Secret::from_bytes([7; 32])?);
        let mut builder = RedisStore::builder(server.address(), "bench", keys).deadline(PATIENCE);
        if let Some(checks) = together {
            builder = builder.together(checks);
        }
        let store = builder.connect()?;
        store.connected().await;
        Ok(Self {
            limiter: Arc::new(Limiter::new(store, [rule])?),
        })
    }

    /// Takes a unit of a client.
    ///
    /// # Panics
    ///
    /// If Redis does not decide.
    pub async fn take(self, client: u64) {
        let mut key = KeyBuf::new();
        key.push(PartKind::VALUE, client.to_le_bytes());
        let check = self.limiter.check_at(0, &key, 1);
        let decision = self.limiter.acquire(&[check]).await;
        assert!(!decision.is_degraded(), "{decision:?}");
    }
}
