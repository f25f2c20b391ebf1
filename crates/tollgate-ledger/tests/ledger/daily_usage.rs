//! Usage by client and day.

use std::ops::ControlFlow;

use tollgate_core::{Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule};
use tollgate_ledger::{DailyUsage, Ledger, Period, ReportRow as _};
use tollgate_test_servers::postgres_server::PostgresServer;

use crate::common::{account, file};

/// Noon of 2026-07-31.
const NOON: u64 = 1_785_499_200_000_000;

#[tokio::test]
async fn processes_add_what_their_clients_have_used_to_one_sum_for_each_day() {
    let (_folder, file) = file();
    let server = PostgresServer::start().await;
    for url in [file, server.url()] {
        let clock = ManualClock::new(NOON);
        let mut processes = Vec::new();
        for _ in 0..2 {
            let ledger = Ledger::open(&url).await.expect("it opens");
            let store = MemoryStore::builder().clock(&clock).build();
            let rule = Rule::new("search", Quota::gcra(5, MINUTE)).daily_usage(account);
            let limiter = Limiter::new(store, [rule]).expect("valid");
            ledger.attach(&limiter).expect("it has none");
            processes.push((ledger, limiter));
        }
        let read = async |account, period: Period| {
            let mut rows = Vec::new();
            let each = |usage: &DailyUsage| {
                rows.push(usage.csv());
                ControlFlow::Continue(())
            };
            let read = processes[0].0.daily_usage(account, period, each).await;
            read.expect("it answers");
            rows
        };
        for _ in 0..2 {
            for (ledger, limiter) in &processes {
                // Two keys are one account, and one is not written.
                for (key, units) in [
                    ("acme", 3),
                    ("acme", 3),
                    ("acme\n", 1),
                    ("acme?", 1),
                    ("", 1),
                ] {
                    let check = limiter.check("search", &Key::of(key)).expect("the rule");
                    let _ = limiter.acquire(&[check.with_cost(units)]).await;
                }
                ledger.flush().await.expect("it writes");
            }
            clock.advance(24 * 60 * MINUTE);
        }
        let july = "2026-07".parse().expect("a month");
        assert_eq!(
            read(None, july).await,
            [
                r#""2026-07-31","acme","search",2,2,6"#,
                r#""2026-07-31","acme?","search",4,0,4"#
            ]
        );
        let both = read(Some("acme"), Period::ALL).await;
        assert_eq!(both.len(), 2);
        assert_eq!(both[1], r#""2026-08-01","acme","search",2,2,6"#);
        for (ledger, _) in processes {
            ledger.close().await.expect("nothing is left");
        }
    }
}
