//! Where the addresses of a host come from.

use std::{fmt, io, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::net::lookup_host;

use crate::connection::caught::caught;
#[cfg(test)]
use crate::connection::test_hosts;

/// Finds the addresses of hosts. By default the system does.
#[derive(Clone, Default)]
pub(crate) struct HostResolver(Option<Arc<Function>>);

type Function = dyn Fn(String, u16) -> Lookup + Send + Sync;
type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

impl HostResolver {
    pub(crate) fn new<F, L>(function: F) -> Self
    where
        F: Fn(String, u16) -> L + Send + Sync + 'static,
        L: Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    {
        Self(Some(Arc::new(move |host, port| {
            Box::pin(function(host, port))
        })))
    }

    /// The addresses of a host, in the order in which they are to be tried.
    pub(super) async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        #[cfg(test)]
        if let Some(addresses) = test_hosts::addresses(host) {
            return Ok(addresses);
        }
        match &self.0 {
            Some(function) => caught(async { function(host.to_owned(), port).await })
                .await
                .unwrap_or_else(|| Err(io::Error::other("the resolver has panicked"))),
            None => Ok(lookup_host((host, port)).await?.collect()),
        }
    }
}

impl fmt::Debug for HostResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "HostResolver(..)",
            None => "HostResolver(system)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_resolver_that_panics_has_found_nothing() {
        let at_once = HostResolver::new(|host, _| {
            assert!(host.is_empty(), "it is a test");
            async { Ok(Vec::new()) }
        });
        let later = HostResolver::new(|host, _| async move {
            assert!(host.is_empty(), "it is a test");
            Ok(Vec::new())
        });
        for resolver in [at_once, later] {
            let error = resolver.look_up("redis", 6379).await;
            let error = error.expect_err("it panics");
            assert_eq!(error.to_string(), "the resolver has panicked");
        }
    }
}
