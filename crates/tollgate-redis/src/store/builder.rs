//! Setting up a store.

use std::{
    ops::RangeInclusive,
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet, time::timeout};
#[cfg(feature = "tls")]
use tokio_rustls::rustls;
use tollgate_core::{Clock, micros, store::RuleRegistry};
use tollgate_prefilter::{Engine, SlotTerms};

#[cfg(feature = "metrics")]
use crate::store::gauges::{self, Ruler};
use crate::{
    address::Address,
    connection::options::NodeOptions,
    credentials::CredentialsProvider,
    error::{SetupError, SetupErrorKind},
    keys::{
        keys::Keys,
        keyspace::{Keyspace, Partition},
    },
    observe::Observer,
    script::encoder::SLOT_TERM,
    store::{
        context::{Backend, StoreContext, process_clock},
        heartbeat::send_heartbeats,
        new_key_cap::NewKeyCap,
        redis_store::{RedisStore, first_write},
        rule_set_context::InUse,
        sender,
    },
};

/// What is said where a cluster has no partition.
const CHOOSE: &str = "a cluster needs a `partition`. With `Partition::One` each request is one step, and one shard does all the \
work of the namespace.\nWith `Partition::Key` all shards do, and a request takes one step for each key that its rules count by; \
with `Partition::ByRule`, one for each tenant.";

impl RedisStore {
    /// Builds a store. `address` is an [`Address`], or a URL that is read as one. `namespace` begins the names of all states: two
    /// services must not share one by accident. `keys` says how clients are written in Redis. [`RedisStoreBuilder`] has what else may
    /// be set.
    #[doc(alias = "connect")]
    pub fn builder(
        address: impl TryInto<Address, Error: Into<SetupError>>,
        namespace: &str,
        keys: Keys,
    ) -> RedisStoreBuilder {
        RedisStoreBuilder {
            address: address.try_into().map_err(Into::into),
            namespace: namespace.to_owned(),
            partition: None,
            options: NodeOptions::default(),
            clock: None,
            keys,
            caps: Vec::new(),
            heartbeats: true,
            learns: true,
            slot_term: SLOT_TERM,
            #[cfg(feature = "metrics")]
            measured: None,
        }
    }
}

/// What may be set about a [`RedisStore`]. Made by [`RedisStore::builder`].
///
/// No setter fails: the first value that cannot be used is the error of [`connect`](Self::connect).
#[must_use = "nothing is connected until `connect` is called"]
pub struct RedisStoreBuilder {
    /// Or the first value that cannot be used.
    address: Result<Address, SetupError>,
    namespace: String,
    partition: Option<Partition>,
    options: NodeOptions,
    clock: Option<(Clock, Duration)>,
    keys: Keys,
    caps: Vec<(Box<str>, Arc<NewKeyCap>)>,
    heartbeats: bool,
    learns: bool,
    slot_term: Duration,
    /// Keys that are looked at in a second, for the size of the namespace.
    #[cfg(feature = "metrics")]
    measured: Option<u32>,
}

impl RedisStoreBuilder {
    /// Keeps to the first value that cannot be used.
    fn refuse(mut self, wrong: impl Into<String>) -> Self {
        if self.address.is_ok() {
            self.address = Err(SetupError::new(SetupErrorKind::Setting, wrong));
        }
        self
    }

    fn refuse_outside(
        self,
        what: &str,
        time: Duration,
        range: RangeInclusive<Duration>,
        usual: &str,
    ) -> Self {
        if range.contains(&time) {
            return self;
        }
        let (shortest, longest) = range.into_inner();
        self.refuse(format!(
            "{what} of {time:?} is not between {shortest:?} and {longest:?}; {usual} is usual"
        ))
    }

    /// Which states share a hash slot of a cluster, so that they are decided in one step. A cluster needs it; on a single server the default
    /// is right.
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Lets all processes of the namespace together create at most this many new keys a second for the rule with this name,
    /// and as many at once: for rules whose keys anybody can invent, such as those by address or by an API key that is not
    /// verified yet. `per_second` is at least 1.
    ///
    /// Clients beyond that which have no state in Redis share one overflow bucket with the rule's quota, until there is room
    /// again; clients with a state, and those for which this process holds a lease, are not affected. Requests that are in flight at once
    /// may create more, and then so many fewer are created after that, for ten seconds at most. So a flood of invented
    /// clients costs Redis no more than this rate times the time that a state lasts.
    ///
    /// With [`Partition::ByRule`] each tenant has an overflow bucket, with [`Partition::Key`] each of the 16 384 hash slots. Then invented
    /// clients have as many whole quotas among them, and as many keys more than the cap allows. The cap bounds only what more of them
    /// cost.
    ///
    /// Each process has its part of the cap, and one key at least; [`RedisStore::instances`] is how many there are. Before it
    /// was counted, for a quarter of a second after the start, and always [without heartbeats](Self::without_heartbeats), a
    /// process has a sixteenth. While processes start, the others give up their parts with their next heartbeat, within six
    /// seconds; until then all together may create up to 1.7 times the cap where their number doubles.
    pub fn cap_new_keys(mut self, rule: &str, per_second: u32) -> Self {
        if per_second == 0 {
            return self.refuse(format!(
                "a cap of 0 new keys for {rule:?} would never let a new client in; take at least 1 a second"
            ));
        }
        self.caps
            .push((rule.into(), Arc::new(NewKeyCap::per_second(per_second))));
        self
    }

