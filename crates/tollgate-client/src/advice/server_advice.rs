//! What a response says about the server's limits.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use tollgate_core::Tick;

use crate::advice::{
    advised_budget::{Budgets, MOST, ServerLimits},
    grpc::GrpcStatus,
    ratelimit,
    time_until::{date_of, read_retry_after},
    triple::{read_provider, read_triple, reset_alone},
};

/// What a response says about the server's limits.
#[derive(Debug)]
pub(crate) struct ServerAdvice {
    /// Whether the request was rejected for now, and may succeed later.
    pub(crate) may_retry: bool,
    /// The wait that the server asks for, if it is not zero.
    pub(crate) retry_after: Option<Duration>,
    /// The server's budgets.
    pub(crate) budgets: Budgets,
}

impl ServerAdvice {
    /// Reads the head of a response received at `now`, with what the application reads in its `own` fields. Caps each wait at
    /// `longest`. `limits` are the statuses of rejections; of others than 429 and 503 only those that say when to come back.
    pub(crate) fn read(
        status: StatusCode,
        headers: &HeaderMap,
        own: ServerLimits,
        now: Tick,
        longest: Duration,
        limits: &[StatusCode],
    ) -> Self {
        let now = date_of(headers).unwrap_or(now);
        let grpc = GrpcStatus::read(headers);
        let mut budgets = Budgets::new();
        if !is_cached(headers) {
            // Those in the newest style that can be parsed, and those of providers.
            budgets = ratelimit::read(headers);
            if budgets.is_empty() {
                budgets.extend(read_triple(headers, now));
            }
            budgets.extend(read_provider(headers, now));
        }
        let is_empty = |budgets: &Budgets| budgets.iter().any(|budget| budget.left == 0);
        let may_reject = limits.contains(&status) || is_block(status, headers);
        let says_so = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let retry_after = match &grpc {
            _ if may_reject => read_retry_after(headers, now).or_else(|| {
                // Of another status a reset says what it says of an answer that was given.
                let is_unknown = says_so && grpc.is_none() && !is_empty(&budgets);
                is_unknown.then(|| reset_alone(headers, now))?
            }),
            Some(grpc) => grpc.wait,
            None => None,
        };
        let [retry_after, own_wait] = [retry_after, own.retry_after].map(|wait| {
            let wait = wait.filter(|wait| !wait.is_zero());
            wait.map(|wait| wait.min(longest))
        });
        for budget in &mut budgets {
            // `Retry-After` takes precedence over the draft's field, whichever is longer.
            if let (0, Some(wait)) = (budget.left, retry_after) {
                budget.reset = wait;
            }
        }
        budgets.extend(own.budgets);
        let says_when = is_empty(&budgets) || retry_after.is_some();
        budgets.sort_by_key(|budget| budget.left);
        budgets.truncate(MOST);
        for budget in &mut budgets {
            budget.reset = budget.reset.min(longest);
        }
        Self {
            may_retry: match grpc {
                Some(status) => status.may_retry,
                None => own_wait.is_some() || may_reject && (says_so || says_when),
            },
            retry_after: retry_after.max(own_wait),
            budgets,
        }
    }

    /// How long to wait before a retry, if the server says.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let empty = self.budgets.iter().filter(|budget| budget.left == 0);
        self.retry_after
            .or_else(|| empty.map(|budget| budget.reset).max())
            .filter(|wait| !wait.is_zero())
    }
}

/// Whether a client is blocked for a time, as tollgate says it: a status that means "never" otherwise, a problem and when to come back.
fn is_block(status: StatusCode, headers: &HeaderMap) -> bool {
    let is_problem = |value: &http::HeaderValue| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.starts_with(b"application/problem+json")
    };
    matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED)
        && headers.contains_key(header::RETRY_AFTER)
        && headers.get(header::CONTENT_TYPE).is_some_and(is_problem)
}

