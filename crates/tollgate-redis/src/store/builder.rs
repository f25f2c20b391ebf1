//! Setting up a store.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::runtime::Handle;
#[cfg(feature = "tls")]
use tokio_rustls::rustls;
use tollgate_core::Clock;

#[cfg(feature = "tls")]
use crate::connection::security::Security;
use crate::{
    address::Address,
    connection::options::NodeOptions,
    error::{SetupError, SetupErrorKind},
    keys::Keys,
    keyspace::{Keyspace, Partition},
    new_keys::NewKeys,
    observe::Observer,
    prefilter::deny::DenyCache,
    store::{
        backend::Backend, instances::Instances, redis_store::RedisStore, shared::Shared,
        under_way::UnderWay,
    },
};

impl RedisStore {
    /// A store at this address, in this namespace, which two services must not share by accident; `keys` says how clients
    /// are written there. See [`RedisStoreBuilder`] for what else may be set.
    ///
    /// # Errors
    ///
    /// The part of the address or the namespace that is wrong.
    pub fn builder(
        address: &str,
        namespace: &str,
        keys: Keys,
    ) -> Result<RedisStoreBuilder, SetupError> {
        RedisStoreBuilder::new(address, namespace, keys)
    }
}

/// What may be set about a [`RedisStore`]. Made by [`RedisStore::builder`].
#[must_use = "nothing is connected until `connect` is called"]
pub struct RedisStoreBuilder {
    address: Address,
    namespace: String,
    partition: Partition,
    options: NodeOptions,
    clock: Option<(Clock, Duration)>,
    keys: Keys,
    caps: Vec<(Box<str>, Arc<NewKeys>)>,
    heartbeats: bool,
    learns: bool,
    meter: Option<u64>,
}

impl RedisStoreBuilder {
    pub(super) fn new(address: &str, namespace: &str, keys: Keys) -> Result<Self, SetupError> {
        let address = Address::parse(address)
            .map_err(|wrong| SetupError::new(SetupErrorKind::Address, wrong.to_string()))?;
        keyspace(namespace, Partition::default())?;
        Ok(Self {
            address,
            namespace: namespace.to_owned(),
            partition: Partition::default(),
            options: NodeOptions::default(),
            clock: None,
            keys,
            caps: Vec::new(),
            heartbeats: true,
            learns: true,
            meter: None,
        })
    }

