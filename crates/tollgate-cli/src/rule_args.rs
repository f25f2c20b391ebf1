//! A document of rules, as the command line names it.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio::task::spawn_blocking;
use tollgate::{Consistency, Limiter};
use tollgate_redis::{Partition, RedisStore};
use tollgate_rules::{Bindings, DocumentError, RuleDocument, RuleText};

use crate::{
    bound_names::{BoundNames, SecretArgs},
    failure::Failure,
    redis_args::{KeyArgs, RedisArgs},
};

/// Rules, with the names that code binds for them.
#[derive(Args, Clone, Debug)]
pub(crate) struct RuleArgs {
    /// The rules: a file, or a folder of files. Commands about keys take those that are stored in Redis if there are none here.
    #[arg(long, value_name = "PATH", env = "TOLLGATE_RULES")]
    pub(crate) rules: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) bound: BoundNames,
}

impl RuleArgs {
    pub(crate) async fn document(&self, secret: &SecretArgs) -> Result<RuleDocument, Failure> {
        let bindings = self.bound.bindings(secret.find()?.as_ref())?;
        document(self.path()?, &bindings).await
    }

    /// Where they are, for a command that reads no Redis.
    pub(crate) fn path(&self) -> Result<&Path, Failure> {
        self.rules.as_deref().ok_or_else(|| {
            Failure::usage("which rules? Name a file or a folder by --rules or TOLLGATE_RULES")
        })
    }
}

/// Rules, the Redis that has their states, and how the service writes them there.
#[derive(Args, Debug)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,

    #[command(flatten)]
    pub(crate) redis: RedisArgs,

    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

impl StateArgs {
    /// The rules that are named, or those in Redis with what operators set.
    pub(crate) async fn document(&self) -> Result<RuleDocument, Failure> {
        let (rules, redis) = (&self.rules, &self.redis);
        if rules.rules.is_some() {
            return rules.document(&redis.secret).await;
        }
        let secret = redis.secret()?;
        let bindings = rules.bound.bindings(Some(&secret))?;
        let stored = redis.rules(&secret)?;
        let stored = redis.in_time(stored.stored(&bindings)).await??;
        stored.map(|stored| stored.document.clone()).ok_or_else(|| {
            Failure::usage(
                "which rules? There are none in Redis; name a file or a folder by --rules or TOLLGATE_RULES",
            )
        })
    }

    /// All rules of a document on their states. Whatever processes decide by themselves, it asks Redis.
    pub(crate) async fn limiter(
        &self,
        document: &RuleDocument,
    ) -> Result<(Limiter, RedisStore), Failure> {
        let partition = self.keys.partition.clone().unwrap_or(Partition::One);
        let store = self.redis.store(&self.keys, partition).await?;
        let rules = document.limiter_rules().into_iter();
        let exact = rules.map(|rule| rule.consistency(Consistency::Exact));
        let limiter = Limiter::new(store.clone(), exact).map_err(Failure::failed)?;
        Ok((limiter, store))
    }
}

/// Reads a file with what it includes, or all files of a folder.
pub(crate) async fn read(path: &Path) -> Result<RuleText, DocumentError> {
    let path = path.to_owned();
    spawn_blocking(move || RuleText::read_path(path))
        .await
        // It only ends early if it panics, which is then shown.
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Reads rules, and says all that is wrong with them.
pub(crate) async fn document(path: &Path, bindings: &Bindings) -> Result<RuleDocument, Failure> {
    Ok(read(path).await?.parse(bindings)?)
}
