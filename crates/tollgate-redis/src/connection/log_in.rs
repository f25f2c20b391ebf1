//! Who logs in: the login of the address, or what a provider gives; and logging in anew while a connection is open.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    select,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    address::{Access, Login},
    connection::{
        backoff::Backoff,
        call::Waiting,
        connect_error::ConnectError,
        event::{EventSink, NodeEvent},
        queue::Queue,
        request::Request,
    },
    credentials::{Credentials, CredentialsProvider},
};

/// How long a provider may take. No request waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bounds of the pauses after credentials that did not come, or were refused.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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

    /// What a connection says first. The provider is asked, if there is one; its credentials come along.
    pub(super) async fn access(
        &self,
        access: &Access,
    ) -> Result<(Access, Option<Credentials>), ConnectError> {
        let Some(source) = &self.0 else {
            return Ok((access.clone(), None));
        };
        let credentials = source.fetch().await?;
        Ok((with_login(access, &credentials), Some(credentials)))
    }

    /// As [`access`](Self::access), for a connection that lasts for a question. What was given last will do while it is good.
    pub(super) async fn brief_access(&self, access: &Access) -> Result<Access, ConnectError> {
        let Some(source) = &self.0 else {
            return Ok(access.clone());
        };
        let last = source.last().clone();
        let good = last.filter(|(_, due)| *due > Instant::now());
        let credentials = match good {
            Some((credentials, _)) => credentials,
            None => source.fetch().await?,
        };
        Ok(with_login(access, &credentials))
    }

    /// Credentials were not of use, or nobody knows.
    pub(super) fn forget(&self) {
        if let Some(source) = &self.0 {
            *source.last() = None;
        }
    }

    /// Logs in anew on an open connection whenever credentials are replaced or about to expire. Never ends.
    ///
    /// A log-in has as long as `deadline`. `seed` spreads those of several connections.
    pub(super) async fn renew(
        &self,
        used: Option<Credentials>,
        queue: &Queue,
        events: &EventSink,
        (deadline, seed): (Duration, u64),
    ) {
        let (Some(source), Some(mut used)) = (&self.0, used) else {
            return std::future::pending().await;
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed);
        loop {
            let until_due = used.expires_in.map(|lifetime| due(lifetime, seed));
            select! {
                () = async { source.provider.replaced(&used).await } => {}
                () = wait(until_due) => {}
            }
            loop {
                match source.log_in_anew(queue, deadline).await {
                    Ok(credentials) => {
                        used = credentials;
                        backoff.reset();
                        events.tell(&NodeEvent::LoggedInAnew);
                        break;
                    }
                    Err(why) => {
                        let why = Arc::clone(why.message());
                        events.tell(&NodeEvent::NotLoggedInAnew(why));
                        // Half of it at least: a token service that is in trouble is not to be asked without end.
                        let pause = backoff.next(Instant::now());
                        sleep(FIRST_PAUSE + pause).await;
                    }
                }
            }
        }
    }
}

impl Source {
    async fn fetch(&self) -> Result<Credentials, ConnectError> {
        let failed = |why: &dyn fmt::Display| ConnectError::no_credentials(why);
        let answer = async { self.provider.credentials().await };
        let credentials = match timeout(PATIENCE, answer).await {
            Ok(Ok(credentials)) => credentials,
            Ok(Err(error)) => return Err(failed(&error)),
            Err(_) => return Err(failed(&format_args!("none came within {PATIENCE:?}"))),
        };
        *self.last() = credentials
            .expires_in
            .and_then(|lifetime| Instant::now().checked_add(due(lifetime, 0)))
            .map(|due| (credentials.clone(), due));
        Ok(credentials)
    }

    async fn log_in_anew(
        &self,
        queue: &Queue,
        deadline: Duration,
    ) -> Result<Credentials, ConnectError> {
        let credentials = self.fetch().await?;
        if let Some(command) = auth(&credentials.login) {
            let deadline = Instant::now() + deadline;
            let (waiting, call) = Waiting::new(Request::command(&command), deadline);
            let sent = queue.push(waiting);
            let answer = match sent {
                Ok(()) => call.await,
                Err(error) => Err(error),
            };
            if let Err(error) = answer {
                *self.last() = None;
                return Err(ConnectError::of_server("AUTH", &error.to_string()));
            }
        }
        Ok(credentials)
    }

    /// Each change under the lock is one step, so that a poisoned lock guards whole data.
    fn last(&self) -> MutexGuard<'_, Option<(Credentials, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The command that logs in; `None` without a password.
pub(super) fn auth(login: &Login) -> Option<Vec<&str>> {
    let (user, password) = login.parts()?;
    Some(if login.names_a_user() {
        vec!["AUTH", user, password]
    } else {
        vec!["AUTH", password]
    })
}

fn with_login(access: &Access, credentials: &Credentials) -> Access {
    Access {
        login: credentials.login.clone(),
        ..access.clone()
    }
}

/// When credentials of this lifetime are to be replaced: after three quarters of it, or up to an eighth earlier, so that not
/// all connections log in anew together.
fn due(lifetime: Duration, seed: u64) -> Duration {
    let early = (seed % 128) as f64 / 1024.0;
    lifetime.mul_f64(0.75 - early).max(LEAST_LIFE)
}

async fn wait(time: Option<Duration>) {
    // What an instant cannot hold is for ever.
    match time.and_then(|time| Instant::now().checked_add(time)) {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for CredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "CredentialsSource(provider)",
            None => "CredentialsSource(address)",
        })
    }
}

#[cfg(test)]
mod tests {
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
}