    /// How long a request may wait for Redis in total, however many hash slots of a cluster its rules lie in.
    /// Default: 50 ms; at most a minute. After it, the rules' answers to a store failure apply.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        let range = Duration::from_nanos(1)..=Duration::from_secs(60);
        self.options.deadline = deadline;
        self.refuse_outside("a deadline", deadline, range, "50 ms")
    }

    /// How long Redis keeps the [slots](tollgate_core::Quota::concurrent) of a process that it does not hear from. Default: 15 s; 1 s
    /// to an hour. The slots are renewed every third of it, by one call for all requests that run.
    ///
    /// The slots of a process that crashes stay in use for this time. It counts from the last renewal, so one that stands still or
    /// cannot reach Redis for two thirds of it or longer may be taken for one that has crashed: its requests go on, and others may be
    /// given their slots meanwhile. Take a longer term where that is worse than waiting. Processes with different terms go together.
    pub fn slot_term(mut self, term: Duration) -> Self {
        let range = Duration::from_secs(1)..=Duration::from_secs(3_600);
        self.slot_term = term;
        self.refuse_outside("a slot term", term, range, "15 s")
    }

    /// How long a connection may take until it can be used: TCP, encryption, log-in, and what is asked of the server then. Default:
    /// ten [deadlines](Self::deadline), and at least 2 s; 10 ms to 10 minutes.
    ///
    /// No request waits for it. Of a host with several addresses each may take 250 ms to accept, one after the other; those that were
    /// silent are then tried once more, for what is left of this.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        let range = Duration::from_millis(10)..=Duration::from_secs(600);
        self.options.connect_timeout = Some(timeout);
        self.refuse_outside("a connect timeout", timeout, range, "2 s")
    }

    /// Where the servers are reached that sentinels and the servers of a cluster name: behind a NAT, or by a name that is in
    /// their certificates. It is given a host and a port as they name them, and gives others, or `None` for the same ones.
    /// Servers that the [address](RedisStore::builder) names are not asked about.
    ///
    /// On an encrypted connection the certificate has to be for the host that the map gives, not for the one that the server
    /// announces: the map is yours, and what a server or a sentinel says of another is not proven.
    ///
    /// ```
    /// use tollgate_redis::{Keys, Partition, RedisStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("redis-cluster://localhost:7000", "shop", Keys::plain())
    ///     .partition(Partition::Key)
    ///     // The servers name 10.1.0.11 to 10.1.0.13, and have certificates for redis-11.example to redis-13.example.
    ///     .address_map(|host, port| {
    ///         let number = host.strip_prefix("10.1.0.")?;
    ///         Some((format!("redis-{number}.example"), port))
    ///     })
    ///     .connect()?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub fn address_map(
        mut self,
        map: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        self.options.address_map = Some(Arc::new(map));
        self
    }

    /// How many checks may go to Redis as one command, of requests that wait at the same moment. Default: 32. Such a command takes
    /// the server 100 to 200 µs, and its other clients wait for that time. With 1 each request goes alone, and Redis decides about
    /// half as many in the same time.
    ///
    /// A request with more than `checks` checks goes alone. `checks` is 1 to 1024.
    pub fn together(mut self, checks: usize) -> Self {
        const MOST: usize = 1024;
        if checks == 0 || checks > MOST {
            return self.refuse(format!(
                "{checks} checks together are not between 1 and {MOST}; 32 is usual"
            ));
        }
        self.options.together = checks;
        self
    }

    /// Counts the keys of the namespace in Redis, and estimates their memory, for the metrics
    /// [`tollgate_redis_namespace_keys`, `tollgate_redis_namespace_bytes` and
    /// `tollgate_redis_memory_used_ratio`](https://docs.rs/tollgate/latest/tollgate/guide/operating/index.html#the-size-of-the-namespace). Without this nothing is
    /// measured: it looks at all keys of the servers, also those of others, and needs
    /// [rights of its own](crate::guide::redis#a-user-of-its-own).
    ///
    /// `keys_per_second` is the most that all processes together look at, 100 at a time; at least 100. 5 000 is usual: a million
    /// keys are measured in less than four minutes, for about a percent of the server's time. One process measures and the others
    /// read what it has found, so a fleet costs no more than one process. The next measurement begins a minute after the last has
    /// ended.
    ///
    /// # Accuracy
    ///
    /// Keys that come or go during a measurement are counted or not; while a server's table grows, some are counted twice. One
    /// key in ten is asked for its memory, and the others are taken to be like those. What a server keeps of a key in its own
    /// tables is not in it, a quarter to a third of what `used_memory` grows by.
    #[cfg(feature = "metrics")]
    pub fn measure_namespace(mut self, keys_per_second: u32) -> Self {
        const LEAST: u32 = 100;
        if keys_per_second < LEAST {
            return self.refuse(format!(
                "{keys_per_second} keys a second are too few to measure a namespace; take at least {LEAST}, 5000 is usual"
            ));
        }
        self.measured = Some(keys_per_second);
        self
    }

    /// Tells Redis the time by this clock, for servers on which a script may not ask for it. Without this the server's own
    /// time counts, which is the same for every process.
    ///
    /// States are kept for `margin` longer: as long as the clocks of the processes and of the server may differ.
    ///
    /// It tells microseconds since the epoch, and the process goes by it as well: limits of [none](tollgate_core::Quota::none) end by it,
    /// a [ledger](tollgate_core::Rule::durable) has its days of usage and the windows of later charges from it, and the shares that are
    /// counted while Redis fails refill by it. It is read while states are locked, as [`Clock::custom`] says. From 2^52 µs on, in the year
    /// 2112, time stands still in Redis, and nothing comes back; in memory it goes on.
    ///
    /// # Accuracy
    ///
    /// Where clocks differ by `d`, a process that is behind may have to wait longer by `d`, and one that is ahead is let
    /// through earlier by `d`. For a fixed or a sliding window this happens once, as long as `d` is less than a window.
    ///
    /// For the other algorithms it happens again and again: a denial by the process that is behind repairs the state of the other, as
    /// after a clock that went back. So a log and sub-buckets count as if the window were shorter by `d`, and a bucket as if each unit
    /// came back earlier by `d`. If `d` is as long as a window, or as the time of a unit of a bucket, there is no bound. Keep the
    /// differences of the clocks far below that.
    ///
    /// A process spends its [leases](tollgate_core::Consistency::Leased) by its own clock. If that is behind, up to the reserve may
    /// pass on top, again with each life of a lease. A process whose clock is ahead by two thirds of the
    /// [term](Self::slot_term) takes the slots of all others for those of processes that have crashed.
    pub fn caller_clock(mut self, clock: impl Into<Clock>, margin: Duration) -> Self {
        self.clock = Some((clock.into(), margin));
        self
    }

    /// Asks Redis about every request, also where an earlier denial says what the answer will be.
    ///
    /// Without this a denial is remembered for up to a second, and says no to what it covers: a client that is over its
    /// limit costs Redis one call a second from each process. What is learned is right for as long as nothing is given
    /// back. What another process gives back, resets, or allows by new rules, and a step of the server's clock, are seen
    /// within that second; with this, at once.
    pub fn without_deny_cache(mut self) -> Self {
        self.learns = false;
        self
    }

    /// Sends no heartbeats: neither that this instance is there, nor which quotas its rules have. While Redis fails, the quota is then
    /// shared among as many instances as you set on the limiter or the layer, however many run. And it goes unnoticed if another
    /// process has [another quota for the same rule](https://docs.rs/tollgate/latest/tollgate/guide/operating/index.html#two-quotas-of-one-rule).
    pub fn without_heartbeats(mut self) -> Self {
        self.heartbeats = false;
        self
    }

    /// Asks `provider` who logs in, for each connection and before its credentials expire, instead of the address.
    /// [`CredentialsProvider`] says how.
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.options.credentials = Some(Arc::new(provider));
        self
    }

    /// How connections to an address with `rediss://` are encrypted: whom to trust, by which cryptography, with which certificate
    /// of one's own. Connections to an address with `redis://` stay unencrypted.
    ///
    /// The cryptography is a feature of rustls that the application enables, such as `ring`. Name it as here: `ClientConfig::builder()`
    /// panics in a program where two are enabled, or none.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use tollgate_redis::{
    ///     Keys, RedisStore, Secret,
    ///     rustls::{
    ///         ClientConfig, RootCertStore,
    ///         crypto::ring,
    ///         pki_types::{CertificateDer, pem::PemObject},
    ///     },
    /// };
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut trusted = RootCertStore::empty();
    /// trusted.add(CertificateDer::from_pem_file("/etc/ssl/redis-ca.pem")?)?;
    /// let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
    ///     .with_safe_default_protocol_versions()?
    ///     .with_root_certificates(trusted)
    ///     .with_no_client_auth();
    /// let keys = Keys::hashed(Secret::from_env("TOLLGATE_SECRET")?);
    /// let store = RedisStore::builder("rediss://cache.internal", "shop", keys).tls(config);
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        self.options.security = Some(config.into());
        self
    }

    /// Begins to connect, and does not wait for it: the application starts while Redis is down. Until there is a
    /// connection, the rules' answers to a store failure apply. The connection ends with the tokio runtime of this call.
    ///
    /// # Errors
    ///
    /// The part of the address or the namespace that is wrong; the first setting that cannot be used; a cluster without a
    /// [partition](Self::partition). There is no tokio runtime, or the address wants an encrypted connection and there is no
    /// [`tls`](Self::tls) to say whom to trust.
    pub fn connect(self) -> Result<RedisStore, SetupError> {
        let keyspace = self.keyspace()?;
        let address = self.address?;
        let runtime = Handle::try_current().map_err(|_| {
            SetupError::new(
                SetupErrorKind::Runtime,
                "a store is connected by a task of tokio, and there is no runtime here; call it inside of #[tokio::main]",
            )
        })?;
        let instance = format!("{:016x}", fastrand::u64(..));
        let observer = Arc::new(Observer::default());
        let deadline = self.options.deadline;
        let mut options = self.options;
        options.namespace = self.namespace;
        options.instance.clone_from(&instance);
        let backend = Backend::start(address, options, &observer)?;
        let slot_terms = SlotTerms::new(micros(self.slot_term)).of_store(micros(deadline));
        let process_clock = match &self.clock {
            Some((clock, _)) => clock.clone(),
            None => process_clock(),
        };
        let sender = Arc::new(());
        let shared = Arc::new(StoreContext {
            backend,
            deadline,
            keyspace,
            instances: AtomicU32::new(0),
            observer,
            clock: self.clock,
            caps: self.caps,
            runtime,
            engine: Engine::new(Engine::KEYS, self.learns, slot_terms),
            process_clock,
            in_flight: Arc::default(),
            slot_term: self.slot_term,
            wake: Arc::default(),
            sender: Arc::downgrade(&sender),
        });
        let in_use = Arc::<InUse>::default();
        // It ends by itself: slots may have to be told when all else is gone.
        let (sends, wake) = (Arc::clone(&in_use), Arc::clone(&shared.wake));
        tokio::spawn(sender::run(Arc::downgrade(&shared), sends, wake, sender));
        let mut tasks = JoinSet::new();
        #[cfg(feature = "metrics")]
        {
            tasks.spawn(gauges::run(Arc::clone(&shared)));
            if let Some(keys_per_second) = self.measured {
                tasks.spawn(Ruler::new(&shared, &instance, keys_per_second).run());
            }
        }
        if self.heartbeats {
            let (shared, in_use) = (Arc::clone(&shared), Arc::clone(&in_use));
            tasks.spawn(send_heartbeats(shared, in_use, instance));
        }
        Ok(RedisStore {
            shared,
            in_use,
            tasks: Arc::new(tasks),
            registry: RuleRegistry::default(),
        })
    }

    /// Looks at the address, the namespace and the settings as [`connect`](Self::connect) does, and connects to nothing.
    ///
    /// # Errors
    ///
    /// What cannot be used.
    pub fn check(&self) -> Result<(), SetupError> {
        self.keyspace().map(drop)
    }

    fn keyspace(&self) -> Result<Keyspace, SetupError> {
        let address = self.address.as_ref().map_err(Clone::clone)?;
        let partition = match &self.partition {
            Some(partition) => partition.clone(),
            None if address.is_cluster => {
                return Err(SetupError::new(SetupErrorKind::Setting, CHOOSE));
            }
            None => Partition::One,
        };
        let mut keyspace = Keyspace::new(self.namespace.as_str(), partition)?;
        keyspace.keys = self.keys.clone();
        Ok(keyspace)
    }

    /// As [`connect`](Self::connect), and waits until Redis decides every request: for a deployment that should fail without Redis. The
    /// server has taken a script that writes, which a full server, a replica, and one on which the user lacks rights refuse.
    ///
    /// # Errors
    ///
    /// As there; and [`NotConnected`](SetupErrorKind::NotConnected) if Redis does not decide requests `within` this time, with
    /// why it does not.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tollgate_redis::{Keys, RedisStore, SetupErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let store = RedisStore::builder("unix:///nowhere/redis.sock", "shop", Keys::plain());
    /// let error = store.connect_within(Duration::from_millis(100)).await.unwrap_err();
    /// assert_eq!(error.kind(), SetupErrorKind::NotConnected);
    /// assert!(error.to_string().contains("/nowhere/redis.sock: No such file"));
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the store.
    pub async fn connect_within(self, within: Duration) -> Result<RedisStore, SetupError> {
        let store = self.connect()?;
        let mut refusal = None;
        let decides = async {
            store.connected().await;
            first_write(&store.shared, &mut refusal).await;
        };
        match timeout(within, decides).await {
            Ok(()) => Ok(store),
            Err(_) => {
                let why = refusal
                    .or_else(|| store.connection_error())
                    .unwrap_or_else(|| "it is still being tried".to_owned());
                Err(SetupError::new(
                    SetupErrorKind::NotConnected,
                    format!("Redis does not decide requests after {within:?}: {why}"),
                ))
            }
        }
    }
}

