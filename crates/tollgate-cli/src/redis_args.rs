//! Which Redis, and how the service writes to it.

use std::{fmt::Display, path::PathBuf, time::Duration};

use clap::Args;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tollgate_redis::{Address, Keys, Partition, RedisStore, Secret, SetupError};
use tollgate_rules::{
    AuditKind, Author,
    operators::Explanation,
    redis::{Certificates, RedisRules},
};

use crate::failure::Failure;

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
    redis: String,

    /// The namespace of the service.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_NAMESPACE")]
    pub(crate) namespace: String,

    /// For rediss://: the authorities that certificates may come from, in a PEM file. Default: those of the system.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CA")]
    ca: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

/// How the service writes keys.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyArgs {
    /// The service writes keys as they are: `Keys::plain`.
    #[arg(long)]
    plain_keys: bool,

    /// The partition of the service: one, key, or by-rule:NAME. Default: wherever a state may be, on a cluster too.
    #[arg(long, value_name = "PARTITION")]
    pub(crate) partition: Option<Partition>,
}

/// Where the secret of the service is. It is never an argument, which every user of the machine can read.
#[derive(Args, Clone, Debug)]
pub(crate) struct SecretArgs {
    /// The environment variable with the service's secret.
    #[arg(long, value_name = "VARIABLE", default_value = "TOLLGATE_SECRET")]
    secret_env: String,

    /// A file with the service's secret, in the place of the variable.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
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
    pub(crate) fn address(&self) -> Result<Address, Failure> {
        let address: Result<Address, SetupError> = self.redis.parse();
        address.map_err(|wrong| Failure::usage(format!("--redis: {wrong}")))
    }

    /// Whom an encrypted connection trusts. `None`: the address does not ask for encryption.
    pub(crate) fn certificates(&self) -> Result<Option<Certificates>, Failure> {
        let is_encrypted = self.address()?.parts().is_encrypted;
        if is_encrypted {
            // It may have been done before.
            let _ = default_provider().install_default();
        }
        let Some(file) = &self.ca else {
            return Ok(is_encrypted.then(Certificates::of_system));
        };
        if !is_encrypted {
            return Err(Failure::usage(
                "--ca is for encrypted connections; write the address as rediss://host",
            ));
        }
        let wrong = |why: &dyn Display| Failure::usage(format!("--ca {}: {why}", file.display()));
        let pem = std::fs::read(file).map_err(|why| wrong(&why))?;
        let trusted = Certificates::of_authorities(pem);
        trusted.client_config().map_err(|why| wrong(&why))?;
        Ok(Some(trusted))
    }

    /// The rules in Redis.
    pub(crate) fn rules(&self, secret: &Secret) -> Result<RedisRules, Failure> {
        Ok(match self.certificates()? {
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
            false => Keys::hashed(self.secret.secret()?),
        };
        let mut builder = RedisStore::builder(&*self.redis, &self.namespace, keys);
        if let Some(trusted) = self.certificates()? {
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

impl SecretArgs {
    /// The secret, if there is one.
    pub(crate) fn find(&self) -> Result<Option<Secret>, Failure> {
        let is_there = self.secret_file.is_some() || std::env::var_os(&self.secret_env).is_some();
        is_there.then(|| self.secret()).transpose()
    }

    /// The secret.
    pub(crate) fn secret(&self) -> Result<Secret, Failure> {
        let Some(path) = &self.secret_file else {
            return Secret::from_env(&self.secret_env)
                .map_err(|wrong| Failure::usage(format!("{wrong}; or name a --secret-file")));
        };
        let wrong = |why: String| Failure::usage(format!("--secret-file {}{why}", path.display()));
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|why| wrong(format!(" cannot be read: {why}")))?;
        Secret::from_text(&text).map_err(|why| wrong(format!(": {why}")))
    }
}
