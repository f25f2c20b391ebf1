//! The server: rules on a store behind doors, from its start to its end.

use std::{
    fs,
    os::unix::{fs::FileTypeExt as _, net::SocketAddr},
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tollgate::{MemoryStore, RateLimitLayer, key::client_ip};
use tollgate_console::{Access, Console};
use tollgate_ledger::Ledger;
use tollgate_redis::{Address, RedisStore, RedisStoreBuilder, Secret};
use tollgate_rules::{
    Bindings, LiveRules, RuleDocument, RuleText,
    redis::{Certificates, RedisRules},
};
use tonic_health::{ServingStatus, server::health_reporter};

use crate::{
    check::CheckDoor,
    listener::{Door, Listener},
    mistakes::Mistakes,
    pages::Pages,
    rls::{Rls, RlsDoor},
    settings::{DoorSettings, Listen, MAX_WAIT, RedisSettings, SECRET, Settings},
    tls::Tls,
};

/// How Envoy calls the service.
const RLS: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// How long requests under way have at the end.
const LAST_REQUESTS: Duration = Duration::from_secs(5);
/// How rules say where the secret comes from.
const BY_BINDINGS: &str = "by Bindings::secret";

/// A server that has started: see [`start`](Self::start).
#[derive(Debug)]
pub struct Server {
    doors: JoinSet<()>,
    /// What goes on until the end.
    follows: JoinSet<()>,
    ending: watch::Sender<bool>,
    draining: Arc<AtomicBool>,
    health: tonic_health::server::HealthReporter,
    drain: Duration,
    addresses: Vec<String>,
    store: Option<RedisStore>,
    ledger: Option<Ledger>,
    rules: LiveRules,
}

impl Server {
    /// Reads the rules, connects to the store and opens the doors. A Redis that is down is no reason not to start: the rules answer
    /// as they do for a store failure. A ledger has to answer. `recorder` is what [`install_metrics`](crate::install_metrics) has given.
    ///
    /// # Errors
    ///
    /// All that is wrong with the rules, the certificates and the addresses, a line each.
    pub async fn start(
        settings: Settings,
        recorder: Option<PrometheusHandle>,
    ) -> Result<Self, Mistakes> {
        // So that all that is wrong is said at once.
        Self::check(&settings)?;
        let (bindings, _) = bindings(settings.redis.as_ref());
        let (mut store, mut pushed) = (None, None);
        if let Some(redis) = &settings.redis {
            let (builder, trusted) = builder(redis)?;
            store = Some(builder.connect().map_err(Mistakes::one)?);
            if redis.rules {
                let (address, secret) = (redis.address()?, redis.secret()?);
                let rules = RedisRules::with_tls(&*address, &redis.namespace, &secret, trusted);
                pushed = Some(rules.map_err(Mistakes::one)?);
            }
        }
        let rules = match (&pushed, settings.rules.as_deref()) {
            // The settings have been looked at.
            (None, file) => LiveRules::watch(file.unwrap_or(Path::new("")), bindings.clone()),
            (Some(pushed), file) => {
                let mut rules = LiveRules::builder(bindings.clone());
                if let Some(file) = file {
                    // Until Redis has rules.
                    rules = rules.fallback(rule_text(file)?);
                }
                let source = pushed.source().named("tollgate-server");
                rules.follow(source).await
            }
        };
        let rules = rules.map_err(Mistakes::one)?;
        let layer = match &store {
            Some(store) => rules.layer(store.clone()),
            None => rules.layer(MemoryStore::new()),
        };
        let layer = layer.map_err(Mistakes::one)?;
        let mut ledger = None;
        if let Some(settings) = &settings.ledger {
            let result = Ledger::open(&settings.url()?).await;
            let opened = ledger.insert(result.map_err(Mistakes::one)?);
            opened.attach(&layer.limiter()).map_err(Mistakes::one)?;
        }
        let (health, health_server) = health_reporter();
        let mut server = Self {
            doors: JoinSet::new(),
            follows: JoinSet::new(),
            ending: watch::Sender::new(false),
            draining: Arc::default(),
            health,
            drain: Duration::from_secs(*settings.drain_seconds.as_ref()),
            addresses: Vec::new(),
            store,
            ledger,
            rules,
        };
        if server.ledger.is_none() {
            let rules = server.rules.clone();
            server.follows.spawn(warn_without_ledger(rules));
        }
        let redis = settings.redis.as_ref();
        let max_wait = redis.map_or(MAX_WAIT, RedisSettings::deadline);
        if let Some(settings) = settings.grpc {
            let (listener, layer) = server.bind(&settings, &layer).await?;
            let (rls, health) = (Rls::new(layer, max_wait), health_server);
            server.open(listener, Some(settings), RlsDoor { rls, health });
        }
        for settings in settings.http {
            let (listener, layer) = server.bind(&settings, &layer).await?;
            let door = CheckDoor::new(layer, &settings);
            server.open(listener, Some(settings), door);
        }
        if let Some(recorder) = recorder.clone() {
            // The recorder keeps measured times in lists. Where nobody reads them, they must not grow.
            server.follows.spawn(async move {
                let mut ticks = interval(Duration::from_secs(5));
                loop {
                    ticks.tick().await;
                    recorder.run_upkeep();
                }
            });
        }
        if let Some(listen) = settings.console {
            let listener = Listener::bind(listen.as_ref(), None).await?;
            let mut console = Console::new(Access::loopback())
                .layer("edge", &layer)
                .rules(&server.rules);
            if let Some(store) = &server.store {
                console = console.store(store);
            }
            if let Some(pushed) = &pushed {
                console = console.fleet(pushed, bindings);
            }
            let pages = Pages::of_console(console, recorder.clone());
            server.open(listener, None, pages);
        }
        if let Some(listen) = settings.metrics {
            let listener = Listener::bind(listen.as_ref(), None).await?;
            let pages = Pages::of_status(recorder, Arc::clone(&server.draining));
            server.open(listener, None, pages);
        }
        server.set_health(ServingStatus::Serving).await;
        Ok(server)
    }

    /// Looks at the settings and all that they name, without starting: rules that are pushed to Redis are not read. Returns what is right
    /// and probably not meant.
    ///
    /// # Errors
    ///
    /// All that is wrong, a line each.
    pub fn check(settings: &Settings) -> Result<Vec<String>, Mistakes> {
        let (mut mistakes, mut warnings) = (Mistakes::default(), Vec::new());
        let redis = settings.redis.as_ref();
        let (bindings, secret) = bindings(redis);
        let mut needs_secret = redis.is_some_and(RedisSettings::needs_secret);
        if let Some(file) = &settings.rules {
            let parsed =
                rule_text(file).and_then(|text| text.parse(&bindings).map_err(Mistakes::one));
            match parsed {
                Ok(document) if settings.ledger.is_none() => {
                    warnings.extend(unwritten(&document));
                }
                Ok(_) => {}
                Err(wrong) => {
                    let wrong = wrong.to_string();
                    needs_secret |= wrong.contains(BY_BINDINGS);
                    mistakes.add(wrong.replace(BY_BINDINGS, "in TOLLGATE_SECRET"));
                }
            }
        }
        if needs_secret {
            mistakes.add_of(secret);
        }
        if let Some(redis) = redis {
            let connects =
                builder(redis).and_then(|(builder, _)| builder.check().map_err(Mistakes::one));
            mistakes.add_of(connects);
        }
        if let Some(ledger) = &settings.ledger {
            let opens = ledger.url().and_then(|url| {
                let ledger = Ledger::builder(&url);
                ledger.check().map_err(Mistakes::one)
            });
            mistakes.add_of(opens);
        }
        for listen in settings.listens().map(AsRef::as_ref) {
            let Listen::Unix(path) = listen else {
                continue;
            };
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            // A link to nothing is in the way, too.
            let file = fs::metadata(path).or_else(|_| fs::symlink_metadata(path));
            if let Some(folder) = folder.filter(|it| !it.is_dir()) {
                mistakes.add(format!("{listen}: there is no folder {}", folder.display()));
            } else if file.is_ok_and(|it| !it.file_type().is_socket()) {
                mistakes.add(format!(
                    "{listen}: there is a file that is no socket; take another name"
                ));
            } else if SocketAddr::from_pathname(path).is_err() {
                mistakes.add(format!(
                    "{listen}: the path is too long for a socket; take one below 100 bytes"
                ));
            }
        }
        for tls in settings.doors().filter_map(|door| door.tls.as_ref()) {
            match Tls::read(tls) {
                Ok(tls) => warnings.extend(tls.warning()),
                Err(wrong) => mistakes.add(wrong),
            }
        }
        mistakes.or(warnings)
    }

    /// Where it listens: the door for gRPC, those for HTTP, that for operators, and that for metrics.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Serves until `end`. Then it says that it is going to end, and goes on for so long as the settings say; it finishes what is under
    /// way, and gives back what it holds in advance.
    pub async fn run(mut self, end: impl Future<Output = ()>) {
        end.await;
        self.draining.store(true, Ordering::Relaxed);
        self.set_health(ServingStatus::NotServing).await;
        tracing::info!(target: "tollgate", "going to end in {:?}", self.drain);
        sleep(self.drain).await;
        // All doors have a receiver.
        let _ = self.ending.send(true);
        let mut doors = std::mem::take(&mut self.doors);
        let all = pin!(async { while doors.join_next().await.is_some() {} });
        if timeout(LAST_REQUESTS, all).await.is_err() {
            tracing::warn!(target: "tollgate", "some requests have not ended within {LAST_REQUESTS:?}");
        }
        if let Some(store) = &self.store {
            store.flush(Duration::from_secs(2)).await;
        }
        if let Some(ledger) = self.ledger.take()
            && let Err(wrong) = ledger.close().await
        {
            tracing::error!(target: "tollgate", "what the ledger has not written is lost: {wrong}");
        }
    }

    /// The listener of a door, with its certificates followed, and the layer as it answers there.
    async fn bind(
        &mut self,
        settings: &DoorSettings,
        layer: &RateLimitLayer,
    ) -> Result<(Listener, RateLimitLayer), Mistakes> {
        let tls = settings.tls.as_ref().map(Tls::read).transpose()?;
        let listener = Listener::bind(settings.listen.as_ref(), tls.clone()).await?;
        if let Some(tls) = tls {
            self.follows.spawn(tls.follow());
        }
        let layer = layer.clone().headers(settings.headers);
        Ok((listener, layer.map_err(Mistakes::one)?))
    }

    fn open<D: Door>(&mut self, listener: Listener, settings: Option<DoorSettings>, door: D) {
        self.addresses.push(listener.address());
        let (settings, ending) = (settings.map(Arc::new), self.ending.subscribe());
        self.doors
            .spawn(listener.serve(settings, Arc::new(door), ending));
    }

    async fn set_health(&self, status: ServingStatus) {
        for service in ["", RLS] {
            self.health.set_service_status(service, status).await;
        }
    }
}

/// Says, now and when the rules change, which of them have no ledger.
async fn warn_without_ledger(rules: LiveRules) {
    let (mut updates, mut said) = (rules.subscribe(), None);
    loop {
        let warning = unwritten(&rules.document());
        if let Some(warning) = warning.as_ref().filter(|_| warning != said) {
            tracing::warn!(target: "tollgate", "{warning}");
        }
        said = warning;
        let _ = updates.next().await;
    }
}

fn unwritten(document: &RuleDocument) -> Option<String> {
    let rules = document.limiter_rules();
    let unwritten = rules
        .iter()
        .filter(|it| it.is_durable() || it.has_daily_usage());
    let names: Vec<&str> = unwritten.map(|it| it.name()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "what these rules use is not written, because the settings have no ledger: {}; add ledger = {{ url = \"sqlite:ledger.db\" }}",
            names.join(", ")
        )
    })
}

