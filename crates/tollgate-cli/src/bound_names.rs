//! Names that a service's code binds, and their values for one request.

use std::{collections::HashMap, path::PathBuf};

use clap::Args;
use tollgate::{Key, Quota, key::computed, key_list::KeyList};
use tollgate_redis::Secret;
use tollgate_rules::Bindings;

use crate::failure::Failure;

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

/// The plan of the request by the name that code has bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlansOfRequest(HashMap<String, String>);

/// The keys that a line of a log has by the name that code has bound.
#[derive(Clone, Debug)]
pub(crate) struct FieldsOfLine(pub(crate) Vec<(String, String)>);

impl PlansOfRequest {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl BoundNames {
    /// The keys, and whether each has a value.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&str, bool)> {
        pairs(&self.bind_key).map(|(name, value)| (name, value.is_some()))
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
        for (name, value) in pairs(&self.bind_key) {
            let (value, bound) = (value.map(str::to_owned), name.to_owned());
            let key = computed(move |head| {
                let of_line = head.extensions.get::<FieldsOfLine>();
                let mut fields = of_line.iter().flat_map(|fields| &fields.0);
                let field = fields
                    .find(|(name, _)| *name == bound)
                    .map(|(_, field)| field);
                field.or(value.as_ref()).map(Key::of)
            });
            bindings = bindings.key_with_text(name, key, |text| Some(Key::of(text)));
        }
        for (name, value) in pairs(&self.bind_cost) {
            let units = value.unwrap_or("1").parse::<u64>().map_err(|_| {
                Failure::usage(format!(
                    "--bind-cost {name}={}: the units are a whole number, as --bind-cost {name}=5",
                    value.unwrap_or_default()
                ))
            })?;
            bindings = bindings.cost(name, move |_| units);
        }
        for (name, _) in pairs(&self.bind_plan) {
            let bound = name.to_owned();
            bindings = bindings.plan(name, move |head| {
                head.extensions
                    .get::<PlansOfRequest>()?
                    .0
                    .get(&bound)
                    .cloned()
            });
        }
        for (name, value) in pairs(&self.bind_quota) {
            let quota = value.map(str::parse::<Quota>).transpose();
            let quota = quota.map_err(|wrong| {
                Failure::usage(format!(
                    "--bind-quota {name}={}: {wrong}",
                    value.unwrap_or_default()
                ))
            })?;
            bindings = bindings.quota(name, move |_| quota);
        }
        for (name, value) in pairs(&self.bind_condition) {
            let holds = match value.unwrap_or("false") {
                "true" => true,
                "false" => false,
                other => {
                    return Err(Failure::usage(format!(
                        "--bind-condition {name}={other}: it is true or false"
                    )));
                }
            };
            bindings = bindings.condition(name, move |_| holds);
        }
        for (name, path) in pairs(&self.bind_list) {
            let list = match secret {
                Some(secret) if self.hashed_lists => Bindings::hashed_list(name, secret),
                _ => KeyList::new(name),
            };
            if let Some(path) = path {
                let text = std::fs::read_to_string(path).map_err(|wrong| {
                    Failure::usage(format!("--bind-list {name}={path}: {wrong}"))
                })?;
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

    /// The plans of a request.
    pub(crate) fn plans(&self) -> PlansOfRequest {
        let pairs = pairs(&self.bind_plan);
        let plans = pairs.filter_map(|(name, plan)| Some((name.to_owned(), plan?.to_owned())));
        PlansOfRequest(plans.collect())
    }
}

fn pairs(all: &[String]) -> impl Iterator<Item = (&str, Option<&str>)> {
    all.iter().map(|pair| match pair.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (&**pair, None),
    })
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

impl SecretArgs {
    /// The secret, if there is one.
    pub(crate) fn find(&self) -> Result<Option<Secret>, Failure> {
        if self.secret_file.is_none() && std::env::var_os(&self.secret_env).is_none() {
            return Ok(None);
        }
        self.secret().map(Some)
    }

    /// The secret.
    pub(crate) fn secret(&self) -> Result<Secret, Failure> {
        let Some(path) = &self.secret_file else {
            return Secret::from_env(&self.secret_env)
                .map_err(|wrong| Failure::usage(format!("{wrong}; or name a --secret-file")));
        };
        let text = std::fs::read_to_string(path).map_err(|wrong| {
            Failure::usage(format!(
                "--secret-file {} cannot be read: {wrong}",
                path.display()
            ))
        })?;
        Secret::from_text(&text)
            .map_err(|wrong| Failure::usage(format!("--secret-file {}: {wrong}", path.display())))
    }
}