/// Whether the response comes from a cache: then the budgets are outdated, or those of another client.
fn is_cached(headers: &HeaderMap) -> bool {
    headers
        .get(header::AGE)
        .and_then(|age| age.to_str().ok()?.trim().parse().ok())
        .is_some_and(|age: u64| age > 0)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Response};
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    const NOW: Tick = 1_700_000_000_000_000;
    const LONGEST: Duration = Duration::from_secs(600);
    const LIMITS: [StatusCode; 3] = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::FORBIDDEN,
    ];

    fn advice(status: u16, fields: &[(&'static str, &str)]) -> ServerAdvice {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let response = response.body(()).unwrap();
        let (status, headers) = (response.status(), response.headers());
        ServerAdvice::read(status, headers, ServerLimits::new(), NOW, LONGEST, &LIMITS)
    }

    fn lefts(advice: &ServerAdvice) -> Vec<(u64, u64)> {
        let budgets = advice.budgets.iter();
        budgets
            .map(|budget| (budget.left, budget.reset.as_secs()))
            .collect()
    }

    #[test]
    fn retry_after_counts_only_with_429_and_503() {
        for status in [200, 301, 404, 500] {
            let advice = advice(status, &[("retry-after", "7")]);
            assert_eq!((advice.may_retry, advice.wait()), (false, None));
        }
    }

    #[test]
    fn another_status_is_a_limit_where_it_says_when_to_come_back() {
        let left = ("x-ratelimit-remaining", "4999");
        let reset = ("x-ratelimit-reset", "40");
        let secondary = advice(403, &[left, reset, ("retry-after", "60")]);
        assert_eq!(
            (secondary.may_retry, secondary.wait()),
            (true, Some(Duration::from_secs(60)))
        );
        let primary = advice(403, &[("x-ratelimit-remaining", "0"), reset]);
        assert_eq!(
            (primary.may_retry, primary.wait()),
            (true, Some(Duration::from_secs(40)))
        );
        let alone = ("x-ratelimit-reset-tokens", "40s");
        for fields in [[left, reset], [left, alone]] {
            let forbidden = advice(403, &fields);
            assert_eq!((forbidden.may_retry, forbidden.wait()), (false, None));
        }
    }

    #[test]
    fn a_rejection_with_a_reset_alone_waits_for_it() {
        let reset = ("x-ratelimit-reset-tokens", "20s");
        assert_eq!(advice(429, &[reset]).wait(), Some(Duration::from_secs(20)));
        assert_eq!(advice(200, &[reset]).wait(), None);
        let longer = advice(
            429,
            &[reset, ("retry-after", "7"), ("retry-after-ms", "7500")],
        );
        assert_eq!(longer.wait(), Some(Duration::from_millis(7_500)));
    }

    #[test]
    fn retry_after_takes_precedence_over_an_empty_budget() {
        let both = r#""a";r=0;t=60, "b";r=1;t=60"#;
        let advice = advice(429, &[("retry-after", "2"), ("ratelimit", both)]);
        assert_eq!(advice.wait(), Some(Duration::from_secs(2)));
        assert_eq!(lefts(&advice), [(0, 2), (1, 60)]);
    }

    #[test]
    fn no_wait_exceeds_the_longest() {
        for field in [
            ("retry-after", "999999999999999999999"),
            ("ratelimit", r#""a";r=0;t=999999999999999"#),
        ] {
            assert_eq!(advice(429, &[field]).wait(), Some(LONGEST));
        }
    }

    #[test]
    fn a_call_of_grpc_rejected_over_http_waits_by_retry_after_unless_retries_are_forbidden() {
        let call = |pushback| {
            let fields = [
                ("content-type", "application/grpc"),
                ("grpc-status", "14"),
                ("retry-after", "7"),
                ("grpc-retry-pushback-ms", pushback),
            ];
            advice(503, &fields)
        };
        let later = call("1000");
        assert!(later.may_retry);
        assert_eq!(later.wait(), Some(Duration::from_secs(7)));
        assert!(!call("-1").may_retry);
    }

    #[test]
    fn budgets_of_a_cached_response_are_ignored() {
        let budget = ("ratelimit", r#""a";r=0;t=60"#);
        assert_eq!(lefts(&advice(200, &[budget, ("age", "1")])), []);
        for age in ["0", "000", "-1", "x", ""] {
            assert_eq!(lefts(&advice(200, &[budget, ("age", age)])), [(0, 60)]);
        }
    }

    #[test]
    fn the_newest_style_that_parses_counts() {
        let old = [
            ("x-ratelimit-remaining", "3"),
            ("x-ratelimit-reset", "30"),
            ("ratelimit-remaining", "2"),
            ("ratelimit-reset", "20"),
        ];
        assert_eq!(lefts(&advice(200, &old)), [(2, 20)]);
        let mut fields = old.to_vec();
        fields.push(("ratelimit", r#""a";r=1;t=10"#));
        assert_eq!(lefts(&advice(200, &fields)), [(1, 10)]);
        // A malformed field is ignored.
        fields.pop();
        fields.push(("ratelimit", r#""a";r=1;t=10,"#));
        assert_eq!(lefts(&advice(200, &fields)), [(2, 20)]);
    }

    #[test]
    fn at_most_eight_budgets_are_kept_and_they_are_the_tightest() {
        let all: Vec<_> = (0..20)
            .rev()
            .map(|n| format!(r#""p{n}";r={n};t=5"#))
            .collect();
        let advice = advice(200, &[("ratelimit", &all.join(", "))]);
        let left: Vec<_> = advice.budgets.iter().map(|budget| budget.left).collect();
        assert_eq!(left, (0..8).collect::<Vec<_>>());
    }

    fn names() -> impl Strategy<Value = &'static str> {
        select(vec![
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "ratelimit-limit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "x-rate-limit-remaining",
            "x-rate-limit-reset",
            "x-ratelimit-remaining-requests",
            "x-ratelimit-reset-requests",
            "retry-after-ms",
            "date",
            "age",
            "content-type",
            "grpc-status",
            "grpc-status-details-bin",
            "grpc-retry-pushback-ms",
        ])
    }

    fn values() -> impl Strategy<Value = Vec<u8>> {
        let pieces = vec![
            "\"a\"",
            ";r=0",
            ";t=",
            "9",
            "0",
            "-",
            "1e9",
            ".",
            ",",
            " ",
            "=",
            "remaining",
            "reset",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "2021-05-10T11:00Z",
            "application/grpc",
            "8",
            "14",
            "99999999999999999999",
            ":",
            ";w=1",
            "6m",
            "s",
            "T",
            "Z",
            "+",
            "AAAA",
        ];
        let pieces = vec(select(pieces), 0..8).prop_map(|pieces| pieces.concat().into_bytes());
        prop_oneof![vec(any::<u8>(), 0..40), pieces]
    }

    proptest! {
        #[test]
        fn no_header_bytes_panic_or_exceed_the_cap(
            status in select(vec![200_u16, 301, 429, 503]),
            fields in vec((names(), values()), 0..8),
            now in any::<Tick>(),
        ) {
            let mut response = Response::builder().status(status).body(()).unwrap();
            for (name, value) in fields {
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    response.headers_mut().append(HeaderName::from_static(name), value);
                }
            }
            let (status, headers) = (response.status(), response.headers());
            let advice = ServerAdvice::read(status, headers, ServerLimits::new(), now, LONGEST, &LIMITS);
            prop_assert!(advice.wait().is_none_or(|wait| wait <= LONGEST));
            prop_assert!(advice.budgets.len() <= MOST);
            prop_assert!(advice.budgets.iter().all(|budget| budget.reset <= LONGEST));
        }
    }
}
