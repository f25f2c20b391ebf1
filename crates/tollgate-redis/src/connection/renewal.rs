//! Logging in anew while a connection is open.

use std::time::Duration;

use tokio::{
    select,
    time::{Instant, sleep, sleep_until},
};

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

/// Logs in anew on an open connection, whenever credentials are replaced or about to expire. Never ends. `used` are the
/// credentials of the connection, whose calls go through `queue`.
pub(super) async fn renew(used: Option<Credentials>, queue: &Queue, options: &NodeOptions) {
    let Some(mut used) = used else {
        return std::future::pending().await;
    };
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, options.seed);
    loop {
        let until_due = used.expires_in.map(|lifetime| due(lifetime, options.seed));
        let replaced = async {
            while let Err(why) = options.credentials.replaced(&used).await {
                failed(&why, &mut backoff, options).await;
            }
        };
        select! {
            () = replaced => {}
            () = wait(until_due) => {}
        }
        loop {
            match log_in(queue, options).await {
                Ok(credentials) => {
                    used = credentials.unwrap_or(used);
                    backoff.reset();
                    options.tell(&NodeEvent::LoggedInAnew);
                    break;
                }
                Err(why) => failed(&why, &mut backoff, options).await,
            }
        }
    }
}

/// Reports it, and pauses: a token service that fails is not to be called without end.
async fn failed(why: &ConnectError, backoff: &mut Backoff, options: &NodeOptions) {
    options.tell(&NodeEvent::NotLoggedInAnew(why.message()));
    sleep(FIRST_PAUSE + backoff.next(Instant::now())).await;
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

async fn wait(time: Option<Duration>) {
    // What an instant cannot hold is for ever.
    match time.and_then(|time| Instant::now().checked_add(time)) {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
