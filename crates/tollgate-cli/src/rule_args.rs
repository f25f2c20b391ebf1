//! Documents of rules as the command line names them, and the names that a service's code binds for them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use clap::Args;
use tollgate::{Key, Quota, key::computed, key_list::KeyList};
use tollgate_redis::Secret;
use tollgate_rules::{Bindings, RuleDocument, RuleText, operators::StoredRules, redis::RedisRules};

use crate::{
    args::{KeyArgs, RedisArgs, SecretArgs},
    report::Failure,
};

/// Names that the service's code binds, which rules may use in addition to the built-in ones.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Names that the service's code binds")]
pub(crate) struct BoundNames {
    /// A name, and what it is in this request: key:NAME=VALUE, cost:NAME=UNITS, plan:NAME=PLAN, quota:NAME=LIMIT,
    /// condition:NAME=true, list:NAME=FILE; or only that it is bound, as key:NAME, also response-condition:NAME and
    /// response-cost:NAME. May be given several times.
    #[arg(long = "bind", value_name = "KIND:NAME[=VALUE]")]
    names: Vec<String>,

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
        let keys = self
            .names
            .iter()
            .filter_map(|it| it.strip_prefix("key:"))
            .map(parts);
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
        for bound in &self.names {
            let wrong = |why: &str| Failure::argument("bind", bound, why);
            let (kind, name) = bound.split_once(':').unwrap_or((bound, ""));
            let (name, value) = parts(name);
            bindings = match kind {
                _ if name.is_empty() => {
                    return Err(wrong(
                        "it has no name; write it as key:NAME or key:NAME=VALUE",
                    ));
                }
                "key" => {
                    let (value, bound) = (value.map(str::to_owned), name.to_owned());
                    let key = computed(move |head| {
                        let of_line = head.extensions.get::<FieldsOfLine>();
                        let field = of_line.and_then(|fields| fields.0.get(&bound));
                        field.or(value.as_ref()).map(Key::of)
                    });
                    bindings.key_with_text(name, key, |text| Some(Key::of(text)))
                }
                "cost" => {
                    let units = value.unwrap_or("1").parse::<u64>().map_err(|_| {
                        wrong("the units are a whole number, as --bind cost:words=5")
                    })?;
                    bindings.cost(name, move |_| units)
                }
                "plan" => {
                    let plan = value.map(str::to_owned);
                    bindings.plan(name, move |_| plan.clone())
                }
                "quota" => {
                    let quota = value
                        .map(str::parse::<Quota>)
                        .transpose()
                        .map_err(|why| wrong(&why.to_string()))?;
                    bindings.quota(name, move |_| quota)
                }
                "condition" => {
                    let holds = value
                        .unwrap_or("false")
                        .parse::<bool>()
                        .map_err(|_| wrong("it is true or false"))?;
                    bindings.condition(name, move |_| holds)
                }
                "list" => {
                    let list = match secret {
                        Some(secret) if self.hashed_lists => Bindings::hashed_list(name, secret),
                        _ => KeyList::new(name),
                    };
                    if let Some(path) = value {
                        let text =
                            std::fs::read_to_string(path).map_err(|why| wrong(&why.to_string()))?;
                        let set = list.set(text.lines());
                        set.map_err(|wrong| Failure::usage(format!("{path}: {wrong}")))?;
                    }
                    bindings.list(&list)
                }
                // This program sees no response.
                "response-condition" => bindings.response_condition(name, |_| true),
                "response-cost" => bindings.response_cost(name, |_| None),
                _ => {
                    return Err(wrong(
                        "write it as key:NAME or key:NAME=VALUE; the others are cost, plan, quota, condition, list, response-condition \
                         and response-cost",
                    ));
                }
            };
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
    pub(crate) fn document(&self, secret: &SecretArgs) -> Result<RuleDocument, Failure> {
        let bindings = self.bound.bindings(secret.find()?.as_ref())?;
        document(self.path()?, &bindings)
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
            return self.rules.document(&self.redis.secret);
        }
        let shared = SharedRules::new(&self.redis, &self.rules.bound)?;
        let stored = shared.stored().await?;
        stored.map(|stored| stored.document).ok_or_else(|| {
            Failure::failed(
                "which rules? There are none in Redis; name a file or a folder by --rules or TOLLGATE_RULES",
            )
        })
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
        Ok(self.redis.stored(&self.bindings).await?)
    }
}

/// Reads rules, and says all that is wrong with them.
pub(crate) fn document(path: &Path, bindings: &Bindings) -> Result<RuleDocument, Failure> {
    Ok(RuleText::read_path(path)?.parse(bindings)?)
}