    /// What goes into one slot of a cluster. Without a cluster it does not matter.
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = partition;
        self
    }

    /// Lets this process make at most so many new keys a second for the rule with this name, and as many at once: for
    /// rules whose keys anybody can invent, such as those by address or by an API key that nobody has checked yet.
    ///
    /// Clients beyond that, of which Redis has no state yet, share one bucket with the rule's quota until there is room
    /// again; clients that are known are not affected. So a flood of invented clients costs Redis no more than this rate
    /// times the time that a state lasts.
    ///
    /// # Errors
    ///
    /// A rate of nothing.
    pub fn cap_new_keys(mut self, rule: &str, per_second: u32) -> Result<Self, SetupError> {
        if per_second == 0 {
            return Err(SetupError::new(
                SetupErrorKind::Setting,
                format!(
                    "no new keys for {rule:?} would let nobody new in; take at least 1 a second"
                ),
            ));
        }
        self.caps
            .push((rule.into(), Arc::new(NewKeys::per_second(per_second))));
        Ok(self)
    }

    /// How long a request may wait for Redis, with all that it waits for, however many slots of a cluster its rules lie in.
    /// 50 ms unless told otherwise. Then its rules' answers to a store failure apply.
    ///
    /// # Errors
    ///
    /// A deadline of nothing, or of more than a minute.
    pub fn deadline(mut self, deadline: Duration) -> Result<Self, SetupError> {
        const LONGEST: Duration = Duration::from_secs(60);
        if deadline.is_zero() || deadline > LONGEST {
            return Err(SetupError::new(
                SetupErrorKind::Setting,
                format!(
                    "a deadline of {deadline:?} is not between 1 ns and {LONGEST:?}; 50 ms is usual"
                ),
            ));
        }
        self.options.deadline = deadline;
        Ok(self)
    }

    /// How many checks may go to Redis as one command, of requests that wait at the same moment. 32 unless told otherwise,
    /// which keeps the server from its other clients for 100 to 200 µs. With 1 each request goes alone, and Redis decides about
    /// half as many in the same time.
    ///
    /// Requests with more checks than that go alone.
    ///
    /// # Errors
    ///
    /// A number that is not between 1 and 1024.
    pub fn together(mut self, checks: usize) -> Result<Self, SetupError> {
        const MOST: usize = 1024;
        if checks == 0 || checks > MOST {
            return Err(SetupError::new(
                SetupErrorKind::Setting,
                format!("{checks} checks together are not between 1 and {MOST}; 32 is usual"),
            ));
        }
        self.options.together = checks;
        Ok(self)
    }

    /// Follows one key in `one_in` exactly, while the service runs, and counts what was let through above the limit or refused
    /// falsely: in [`RedisStore::accuracy`] and the metrics. 1 000 is usual for a busy service; 1 follows every key. Without
    /// this, none.
    ///
    /// Every process that follows has to follow the same keys, so give all of them the same number.
    ///
    /// # Accuracy
    ///
    /// Of a sampled key, Redis keeps a second state for each rule, and is told of each decision after it was made: no request
    /// waits for that. A decision counts as wrong only if it would be wrong by more than 10 ms, of a slow bucket half the time
    /// of a unit, and the time that it took to tell it; and if it still looks so 200 ms later, when others have told what came before it.
    /// [How to read it](crate::guide::consistency#reading-the-meter).
    ///
    /// Not followed are logs, shadows, rules with a [cap on new keys](Self::cap_new_keys), and with
    /// [`Partition::ByRule`] the rules whose states are found only with those of another.
    ///
    /// # Errors
    ///
    /// One key in none.
    pub fn meter(mut self, one_in: u32) -> Result<Self, SetupError> {
        if one_in == 0 {
            return Err(SetupError::new(
                SetupErrorKind::Setting,
                "a meter of one key in 0 follows nothing; take 1000, or 1 for every key, or leave it off",
            ));
        }
        self.meter = Some(u64::from(one_in));
        Ok(self)
    }

    /// Tells Redis the time by this clock, for servers on which a script may not ask for it. Without this the server's own
    /// time counts, which is the same for every process.
    ///
    /// States are kept for `margin` longer: as long as the clocks of the processes and of the server may differ.
    ///
    /// # Accuracy
    ///
    /// Where clocks differ by `d`, a process that is behind may be told to wait by `d` longer, and one that is ahead is let
    /// through earlier by `d`. Of a fixed or a sliding window that is once, as long as `d` is below a window.
    ///
    /// Of the others it is again and again, because a denial by the one that is behind repairs what the other has written, as
    /// it would after a clock went back: a log and sub-buckets count as if the window were shorter by `d`, and a bucket as if
    /// each unit came back earlier by `d`. Where `d` is as long as a window, or as a bucket takes for a unit, nothing
    /// bounds what passes. Keep the clocks together to far less than that.
    ///
    /// What a process holds in [lots](tollgate_core::Consistency::Leased) it spends by its own clock: where that is behind, up
    /// to the reserve may pass on top, again with each life of a lot.
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
    pub fn without_learned_bounds(mut self) -> Self {
        self.learns = false;
        self
    }

    /// Does not tell Redis that this instance is there, nor which quotas its rules have. The shares of a quota while Redis
    /// fails are then cut for as many instances as the limiter or the layer was told, and no more; and nobody notices if
    /// another process has [another quota for the same rule](crate::guide::watching#two-quotas-of-one-rule).
    pub fn without_heartbeats(mut self) -> Self {
        self.heartbeats = false;
        self
    }

    /// Encrypts connections, as `rediss://` asks for: whom to trust, by which cryptography, with which certificate of one's
    /// own.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn tls(mut self, config: impl Into<Arc<rustls::ClientConfig>>) -> Self {
        self.options.security = Security::rustls(config);
        self
    }

    /// Begins to connect, and does not wait for it: the application starts while Redis is down. Until there is a
    /// connection, the rules' answers to a store failure apply.
    ///
    /// # Errors
    ///
    /// There is no tokio runtime, or the address wants an encrypted connection and nobody said whom to trust.
    pub fn connect(self) -> Result<RedisStore, SetupError> {
        let runtime = Handle::try_current().map_err(|_| {
            SetupError::new(
                SetupErrorKind::Runtime,
                "a store is connected by a task of tokio, and there is no runtime here; call it inside of #[tokio::main]",
            )
        })?;
        let keyspace = keyspace(&self.namespace, self.partition)?.with_keys(self.keys);
        let instance = format!("{:016x}", fastrand::u64(..));
        let observer = Arc::new(Observer::default());
        let deadline = self.options.deadline;
        let options = self.options.probing_with(&self.namespace, &instance);
        let backend = Backend::start(self.address, options, &observer)
            .map_err(|wrong| SetupError::new(SetupErrorKind::Address, wrong.to_string()))?;
        let shared = Shared {
            backend,
            deadline,
            keyspace,
            instances: Instances::default(),
            observer,
            clock: self.clock,
            caps: self.caps,
            meter: self.meter,
            runtime,
            denied: self.learns.then(DenyCache::new),
            under_way: UnderWay::default(),
            given_up: AtomicU64::new(0),
        };
        Ok(RedisStore::new(shared, self.heartbeats.then_some(instance)))
    }
}

fn keyspace(namespace: &str, partition: Partition) -> Result<Keyspace, SetupError> {
    Keyspace::new(namespace, partition)
        .map_err(|wrong| SetupError::new(SetupErrorKind::Keys, wrong.to_string()))
}

impl fmt::Debug for RedisStoreBuilder {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("address", &self.address)
            .field("namespace", &self.namespace)
            .field("partition", &self.partition)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
