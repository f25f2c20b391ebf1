//! Credentials that redis-rs streams.

use std::{
    error::Error,
    fmt,
    sync::{Arc, OnceLock},
};

use futures_core::Stream;
use redis::{BasicAuth, RedisError, RedisResult, StreamingCredentialsProvider};
use tokio::{sync::watch, task::AbortHandle};
use tollgate_core::{Pending, Step};

use crate::{
    address::Login,
    credentials::{Credentials, CredentialsProvider},
};

/// A [`StreamingCredentialsProvider`] of redis-rs, such as its `EntraIdCredentialsProvider`, as a provider for stores.
///
/// It is subscribed to once, by the first connection. The latest item is kept and logs in each new connection; and each new
/// item logs in anew on the connections that are open. An item that is an error changes nothing, unless there was none before:
/// then it is why there is no connection yet.
///
/// See the [module documentation](crate::redis_1#credentials).
pub struct StreamedCredentials(Arc<Subscription>);

struct Subscription {
    provider: Box<dyn StreamingCredentialsProvider>,
    /// What was given last, and the task that reads it, once there is one.
    begun: OnceLock<(watch::Receiver<Latest>, AbortHandle)>,
}

#[derive(Default)]
struct Latest {
    credentials: Option<Credentials>,
    error: Option<Arc<RedisError>>,
}

type BoxError = Box<dyn Error + Send + Sync>;

impl StreamedCredentials {
    /// Subscribes to this provider once a store connects.
    #[must_use]
    pub fn new(provider: impl StreamingCredentialsProvider + 'static) -> Self {
        Self(Arc::new(Subscription {
            provider: Box::new(provider),
            begun: OnceLock::new(),
        }))
    }
}

impl Subscription {
    /// The latest item, from the one subscription. Called by a task of a connection.
    fn latest(&self) -> watch::Receiver<Latest> {
        let (latest, _) = self.begun.get_or_init(|| {
            let (reported, latest) = watch::channel(Latest::default());
            let reader = tokio::spawn(read(self.provider.subscribe(), reported));
            (latest, reader.abort_handle())
        });
        latest.clone()
    }

    async fn credentials(&self) -> Result<Credentials, BoxError> {
        let mut latest = self.latest();
        let is_there = |latest: &Latest| latest.credentials.is_some() || latest.error.is_some();
        // Also where the stream has ended, what it gave last is there.
        let _ = latest.wait_for(is_there).await;
        let latest = latest.borrow();
        match (&latest.credentials, &latest.error) {
            (Some(credentials), _) => Ok(credentials.clone()),
            (None, Some(error)) => Err(Arc::clone(error).into()),
            (None, None) => Err("the stream of credentials has ended without any".into()),
        }
    }

    async fn replaced(&self, used: &Credentials) {
        let is_another = |latest: &Latest| {
            let credentials = latest.credentials.as_ref();
            credentials.is_some_and(|credentials| credentials != used)
        };
        if self.latest().wait_for(is_another).await.is_err() {
            std::future::pending().await
        }
    }
}

impl CredentialsProvider for StreamedCredentials {
    fn credentials(&self) -> Step<Result<Credentials, BoxError>> {
        let subscription = Arc::clone(&self.0);
        Step::Wait(Pending::new(
            async move { subscription.credentials().await },
        ))
    }

    fn replaced(&self, used: &Credentials) -> Step<()> {
        let (subscription, used) = (Arc::clone(&self.0), used.clone());
        Step::Wait(Pending::new(
            async move { subscription.replaced(&used).await },
        ))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some((_, reader)) = self.begun.get() {
            reader.abort();
        }
    }
}

/// Keeps what a stream gives until it ends.
async fn read(
    mut stream: std::pin::Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send>>,
    reported: watch::Sender<Latest>,
) {
    while let Some(item) = std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
        reported.send_modify(|latest| match item {
            Ok(auth) => {
                let user = auth.username();
                latest.credentials = Some(Credentials {
                    login: Login {
                        user: (!user.is_empty()).then(|| user.to_owned()),
                        password: Some(auth.password().to_owned()),
                    },
                    expires_in: None,
                });
                latest.error = None;
            }
            Err(error) => latest.error = Some(Arc::new(error)),
        });
    }
}

/// Without what it has.
impl fmt::Debug for StreamedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamedCredentials(..)")
    }
}
