//! Two stores on one server: what one of them does not hear of.

use std::time::Duration;

use tollgate_core::{Outcome, Quota, Retry, Rule, SECOND, Source};
use tollgate_test_servers::redis_server::RedisServer;

use crate::service::{Service, check};

/// Five units are left, and another process takes three of them.
#[tokio::test]
async fn a_denial_without_a_call_says_nothing_of_what_others_have_left() {
    let server = RedisServer::start(&[]).await;
    let mut here = Service::start(&server.url()).await;
    let mut there = Service::start(&server.url()).await;
    let hour = 3_600 * SECOND;
    for (name, quota) in [
        ("bucket", Quota::gcra(20, 20 * SECOND)),
        ("fixed", Quota::fixed_window(20, hour)),
        ("sliding", Quota::sliding_window(20, hour)),
        ("log", Quota::sliding_log(20, hour)),
        ("buckets", Quota::sliding_buckets(20, hour)),
    ] {
        let limiters = [&here, &there].map(|it| it.limiter([Rule::new(name, quota)]));
        let [by_here, by_there] = [0, 1].map(|it: usize| check(&limiters[it], name));
        assert!(here.take(&limiters[0], by_here, 15).await.is_allowed());
        let by_store = here.take(&limiters[0], by_here, 10).await.verdicts()[0];
        assert_eq!(by_store.outcome(), Outcome::Deny, "{name}");
        assert!(
            by_store.knows_remaining() && by_store.remaining() == 5,
            "{by_store:?}"
        );

        there.clock.set(here.clock.now());
        assert!(
            there.take(&limiters[1], by_there, 3).await.is_allowed(),
            "{name}"
        );
        let mut waits = Vec::new();
        for _ in 0..5 {
            // No unit comes back meanwhile.
            here.clock.advance(Duration::from_millis(100));
            let denied = here.take(&limiters[0], by_here, 10).await.verdicts()[0];
            // Until the end of a window nothing comes back. Elsewhere others may have taken what this cost waits for.
            let (source, knows) = match name {
                "fixed" => (Source::DenyCache, false),
                _ => (Source::Store, true),
            };
            assert_eq!(denied.source(), source, "{name}");
            assert_eq!(denied.knows_remaining(), knows, "{name}: {denied:?}");
            waits.extend(denied.retry().delay());
        }
        assert!(
            waits.len() == 5 && waits.is_sorted_by(|a, b| a > b),
            "{name}: {waits:?}"
        );

        // Where a single unit does not fit, no process can have taken one since.
        let rest = there.take(&limiters[1], by_there, 2).await;
        assert!(rest.is_allowed(), "{name}");
        let empty = there.take(&limiters[1], by_there, 1).await.verdicts()[0];
        assert_eq!(
            (empty.source(), empty.remaining()),
            (Source::Store, 0),
            "{name}"
        );
        let again = there.take(&limiters[1], by_there, 1).await.verdicts()[0];
        assert_eq!(again.source(), Source::DenyCache, "{name}");
        assert!(
            again.knows_remaining() && again.remaining() == 0,
            "{again:?}"
        );
        assert!(matches!(again.retry(), Retry::After(_)), "{again:?}");
    }
}
