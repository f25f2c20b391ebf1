//! Documents of rules as the command line names them, and the names that a service's code binds for them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use clap::Args;
use tokio::task::spawn_blocking;
use tollgate::{Consistency, Key, Limiter, Quota, key::computed, key_list::KeyList};
use tollgate_redis::{Partition, RedisStore, Secret};
use tollgate_rules::{
    Bindings, DocumentError, RuleDocument, RuleText, operators::StoredRules, redis::RedisRules,
};

use crate::{
    args::{KeyArgs, RedisArgs, SecretArgs},
    report::Failure,
};

/// Names that the service's code binds, which rules may use in addition to the built-in ones.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Names that the service's code binds")]
pub(crate) struct BoundNames {
    /// A key, `by = "NAME"`, and its value in this request.
    #[arg(long, value_name = "NAME[=VALUE]")]
    bind_key: Vec<String>,

    /// A cost, `cost = "NAME"`, and its units in this request; default: 1.
    #[arg(long, value_name = "NAME[=UNITS]")]
    bind_cost: Vec<String>,

    /// A plan, `plan = "NAME"`, and the plan of this request.
    #[arg(long, value_name = "NAME[=PLAN]")]
    bind_plan: Vec<String>,

    /// A quota, `quota_by = "NAME"`, and that of this request, as 100/min.
    #[arg(long, value_name = "NAME[=LIMIT]")]
    bind_quota: Vec<String>,

    /// A condition, `when = "NAME"`, and whether it holds; default: false.
    #[arg(long, value_name = "NAME[=BOOLEAN]")]
    bind_condition: Vec<String>,

    /// A condition on the response, `count_if = "NAME"`.
    #[arg(long, value_name = "NAME")]
    bind_response_condition: Vec<String>,

    /// A cost by the response, `cost_by_response = "NAME"`.
    #[arg(long, value_name = "NAME")]
    bind_response_cost: Vec<String>,

    /// A list of keys and networks, `when = { in_list = "NAME", by = .. }`, and its file.
    #[arg(long, value_name = "NAME[=FILE]")]
    bind_list: Vec<String>,

    /// The lists are of hashes, which `tollgate key hash` makes with the service's secret.
    #[arg(long)]
    hashed_lists: bool,

    /// Who reads the rules: a service, or tollgate-server at the edge.
    #[arg(long, value_name = "SIDE", default_value = "service", value_parser = ["service", "edge"])]
    at: String,
}

/// The keys that a line of a log has, by the name that code has bound.
#[derive(Clone, Debug)]
pub(crate) struct FieldsOfLine(pub(crate) HashMap<String, String>);

impl BoundNames {
    /// The keys, and whether each has a value.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, bool)> {
        let keys = self.bind_key.iter().map(|key| parts(key));
        keys.map(|(name, value)| (name, value.is_some()))
    }

    /// The bindings, with the secret for overrides that name a client by its hash.
    pub(crate) fn bindings(&self, secret: Option<&Secret>) -> Result<Bindings, Failure> {
        let mut bindings = Bindings::new();
        if let Some(secret) = secret {
            bindings = bindings.secret(secret);
        }
        if self.at == "edge" {
            bindings = bindings.at_edge();
        }
        for (name, value) in self.bind_key.iter().map(|key| parts(key)) {
            let (value, bound) = (value.map(str::to_owned), name.to_owned());
            let key = computed(move |head| {
                let of_line = head.extensions.get::<FieldsOfLine>();
                let field = of_line.and_then(|fields| fields.0.get(&bound));
                field.or(value.as_ref()).map(Key::of)
            });
            bindings = bindings.key_with_text(name, key, |text| Some(Key::of(text)));
        }
        for cost in &self.bind_cost {
            let (name, value) = parts(cost);
            let units = value.unwrap_or("1").parse::<u64>().map_err(|_| {
                let why = format!("the units are a whole number, as --bind-cost {name}=5");
                Failure::argument("bind-cost", cost, why)
            })?;
            bindings = bindings.cost(name, move |_| units);
        }
        for (name, plan) in self.bind_plan.iter().map(|plan| parts(plan)) {
            let plan = plan.map(str::to_owned);
            bindings = bindings.plan(name, move |_| plan.clone());
        }
        for quota in &self.bind_quota {
            let (name, value) = parts(quota);
            let of_request = value.map(str::parse::<Quota>).transpose();
            let of_request =
                of_request.map_err(|why| Failure::argument("bind-quota", quota, why))?;
            bindings = bindings.quota(name, move |_| of_request);
        }
        for condition in &self.bind_condition {
            let (name, value) = parts(condition);
            let holds = value.unwrap_or("false").parse::<bool>();
            let holds = holds.map_err(|_| {
                Failure::argument("bind-condition", condition, "it is true or false")
            })?;
            bindings = bindings.condition(name, move |_| holds);
        }
        for file in &self.bind_list {
            let (name, path) = parts(file);
            let list = match secret {
                Some(secret) if self.hashed_lists => Bindings::hashed_list(name, secret),
                _ => KeyList::new(name),
            };
            if let Some(path) = path {
                let text = std::fs::read_to_string(path)
                    .map_err(|why| Failure::argument("bind-list", file, why))?;
                let set = list.set(text.lines());
                set.map_err(|wrong| Failure::usage(format!("{path}: {wrong}")))?;
            }
            bindings = bindings.list(&list);
        }
        // This program sees no response.
        for name in &self.bind_response_condition {
            bindings = bindings.response_condition(name, |_| true);
        }
        for name in &self.bind_response_cost {
            bindings = bindings.response_cost(name, |_| None);
        }
        Ok(bindings)
    }
}

/// A name, and its value if it has one.
fn parts(bound: &str) -> (&str, Option<&str>) {
    match bound.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (bound, None),
    }
}

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
        if self.rules.rules.is_some() {
            return self.rules.document(&self.redis.secret).await;
        }
        let shared = SharedRules::new(&self.redis, &self.rules.bound)?;
        let stored = shared.stored().await?;
        stored.map(|stored| stored.document).ok_or_else(|| {
            Failure::usage(
                "which rules? There are none in Redis; name a file or a folder by --rules or TOLLGATE_RULES",
            )
        })
    }

    /// All rules of a document on their states. Whatever processes decide by themselves, it asks Redis.
    pub(crate) async fn limiter(
        &self,
        document: &RuleDocument,
        partition: Partition,
    ) -> Result<(Limiter, RedisStore), Failure> {
        let store = self.redis.store(&self.keys, partition).await?;
        let rules = document.limiter_rules().into_iter();
        let exact = rules.map(|rule| rule.consistency(Consistency::Exact));
        let limiter = Limiter::new(store.clone(), exact).map_err(Failure::failed)?;
        Ok((limiter, store))
    }
}

/// The rules in Redis, and how a command reads them.
pub(crate) struct SharedRules<'a> {
    pub(crate) args: &'a RedisArgs,
    pub(crate) redis: RedisRules,
    pub(crate) bindings: Bindings,
}

impl<'a> SharedRules<'a> {
    pub(crate) fn new(args: &'a RedisArgs, bound: &BoundNames) -> Result<Self, Failure> {
        let secret = args.secret.secret()?;
        Ok(Self {
            args,
            redis: args.rules(&secret)?,
            bindings: bound.bindings(Some(&secret))?,
        })
    }

    /// What is stored. `None`: there are no rules.
    pub(crate) async fn stored(&self) -> Result<Option<StoredRules>, Failure> {
        let stored = self.redis.stored(&self.bindings);
        Ok(self.args.in_time(stored).await??)
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
