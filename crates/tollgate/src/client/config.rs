//! What a layer knows: how patient it is, what it may send again, and its own quota.

use std::{fmt, sync::Arc, time::Duration};

use http::request::Parts;
use tokio::time::Instant;
use tollgate_core::Clock;
use tower::{
    retry::budget::{Budget, TpsBudget},
    util::rng::{HasherRng, Rng},
};

use crate::{
    client::{hold::Hold, scopes::Scopes},
    key::authority_of,
    request_rules::RequestRules,
};

/// As good as for ever, and within the range of every clock.
const FOR_EVER: Duration = Duration::from_secs(86_400 * 365 * 30);

pub(super) type ScopeFn = dyn Fn(&Parts) -> String + Send + Sync;
pub(super) type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// What a layer was told, and what its services share.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) own: Option<RequestRules>,
    pub(super) scopes: Arc<Scopes>,
    pub(super) scope_of: Arc<ScopeFn>,
    pub(super) patience: Duration,
    longest_hold: Duration,
    pub(super) retries: u32,
    pub(super) retry_budget: Arc<dyn Budget + Send + Sync>,
    pub(super) jitter_percent: u8,
    pub(super) kept_bytes: u64,
    pub(super) idempotent: Option<Arc<Predicate>>,
    pub(super) clock: Clock,
}

impl Config {
    pub(super) fn new() -> Self {
        Self {
            own: None,
            scopes: Arc::default(),
            scope_of: Arc::new(|head| authority_of(head).unwrap_or_default().into_owned()),
            patience: Duration::from_secs(30),
            longest_hold: Duration::from_secs(600),
            retries: 4,
            retry_budget: Arc::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2)),
            jitter_percent: 10,
            kept_bytes: 64 << 10,
            idempotent: None,
            clock: Clock::system(),
        }
    }

    pub(super) fn set_longest_hold(&mut self, longest: Duration) {
        self.longest_hold = longest.min(FOR_EVER);
    }

    pub(super) fn longest_hold(&self) -> Duration {
        self.longest_hold
    }

    /// For how long a server is left alone that asks for this, after a request that may wait until `deadline`.
    pub(super) fn hold(&self, asked: Duration, deadline: Instant) -> Hold {
        let room = deadline.saturating_duration_since(Instant::now());
        let chance = HasherRng::new().next_f64();
        Hold::new(asked, self.jitter_percent, self.longest_hold, room, chance)
    }

    /// When the patience of a request that comes now is over.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.patience.min(FOR_EVER)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("own", &self.own)
            .field("scopes", &self.scopes)
            .field("patience", &self.patience)
            .field("longest_hold", &self.longest_hold)
            .field("retries", &self.retries)
            .finish_non_exhaustive()
    }
}
