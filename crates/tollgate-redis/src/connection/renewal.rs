//! Logging in anew while a connection is open.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    connection::{
        backoff::Backoff, call::Waiting, connect_error::ConnectError, event::NodeEvent,
        log_in::due, options::NodeOptions, queue::Queue, request::Request,
    },
    credentials::Credentials,
};

/// The bounds of the pauses after credentials that did not come, or were refused.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Logs in anew on an open connection, whenever its credentials are about to expire. Never ends. `used` are those of the connection,
/// whose calls go through `queue`.
pub(super) async fn renew(used: Option<Credentials>, queue: &Queue, options: &NodeOptions) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, options.seed);
    let mut lifetime = used.and_then(|used| used.expires_in);
    // What an instant cannot hold is for ever.
    while let Some(until) =
        lifetime.and_then(|life| Instant::now().checked_add(due(life, options.seed)))
    {
        sleep_until(until).await;
        let anew = loop {
            match log_in(queue, options).await {
                Ok(anew) => break anew,
                Err(why) => {
                    options.tell(&NodeEvent::NotLoggedInAnew(why.message()));
                    // A token service that fails is not to be called without end.
                    sleep(FIRST_PAUSE + backoff.next(Instant::now())).await;
                }
            }
        };
        lifetime = anew.and_then(|anew| anew.expires_in);
        backoff.reset();
        options.tell(&NodeEvent::LoggedInAnew);
    }
    std::future::pending().await
}

/// From Redis 8.2 on a log-in that is refused ends the earlier one. Then the next call is refused, and a connection is made anew.
async fn log_in(queue: &Queue, options: &NodeOptions) -> Result<Option<Credentials>, ConnectError> {
    let credentials = options.credentials.fetch().await?;
    if let Some(command) = (credentials.as_ref()).and_then(|credentials| credentials.login.auth()) {
        let deadline = Instant::now() + options.deadline;
        let (waiting, call) = Waiting::new(Request::command(&command), deadline);
        let answer = match queue.push(waiting) {
            Ok(()) => call.await,
            Err(error) => Err(error),
        };
        if let Err(error) = answer {
            options.credentials.forget();
            return Err(ConnectError::of_server("AUTH", &error.to_string()));
        }
    }
    Ok(credentials)
}
