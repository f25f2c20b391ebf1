//! Where `top` and `watch` look.

use clap::Args;

use crate::{
    doctor::{Place, Places, Server},
    failure::Failure,
};

/// A service's metrics, or a Redis.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// The page of a service's metrics, as Prometheus scrapes it.
    #[arg(long, value_name = "URL", env = "TOLLGATE_METRICS")]
    metrics: Option<String>,

    /// Or a Redis, redis://host: one server.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "REDIS_URL",
        hide_env_values = true,
        conflicts_with = "metrics"
    )]
    redis: Option<String>,

    /// The namespace in Redis.
    #[arg(long, value_name = "NAME", env = "TOLLGATE_NAMESPACE")]
    namespace: Option<String>,
}

/// Where to look.
#[derive(Debug)]
pub(crate) enum Source {
    Metrics(String),
    Redis(Box<Server>, String),
}

impl SourceArgs {
    pub(crate) async fn open(&self) -> Result<Source, Failure> {
        match (&self.metrics, &self.redis, &self.namespace) {
            (Some(url), _, _) => Ok(Source::Metrics(url.clone())),
            (None, Some(address), Some(namespace)) => {
                let Places::Server(place) = Places::read(address)? else {
                    return Err(Failure::usage(
                        "--redis: this looks at one server; give the address of a master, redis://host",
                    ));
                };
                let place: Place = place;
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
