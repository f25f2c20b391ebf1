//! Where `top` and `watch` look.

use std::env;

use clap::Args;

use crate::{
    doctor::{Places, Server},
    failure::Failure,
    trust::TrustArgs,
};

/// A service's metrics, or a Redis. What the command line says comes before what the environment says.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// The page of a service's metrics, as Prometheus scrapes it. [env: TOLLGATE_METRICS]
    #[arg(long, value_name = "URL")]
    metrics: Option<String>,

    /// Or a Redis, redis://host: one server. [env: REDIS_URL]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "metrics")]
    redis: Option<String>,

    /// The namespace in Redis.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_NAMESPACE")]
    namespace: Option<String>,

    #[command(flatten)]
    trust: TrustArgs,
}

/// Where to look.
#[derive(Debug)]
pub(crate) enum Source {
    Metrics(String),
    Redis(Box<Server>, String),
}

impl SourceArgs {
    pub(crate) async fn open(&self) -> Result<Source, Failure> {
        let of_environment = |name: &str| env::var(name).ok().filter(|text| !text.is_empty());
        let (mut metrics, mut redis) = (self.metrics.clone(), self.redis.clone());
        if metrics.is_none() && redis.is_none() {
            metrics = of_environment("TOLLGATE_METRICS");
            redis = of_environment("REDIS_URL");
        }
        match (metrics, &redis, &self.namespace) {
            (Some(url), _, _) => Ok(Source::Metrics(url)),
            (None, Some(address), Some(namespace)) => {
                let Places::Server(place) = Places::read(address, &self.trust)? else {
                    return Err(Failure::usage(
                        "--redis: this looks at one server; give the address of a master, redis://host, or look at a service by --metrics",
                    ));
                };
                let server = Server::connect(&place).await?;
                Ok(Source::Redis(Box::new(server), namespace.clone()))
            }
            (None, Some(_), None) => Err(Failure::usage(
                "which namespace? Give --namespace, that of the service",
            )),
            (None, None, _) => Err(Failure::usage(
                "what is to be watched? Give --metrics http://127.0.0.1:3000/metrics of a service, or --redis and --namespace",
            )),
        }
    }
}
