//! Which Redis, and how the service writes to it.

use std::time::Duration;

use clap::Args;
use tollgate_redis::{Address, Keys, Partition, RedisStore, Secret, SetupError};
use tollgate_rules::{AuditKind, Author, operators::Explanation, redis::RedisRules};

use crate::{bound_names::SecretArgs, failure::Failure, trust::TrustArgs};

/// How long Redis may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_PATIENCE: Duration = Duration::from_secs(4);

/// Which Redis, and how the service writes to it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Redis")]
pub(crate) struct RedisArgs {
    /// Its address, as the service has it: redis://host, redis-sentinel://…, redis-cluster://… or unix://path; with
    /// rediss instead of redis it is encrypted.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "REDIS_URL",
        hide_env_values = true
    )]
    pub(crate) redis: String,

    /// The namespace of the service.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_NAMESPACE")]
    pub(crate) namespace: String,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

/// How the service writes keys.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    /// The service writes keys as they are: `Keys::plain`.
    #[arg(long)]
    pub(crate) plain_keys: bool,

    /// The partition of the service: one, key, or by-rule:NAME. Default: wherever a state may be, on a cluster too.
    #[arg(long, value_name = "PARTITION")]
    pub(crate) partition: Option<Partition>,
}

impl KeyArgs {
    /// The partition of the service, for what changes a state.
    pub(crate) fn one_partition(&self, redis: &RedisArgs) -> Result<Partition, Failure> {
        match (&self.partition, redis.redis.contains("-cluster://")) {
            (Some(partition), _) => Ok(partition.clone()),
            (None, false) => Ok(Partition::One),
            (None, true) => Err(Failure::usage(
                "it happens where the service has its states: say by which --partition, one or key or by-rule:NAME",
            )),
        }
    }
}

impl RedisArgs {
    pub(crate) fn secret(&self) -> Result<Secret, Failure> {
        self.secret.secret()
    }

    pub(crate) fn address(&self) -> Result<Address, Failure> {
        let address: Result<Address, SetupError> = self.redis.parse();
        address.map_err(|wrong| Failure::usage(format!("--redis: {wrong}")))
    }

    /// The rules in Redis.
    pub(crate) fn rules(&self, secret: &Secret) -> Result<RedisRules, Failure> {
        Ok(match self.trust.certificates(&self.address()?)? {
            None => RedisRules::new(&*self.redis, &self.namespace, secret)?,
            Some(it) => RedisRules::with_tls(&*self.redis, &self.namespace, secret, it)?,
        })
    }

    /// The states in Redis, by one partition.
    pub(crate) async fn store(
        &self,
        keys: &KeyArgs,
        partition: Partition,
    ) -> Result<RedisStore, Failure> {
        let keys = match keys.plain_keys {
            true => Keys::plain(),
            false => Keys::hashed(self.secret()?),
        };
        let mut builder = RedisStore::builder(&*self.redis, &self.namespace, keys);
        if let Some(trusted) = self.trust.certificates(&self.address()?)? {
            builder = builder.tls(trusted.client_config()?);
        }
        // It is no instance of the service, whose shares it must not make smaller.
        let builder = builder
            .without_heartbeats()
            .partition(partition)
            .deadline(PATIENCE)
            // Its end has to be seen before ours: it says what was waited for.
            .connect_timeout(CONNECT_PATIENCE);
        builder.connect_within(PATIENCE).await.map_err(|wrong| {
            Failure::failed(format!(
                "{wrong}\n`tollgate doctor` says what is wrong with a Redis"
            ))
        })
    }

    /// Writes what was done to a client into the audit. Keys without a secret have none.
    pub(crate) async fn record(
        &self,
        kind: AuditKind,
        client: &Explanation,
        what: &str,
        author: &Author,
    ) -> Result<(), Failure> {
        let Some(secret) = self.secret.find()? else {
            return Ok(());
        };
        let redis = self.rules(&secret)?;
        let record = redis.record(kind, &client.rule, client.key_hash, what, author);
        Ok(self.in_time(record).await??)
    }

    /// What it answers in time.
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::time::timeout(PATIENCE, answer).await.map_err(|_| {
            Failure::failed(format!(
                "Redis has not answered within {PATIENCE:?}; is the address right, and does the server answer redis-cli?"
            ))
        })
    }
}