// Without the secret.
tollgate_core::debug_fields!(RedisStoreBuilder, it =>
    address: it.address, namespace: it.namespace, partition: it.partition, deadline: it.options.deadline
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::stream::memory;

    fn builder() -> RedisStoreBuilder {
        RedisStore::builder("redis://localhost", "shop", Keys::plain())
    }

    #[tokio::test]
    async fn a_setting_that_cannot_be_used_is_the_error_of_connect_and_names_the_remedy() {
        let minute = Duration::from_secs(60);
        for (builder, words) in [
            (builder().deadline(Duration::ZERO), ["0ns", "50 ms"]),
            (builder().deadline(minute * 2), ["120s", "50 ms"]),
            (builder().together(0), ["0 checks", "32"]),
            (builder().together(1_025), ["1025 checks", "32"]),
            (builder().cap_new_keys("api", 0), ["\"api\"", "at least 1"]),
            (builder().slot_term(minute / 61), ["983", "15 s"]),
            (builder().slot_term(minute * 61), ["3660s", "15 s"]),
            #[cfg(feature = "metrics")]
            (builder().measure_namespace(99), ["99 keys", "5000"]),
            (builder().connect_timeout(minute * 11), ["660s", "2 s"]),
            // The first one is told, and not forgotten for a later call.
            (
                builder().together(0).together(7).deadline(minute),
                ["0 checks", "32"],
            ),
        ] {
            let error = builder.connect().expect_err("it cannot be used");
            assert_eq!(error.kind(), SetupErrorKind::Setting);
            for word in words {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
        let namespace = RedisStore::builder("redis://localhost", "a b", Keys::plain());
        let error = namespace.connect().expect_err("no namespace");
        assert_eq!(error.kind(), SetupErrorKind::Keys);
        let address = RedisStore::builder("http://localhost", "shop", Keys::plain());
        let error = address.connect().expect_err("no address of Redis");
        assert_eq!(error.kind(), SetupErrorKind::Address);
        let cluster = || RedisStore::builder("redis-cluster://localhost", "shop", Keys::plain());
        let error = cluster().connect().expect_err("nobody has chosen");
        assert_eq!(error.kind(), SetupErrorKind::Setting);
        let error = error.to_string();
        for word in ["`Partition::One`", "`Partition::Key`", "one shard does all"] {
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(error.lines().count(), 2, "{error}");
        assert!(cluster().partition(Partition::One).connect().is_ok());
        let fine = builder().deadline(minute).together(1_024);
        assert!(fine.cap_new_keys("api", 1).connect().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_says_what_the_server_refused_also_when_the_breaker_is_open() {
        memory::play("/loading", |words| match words[0] {
            "EVAL" | "EVALSHA" => "-LOADING Redis is loading\r\n".to_owned(),
            _ => ":1\r\n".to_owned(),
        });
        for millis in [300, 3_000] {
            let store = RedisStore::builder("unix:///loading", "shop", Keys::plain());
            let start = store.connect_within(Duration::from_millis(millis));
            let error = start.await.expect_err("it loads").to_string();
            assert!(error.ends_with("LOADING Redis is loading"), "{error}");
        }
    }

    #[test]
    fn a_builder_shows_no_password() {
        let address = "redis://user:sesame@localhost";
        let shown = format!("{:?}", RedisStore::builder(address, "shop", Keys::plain()));
        assert!(!shown.contains("sesame"), "{shown}");
    }
}
