//! Logging in anew while a connection is open.

use std::{sync::Arc, time::Duration};

use tokio::{
    select,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    address::{Access, Place},
    connection::{
        auth::auth,
        backoff::Backoff,
        call::Waiting,
        connect::Connector,
        connect_error::{ConnectError, ConnectErrorKind},
        event::NodeEvent,
        log_in::{due, with_login},
        options::NodeOptions,
        queue::Queue,
        request::Request,
    },
    credentials::Credentials,
};

/// The bounds of the pauses after credentials that did not come, or were refused.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Logs in anew on an open connection to a server, whenever credentials are replaced or about to expire.
pub(super) struct Renewal<'a> {
    pub(super) connector: &'a Connector,
    pub(super) place: &'a Place,
    pub(super) access: &'a Access,
    pub(super) options: &'a NodeOptions,
}

impl Renewal<'_> {
    /// Never ends. `used` are the credentials of the connection, whose calls go through `queue`.
    pub(super) async fn run(&self, used: Option<Credentials>, queue: &Queue) {
        let Some(mut used) = used else {
            return std::future::pending().await;
        };
        let options = self.options;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, options.seed);
        loop {
            let until_due = used.expires_in.map(|lifetime| due(lifetime, options.seed));
            let replaced = async {
                while let Err(why) = options.credentials.replaced(&used).await {
                    self.failed(&why, &mut backoff).await;
                }
            };
            select! {
                () = replaced => {}
                () = wait(until_due) => {}
            }
            loop {
                match self.log_in(queue).await {
                    Ok(credentials) => {
                        used = credentials.unwrap_or(used);
                        backoff.reset();
                        options.events.tell(&NodeEvent::LoggedInAnew);
                        break;
                    }
                    Err(why) => self.failed(&why, &mut backoff).await,
                }
            }
        }
    }

    /// Reports it, and pauses: a token service that fails is not to be called without end.
    async fn failed(&self, why: &ConnectError, backoff: &mut Backoff) {
        let why = Arc::clone(why.message());
        let event = NodeEvent::NotLoggedInAnew(why);
        self.options.events.tell(&event);
        sleep(FIRST_PAUSE + backoff.next(Instant::now())).await;
    }

    async fn log_in(&self, queue: &Queue) -> Result<Option<Credentials>, ConnectError> {
        let Some(credentials) = self.options.credentials.fetch().await else {
            return Ok(None);
        };
        let credentials = credentials?;
        let refused = |error| {
            self.options.credentials.forget();
            Err(error)
        };
        if let Err(error) = self.try_first(&credentials).await {
            return refused(error);
        }
        if let Some(command) = auth(&credentials.login) {
            let deadline = Instant::now() + self.options.deadline;
            let (waiting, call) = Waiting::new(Request::command(&command), deadline);
            let answer = match queue.push(waiting) {
                Ok(()) => call.await,
                Err(error) => Err(error),
            };
            if let Err(error) = answer {
                return refused(ConnectError::of_server("AUTH", &error.to_string()));
            }
        }
        Ok(Some(credentials))
    }

    /// Tries credentials on a connection of their own: from Redis 8.2 on, a log-in that is refused ends the earlier one of its
    /// connection.
    ///
    /// An error is a refusal. A server that accepts no further connection has refused nothing.
    async fn try_first(&self, credentials: &Credentials) -> Result<(), ConnectError> {
        let access = with_login(self.access, credentials);
        let connected = self.connector.connect(self.place, &access, &[]);
        match timeout(self.options.connect_timeout(), connected).await {
            Ok(Err(error)) if error.kind() == ConnectErrorKind::Login => Err(error),
            _ => Ok(()),
        }
    }
}

async fn wait(time: Option<Duration>) {
    // What an instant cannot hold is for ever.
    match time.and_then(|time| Instant::now().checked_add(time)) {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
