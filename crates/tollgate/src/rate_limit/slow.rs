//! Denials that are held back for a time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::time::timeout;
use tollgate_core::{Decision, Outcome, Pending};

use crate::{
    head::Head,
    protocol::WireProtocol,
    rate_limit::{config::Config, wait_room::field_bytes},
};

/// What a denial waits for, with the longest time of the rules that deny; `None`: it is sent at once.
#[inline]
pub(crate) fn hold(
    config: &Config,
    head: &Head<'_>,
    decision: &Decision,
    response: &Response<Bytes>,
) -> Option<Pending<()>> {
    let room = config.slow_room.as_ref()?;
    let end = Arc::clone(&config.slow_end);
    if end.is_closed() {
        return None;
    }
    let rules = &config.rules;
    let denies = decision
        .verdicts()
        .iter()
        .filter(|it| it.outcome() == Outcome::Deny && rules.set().enforces(it.rule()));
    let slow =
        denies.filter_map(|verdict| rules.list().get(verdict.rule())?.settings().slow_denials);
    let mut by = slow.map(|slow| slow.by).max()?;
    if config.settings.protocol.of(head) != WireProtocol::Http
        && let Some(patience) = grpc_timeout(head.headers)
    {
        // The client is still there to read it.
        by = by.min(patience / 2);
    }
    let place = room.enter(field_bytes(response.headers()) + response.body().len())?;
    Some(Pending::new(async move {
        let _ = timeout(by, end.acquire()).await;
        drop(place);
    }))
}

/// How long the client of a gRPC call waits, by its field `grpc-timeout`.
#[must_use]
pub fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    tollgate_core::grpc_timeout(headers.get("grpc-timeout")?.to_str().ok()?)
}
