//! Rate limits at the edge: the server that Envoy, nginx, Caddy, Traefik and HAProxy ask before they send a request on. It decides by
//! the rules of a [document](tollgate_rules), as services do, and counts where they count.
//!
//! Most users start the program `tollgate-server`; this crate is what is in it. Its two doors are Envoy's rate limit service over gRPC
//! and a check over HTTP. Each rebuilds the head of the request that the proxy asks about, and what decides it is the layer of a
//! service.

mod check;
mod descriptors;
mod listener;
mod metrics;
mod mistakes;
mod pages;
mod path;
#[doc(hidden)]
pub mod proto;
mod rls;
mod server;
mod settings;
mod tls;

pub use self::{
    metrics::install_metrics, mistakes::Mistakes, rls::answer_to, server::Server,
    settings::Settings,
};
