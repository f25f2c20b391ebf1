//! The console: what it looks at, and what its handlers share.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use tokio::sync::watch;
use tollgate::{RateLimitLayer, clock::Clock};
use tollgate_core::sync::{Mutex, lock};
#[cfg(feature = "redis")]
use tollgate_redis::RedisStore;
use tollgate_rules::LiveRules;
#[cfg(feature = "redis")]
use tollgate_rules::{Bindings, redis::RedisRules};

use crate::{access::Access, exposition::Scrapes, samples::Samples};

/// A page for operators of rate limits, as a router: made by [`Console::new`], mounted by [`router`](Self::router).
///
/// See the [module documentation](crate).
#[must_use = "a console is seen when its router is mounted"]
#[derive(Clone)]
pub struct Console {
    pub(crate) access: Access,
    pub(crate) layers: Vec<(String, RateLimitLayer)>,
    pub(crate) rules: Option<LiveRules>,
    #[cfg(feature = "redis")]
    pub(crate) fleet: Option<(RedisRules, Bindings)>,
    #[cfg(feature = "redis")]
    pub(crate) store: Option<RedisStore>,
    pub(crate) metrics: Option<Arc<Render>>,
}

/// Gives the metrics of the process as Prometheus reads them.
pub(crate) type Render = dyn Fn() -> String + Send + Sync;

/// What the handlers and the sampler share, for as long as the router lives.
pub(crate) struct Shared {
    pub(crate) parts: Console,
    pub(crate) clock: Clock,
    /// The latest sample, as each tab hears it. One that reads slowly misses samples, and nobody waits for it.
    pub(crate) latest: watch::Sender<Bytes>,
    /// Whether the task runs that makes the samples.
    pub(crate) sampler: OnceLock<()>,
    pub(crate) samples: Mutex<Samples>,
    pub(crate) scrapes: Mutex<Scrapes>,
    /// The previews that run, by the number of their layer and by rule: the limit, and since when.
    pub(crate) previews: Mutex<BTreeMap<(usize, String), (String, u64)>>,
}

impl Console {
    /// A console that is shown to whom `access` says.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            layers: Vec::new(),
            rules: None,
            #[cfg(feature = "redis")]
            fleet: None,
            #[cfg(feature = "redis")]
            store: None,
            metrics: None,
        }
    }

    /// Shows the rules of this layer, under a name where there are several. Call it after the layer's settings.
    pub fn layer(mut self, name: impl Into<String>, layer: &RateLimitLayer) -> Self {
        self.layers.push((name.into(), layer.clone()));
        self
    }

    /// The document that the layers follow: the page says what is in force and what was rejected, and switches and overrides rules.
    /// What it changes is in force in this process alone, and ends with it, unless [`fleet`](Self::fleet) is given too.
    pub fn rules(mut self, rules: &LiveRules) -> Self {
        self.rules = Some(rules.clone());
        self
    }

    /// The rules in Redis that all processes follow: what the page changes is in force in all of them. The bindings have to be those
    /// of the service.
    #[cfg(feature = "redis")]
    pub fn fleet(mut self, rules: &RedisRules, bindings: Bindings) -> Self {
        self.fleet = Some((rules.clone(), bindings));
        self
    }

    /// The store on Redis: the page says whether it decides, and why not.
    #[cfg(feature = "redis")]
    pub fn store(mut self, store: &RedisStore) -> Self {
        self.store = Some(store.clone());
        self
    }

    /// The metrics of this process as Prometheus reads them: the page shows latency, calls to Redis, deadline misses and how many
    /// requests are near their limit. It is called every five seconds while somebody looks.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }
}

impl Shared {
    pub(crate) fn new(parts: Console) -> Arc<Self> {
        let shared = Arc::new(Self {
            parts,
            clock: Clock::system(),
            latest: watch::Sender::default(),
            sampler: OnceLock::new(),
            samples: Mutex::default(),
            scrapes: Mutex::default(),
            previews: Mutex::default(),
        });
        // What was counted before is not of this minute.
        shared.take_sample();
        shared
    }

    /// Counts until now. Returns the time since the sample before, in microseconds.
    pub(crate) fn take_sample(&self) -> u64 {
        let layers = self.parts.layers.iter();
        let counts: Vec<_> = layers.map(|(_, layer)| layer.limiter().counts()).collect();
        lock(&self.samples).take(self.clock.now(), &counts)
    }
}

tollgate_core::debug_fields!(Console, it =>
    access: it.access, layers: it.layers.iter().map(|(name, _)| name).collect::<Vec<_>>()
);

/// Who uses the console, as the layer of the application knows: an extension of the request. It is the actor in the audit.
///
/// ```
/// use tollgate_console::Operator;
///
/// let mut request = http::Request::get("/tollgate/overview").body(())?;
/// // In a layer around the router, after a log-in.
/// request.extensions_mut().insert(Operator::new("alice"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Operator(pub(crate) String);

impl Operator {
    /// A person, by the name that the audit shows.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }
}
