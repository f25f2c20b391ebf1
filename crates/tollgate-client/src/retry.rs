//! Which requests are retried, and when.

use std::time::Duration;

use http::{Method, request::Parts};
use tokio::time::Instant;
use tower::{
    retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff},
    util::rng::HasherRng,
};

use crate::{advice::ServerAdvice, config::Config};

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Whether a request with this head may be sent more than once: by its method (RFC 9110 §9.2.2), by an `Idempotency-Key`, or because the
/// application says so.
pub(crate) fn is_repeatable(config: &Config, head: &Parts) -> bool {
    let is_idempotent = matches!(
        head.method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    let key = || head.headers.get("idempotency-key");
    let has_key = || key().is_some_and(|key| !key.is_empty());
    let is_marked = || config.idempotent.as_ref().is_some_and(|is| is(head));
    config.retries > 0 && (is_idempotent || has_key() || is_marked())
}

/// The retries of one request.
pub(crate) struct Retries {
    left: u32,
    backoff: Option<ExponentialBackoff>,
}

impl Retries {
    pub(crate) fn new(most: u32) -> Self {
        // A maker clones its random numbers: all backoffs of one maker would be equal.
        let rng = HasherRng::new();
        let maker = ExponentialBackoffMaker::new(FIRST_BACKOFF, LONGEST_BACKOFF, 1.0, rng);
        Self {
            left: most,
            backoff: maker.ok().map(|mut maker| maker.make_backoff()),
        }
    }

    /// When to retry the request, if at all.
    pub(crate) fn next(
        &mut self,
        config: &Config,
        advice: &ServerAdvice,
        deadline: Instant,
    ) -> Option<Instant> {
        if self.left == 0 || !advice.may_retry {
            return None;
        }
        let at = match advice.wait() {
            // Its jitter leads beyond no deadline that the wait itself keeps.
            Some(wait) => Instant::now() + wait + config.cooldown(wait, deadline).jitter,
            None => self.backoff.as_mut()?.next_backoff().deadline(),
        };
        if at > deadline || !config.retry_budget.withdraw() {
            return None;
        }
        self.left -= 1;
        Some(at)
    }
}

#[cfg(test)]
mod tests {

    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

    use super::*;
    use crate::advice::ServerLimits;

    fn advice(fields: &[(&'static str, &'static str)]) -> ServerAdvice {
        let fields = fields.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let headers: HeaderMap = fields.collect();
        ServerAdvice::read(
            StatusCode::TOO_MANY_REQUESTS,
            &headers,
            ServerLimits::new(),
            0,
            Duration::from_secs(600),
            &Config::default().limit_statuses,
        )
    }

    fn config() -> Config {
        Config::default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_is_never_early_and_at_most_a_tenth_late() {
        let (now, ten) = (Instant::now(), Duration::from_secs(10));
        let deadline = now + 3 * ten;
        let mut latest = now;
        for _ in 0..100 {
            let retry =
                Retries::new(1).next(&config(), &advice(&[("retry-after", "10")]), deadline);
            let at = retry.expect("there is time");
            assert!((now + ten..=now + ten + ten / 10).contains(&at));
            latest = latest.max(at);
        }
        // Of a hundred at random one is in the later half.
        assert!(latest > now + ten + ten / 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_has_the_jitter_that_is_set() {
        let (now, ten) = (Instant::now(), Duration::from_secs(10));
        let latest = |percent| {
            let mut config = config();
            config.jitter_percent = percent;
            let in_ten = advice(&[("retry-after", "10")]);
            let retries = (0..100).map(|_| Retries::new(1).next(&config, &in_ten, now + 3 * ten));
            retries.max().flatten()
        };
        assert_eq!(latest(0), Some(now + ten));
        // Of a hundred at random one is in the later half.
        assert!(latest(100) > Some(now + ten + ten / 2));
        // It extends no wait beyond the longest.
        let longest = advice(&[("retry-after", "600")]);
        let at = Retries::new(1).next(&config(), &longest, now + 200 * ten);
        assert_eq!(at, Some(now + 60 * ten));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_from_the_server_the_backoff_grows() {
        for nothing in [advice(&[]), advice(&[("retry-after", "0")])] {
            let mut retries = Retries::new(20);
            let longest = Duration::from_secs(10);
            let mut least = Duration::from_millis(100);
            for _ in 0..20 {
                let now = Instant::now();
                let deadline = now + Duration::from_secs(100);
                let at = retries.next(&config(), &nothing, deadline).expect("time");
                assert!(at >= now + least && at <= now + (2 * least).min(longest));
                least = (2 * least).min(longest);
            }
        }
    }
}