fn rule_text(file: &Path) -> Result<RuleText, Mistakes> {
    RuleText::read_path(file).map_err(Mistakes::one)
}

/// A door finds the client's address itself, whatever the document says for services. Lists of hashes need the secret: where it is wrong,
/// they are without one.
fn bindings(redis: Option<&RedisSettings>) -> (Bindings, Result<(), Mistakes>) {
    let bindings = Bindings::new().at_edge().client_ip(client_ip());
    let secret = match redis.filter(|it| it.needs_secret()) {
        Some(redis) => redis.secret(),
        // Compose sets an empty one where there is none.
        None if std::env::var_os(SECRET).is_none_or(|it| it.is_empty()) => {
            return (bindings, Ok(()));
        }
        None => Secret::from_env(SECRET).map_err(Mistakes::one),
    };
    match secret {
        Ok(secret) => (bindings.secret(&secret), Ok(())),
        Err(wrong) => (bindings, Err(wrong)),
    }
}

/// The store, and whom an encrypted connection to it trusts.
fn builder(redis: &RedisSettings) -> Result<(RedisStoreBuilder, Option<Certificates>), Mistakes> {
    let address = redis.address()?;
    let parsed: Address = address.parse().map_err(Mistakes::one)?;
    if parsed.is_encrypted {
        // It may have been done before.
        let _ = default_provider().install_default();
    }
    let trusted = Certificates::of_address(&parsed, redis.ca.as_deref()).map_err(Mistakes::one)?;
    let mut builder = RedisStore::builder(address, &redis.namespace, redis.keys()?);
    if let Some(partition) = &redis.partition {
        builder = builder.partition(partition.clone());
    }
    if let Some(trusted) = &trusted {
        builder = builder.tls(trusted.client_config().map_err(Mistakes::one)?);
    }
    Ok((builder.deadline(redis.deadline()), trusted))
}
