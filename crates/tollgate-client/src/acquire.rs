//! Waiting until both the server's and the client's limit have room for a request.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Ticket, observe::Timer};

use crate::{
    client_limit::RequestLimit,
    error::{ClientRateLimitError, ClientRateLimitErrorKind},
    partition::{Partition, Permit, QueueHead},
};

/// Waits until both limits have room, and takes from both.
///
/// It never holds units of the client's limit while it waits for the server: they would all be sent at once when the server
/// opens.
///
/// # Cancel safety
///
/// Dropping the future leaves the queues and takes nothing if the store is in memory.
pub(crate) async fn acquire<'a>(
    limit: Option<&RequestLimit>,
    partition: &'a Partition,
    deadline: Instant,
) -> Result<Permit<'a>, ClientRateLimitError> {
    let Some(limit) = limit else {
        if let Some(permit) = partition.try_acquire() {
            return Ok(permit);
        }
        let head = partition.wait(deadline).await.map_err(server_limit)?;
        loop {
            match partition.take() {
                Ok(permit) => return Ok(permit),
                Err(_) => head.opened(deadline).await.map_err(server_limit)?,
            }
        }
    };
    loop {
        if partition.closed_until().is_none() {
            let units = wait_for_units(limit, deadline).await?;
            if let Some(permit) = take_with(partition, units) {
                return Ok(permit);
            }
        }
        let head = partition.wait(deadline).await.map_err(server_limit)?;
        if let Some(permit) = take_at_head(limit, partition, &head, deadline).await? {
            return Ok(permit);
        }
        // The client's own limit is empty. Leave the head of the server's queue, which would block requests with other keys,
        // and wait in the queue of the key.
    }
}

/// Waits in the queue of the client's limit.
async fn wait_for_units(
    limit: &RequestLimit,
    deadline: Instant,
) -> Result<Ticket, ClientRateLimitError> {
    let max_wait = deadline.saturating_duration_since(Instant::now());
    let no_room = |wait| ClientRateLimitError::new(ClientRateLimitErrorKind::ClientLimit, wait);
    let RequestLimit { limiter, checks } = limit;
    let decision = limiter
        .acquire_within(checks, max_wait)
        .await
        .map_err(|_| no_room(None))?;
    if !decision.is_allowed() {
        return Err(no_room(decision.retry_after()));
    }
    Ok(limiter.ticket(checks, &decision).cancel_on_drop())
}

/// At the head of the server's queue: takes what the client's limit has now, or `None` if it has nothing.
async fn take_at_head<'a>(
    limit: &RequestLimit,
    partition: &'a Partition,
    head: &QueueHead<'_>,
    deadline: Instant,
) -> Result<Option<Permit<'a>>, ClientRateLimitError> {
    let RequestLimit { limiter, checks } = limit;
    loop {
        // The denial is reported by the queue where it waits next.
        let started = Timer::start();
        // What does not fit now waits there as well: here a delay would hold up requests with other keys.
        let attempt = limiter.attempt(checks).within(Duration::ZERO);
        let decision = attempt.decide().await;
        if !decision.is_allowed() {
            return Ok(None);
        }
        let units = attempt.ticket(&decision);
        if let Some(permit) = take_with(partition, units) {
            limiter.report(checks, &decision, started, "");
            return Ok(Some(permit));
        }
        head.opened(deadline).await.map_err(server_limit)?;
    }
}

/// Spends the units together with a permit of the server, or returns them.
fn take_with(partition: &Partition, units: Ticket) -> Option<Permit<'_>> {
    let permit = partition.take().ok()?;
    units.keep();
    Some(permit)
}

fn server_limit(until: Instant) -> ClientRateLimitError {
    let left = until.saturating_duration_since(Instant::now());
    let wait = (!left.is_zero()).then_some(left);
    ClientRateLimitError::new(ClientRateLimitErrorKind::ServerLimit, wait)
}
