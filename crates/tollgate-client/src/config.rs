//! The settings of a layer, the state that its services share, and the host that a request is for.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode, header, request::Parts};
use tokio::time::Instant;
use tollgate_core::Clock;
use tower::{
    BoxError,
    retry::budget::{Budget, TpsBudget},
    util::rng::{HasherRng, Rng},
};

use crate::{
    advice::ServerLimits, budgets::Cooldown, error::ClientRateLimitError, partition::Partitions,
};

/// Longer than any process runs, and within the range of every clock.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(86_400 * 365 * 30);

pub(crate) type PartitionFn = dyn Fn(&Parts) -> String + Send + Sync;
pub(crate) type LimitsFn = dyn Fn(StatusCode, &HeaderMap) -> ServerLimits + Send + Sync;
pub(crate) type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// The settings of a layer, and the state that its services share.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) partitions: Arc<Partitions>,
    pub(crate) partition_of: Arc<PartitionFn>,
    pub(crate) max_wait: Duration,
    pub(crate) max_retry_after: Duration,
    pub(crate) retries: u32,
    pub(crate) retry_budget: Arc<dyn Budget + Send + Sync>,
    pub(crate) jitter_percent: u8,
    pub(crate) max_replay_bytes: u64,
    pub(crate) idempotent: Option<Arc<Predicate>>,
    pub(crate) clock: Clock,
    pub(crate) limit_statuses: Arc<[StatusCode]>,
    pub(crate) read_limits: Option<Arc<LimitsFn>>,
    /// What a request that was not sent ends with.
    pub(crate) not_sent: fn(ClientRateLimitError) -> BoxError,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            partitions: Arc::default(),
            partition_of: Arc::new(authority_of),
            max_wait: Duration::from_secs(30),
            max_retry_after: Duration::from_secs(600),
            retries: 4,
            retry_budget: Arc::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2)),
            jitter_percent: 10,
            max_replay_bytes: 64 << 10,
            idempotent: None,
            clock: Clock::system(),
            limit_statuses: Arc::new([
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::SERVICE_UNAVAILABLE,
            ]),
            read_limits: None,
            not_sent: Into::into,
        }
    }
}

impl Config {
    /// The cooldown of a server that asks for this wait in response to a request that may wait until `deadline`.
    ///
    /// The jitter extends it neither beyond the longest wait nor beyond the deadline, so that the rejected request can be retried. If
    /// the wait itself ends after the deadline, that does not matter.
    pub(crate) fn cooldown(&self, asked: Duration, deadline: Instant) -> Cooldown {
        let share = asked * u32::from(self.jitter_percent) / 100;
        let most = share.min(self.max_retry_after.saturating_sub(asked));
        let room = deadline.saturating_duration_since(Instant::now());
        let most = room.checked_sub(asked).unwrap_or(most).min(most);
        let jitter = most.mul_f64(HasherRng::new().next_f64());
        Cooldown { asked, jitter }
    }
}

tollgate_core::debug_fields!(Config, it =>
    max_wait: it.max_wait, max_retry_after: it.max_retry_after, retries: it.retries
);

/// The host and port of the URI, or else of the `Host` header, in lower case, without the scheme's default port. Empty if
/// there is neither.
pub(crate) fn authority_of(head: &Parts) -> String {
    let host_header = || head.headers.get(header::HOST)?.to_str().ok();
    let authority = match head.uri.authority() {
        Some(authority) => authority.as_str(),
        None => host_header().unwrap_or_default().trim(),
    };
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let default_port = match head.uri.scheme_str() {
        Some("http") => ":80",
        Some("https") => ":443",
        _ => "",
    };
    let host = host.strip_suffix(default_port).unwrap_or(host);
    host.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The longest of two hundred jitters.
    fn longest(asked: Duration, room: Duration) -> Duration {
        let (config, deadline) = (Config::default(), Instant::now() + room);
        let jitters = (0..200).map(|_| config.cooldown(asked, deadline).jitter);
        jitters.max().unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn up_to_the_percent_is_added() {
        let longest = longest(10 * SECOND, 60 * SECOND);
        assert!(longest > SECOND / 2 && longest <= SECOND, "{longest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_cooldown_exceeds_the_longest() {
        let room = 3_600 * SECOND;
        assert_eq!(longest(600 * SECOND, room), Duration::ZERO);
        let at_the_end = longest(580 * SECOND, room);
        assert!(at_the_end > 10 * SECOND && at_the_end <= 20 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_leaves_time_to_retry_the_rejected_request() {
        assert_eq!(longest(100 * SECOND, 100 * SECOND), Duration::ZERO);
        let at_the_end = longest(100 * SECOND, 104 * SECOND);
        assert!(at_the_end > 2 * SECOND && at_the_end <= 4 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_room_gets_its_full_jitter() {
        assert!(longest(100 * SECOND, 99 * SECOND) > 5 * SECOND);
    }

    fn of(uri: &str, host: Option<&str>) -> String {
        let mut request = Request::get(uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let head = request.body(()).expect("a request").into_parts().0;
        authority_of(&head)
    }

    #[test]
    fn case_user_and_default_port_are_ignored() {
        for uri in [
            "http://api.example/",
            "http://API.example:80/",
            "https://me:secret@api.example:443/x",
        ] {
            assert_eq!(of(uri, None), "api.example");
        }
        assert_eq!(of("http://api.example:8080/", None), "api.example:8080");
    }

    #[test]
    fn a_relative_uri_falls_back_to_the_host_header() {
        assert_eq!(of("/x", Some(" Api.Example:80 ")), "api.example:80");
        assert_eq!(of("/x", None), "");
    }
}
