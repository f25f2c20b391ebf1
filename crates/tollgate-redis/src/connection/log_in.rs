//! Who logs in: the login of the address, or what a provider gives.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tollgate_core::sync::{Mutex, lock};

use crate::{
    connection::error::{ConnectError, ConnectErrorKind, caught},
    credentials::{Credentials, CredentialsProvider},
};

/// How long a provider may take. No request waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// However soon credentials expire, a connection logs in anew no more often than that.
const LEAST_LIFE: Duration = Duration::from_millis(100);

/// Where credentials come from, for all connections of a store. By default from the address.
#[derive(Clone, Default)]
pub(crate) struct CredentialsSource(Option<Arc<Source>>);

struct Source {
    provider: Box<dyn CredentialsProvider>,
    /// What it gave last, with when that is to be replaced. `None` where it does not expire.
    last: Mutex<Option<(Credentials, Instant)>>,
}

impl CredentialsSource {
    pub(crate) fn new(provider: impl CredentialsProvider) -> Self {
        Self(Some(Arc::new(Source {
            provider: Box::new(provider),
            last: Mutex::new(None),
        })))
    }

    /// Credentials that the provider gives now; `None` where those of the address are used for good.
    pub(super) async fn fetch(&self) -> Result<Option<Credentials>, ConnectError> {
        let Some(source) = &self.0 else {
            return Ok(None);
        };
        let failed = |why: &dyn fmt::Display| {
            let message = format!("no credentials: {why}");
            ConnectError::new(ConnectErrorKind::Credentials, message)
        };
        let answer = caught(async { source.provider.credentials().await });
        let credentials = match timeout(PATIENCE, answer).await {
            Ok(Some(Ok(credentials))) => credentials,
            Ok(Some(Err(error))) => return Err(failed(&error)),
            // What it said is not repeated: it may be a password.
            Ok(None) => return Err(failed(&"the provider has panicked")),
            Err(_) => return Err(failed(&format_args!("none came within {PATIENCE:?}"))),
        };
        *lock(&source.last) = credentials
            .expires_in
            .and_then(|lifetime| Instant::now().checked_add(due(lifetime, 0)))
            .map(|due| (credentials.clone(), due));
        Ok(Some(credentials))
    }

    /// As [`fetch`](Self::fetch), for a connection that lasts for a question: what was given last will do while it is good.
    pub(super) async fn known(&self) -> Result<Option<Credentials>, ConnectError> {
        let last = self
            .0
            .as_ref()
            .and_then(|source| lock(&source.last).clone());
        match last {
            Some((credentials, due)) if due > Instant::now() => Ok(Some(credentials)),
            _ => self.fetch().await,
        }
    }

    /// Credentials were refused, or it is unknown whether they were.
    pub(super) fn forget(&self) {
        if let Some(source) = &self.0 {
            *lock(&source.last) = None;
        }
    }
}

/// When credentials of this lifetime are to be replaced: after three quarters of it, or up to an eighth earlier, so that not
/// all connections log in anew together.
pub(super) fn due(lifetime: Duration, seed: u64) -> Duration {
    let early = (seed % 128) as f64 / 1024.0;
    lifetime.mul_f64(0.75 - early).max(LEAST_LIFE)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::Ready};

    use super::*;

    #[test]
    fn credentials_are_replaced_while_a_quarter_of_their_life_is_left() {
        let hour = Duration::from_secs(3_600);
        for seed in 0..1_000 {
            let due = due(hour, seed);
            assert!(
                due <= hour.mul_f64(0.75) && due > hour.mul_f64(0.62),
                "{due:?}"
            );
        }
        assert_eq!(due(Duration::ZERO, 7), LEAST_LIFE);
    }

    #[tokio::test]
    async fn a_provider_that_panics_has_given_no_credentials() {
        let source = CredentialsSource::new(|| -> Ready<Result<Credentials, Infallible>> {
            panic!("it is a test")
        });
        let why = source.fetch().await.expect_err("it has panicked");
        assert_eq!(why.to_string(), "no credentials: the provider has panicked");
    }
}
