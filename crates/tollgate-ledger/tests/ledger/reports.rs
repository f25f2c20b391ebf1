//! Statements and usage.

use std::ops::ControlFlow;

use tollgate_core::{MemoryStore, Quota, calendar::CalendarUnit};
use tollgate_ledger::{Adjustment, Entry, Ledger, Period, ReportRow as _};

use crate::common::{file, limiter, take, usage};

#[tokio::test]
async fn a_statement_has_each_entry_with_a_running_sum() {
    let (_folder, url) = file();
    let ledger = Ledger::open(&url).await.expect("it opens");
    let month = Quota::calendar(1_000, CalendarUnit::Year).zone("Pacific/Apia");
    let limiter = limiter(MemoryStore::new(), month);
    ledger.attach(&limiter).expect("it has none");
    for units in [5, 7] {
        let _ = take(&limiter, "acme\n=1+1", units).await;
        let _ = take(&limiter, "bolt", 1).await;
        ledger.flush().await.expect("it writes");
    }
    let adjustment = Adjustment {
        account: "acme\n=1+1",
        rule: "units",
        units: -2,
        id: "=HYPERLINK(\"x\")",
        actor: "ann",
        reason: "said \"sorry\"",
        at: None,
    };
    ledger.adjust(&adjustment, None).await.expect("it writes");
    let statement = async |period: Period| {
        let mut entries: Vec<Entry> = Vec::new();
        let each = |entry: &Entry| {
            entries.push(entry.clone());
            ControlFlow::Continue(())
        };
        let answer = ledger
            .statement("acme\n=1+1", Some("units"), period, each)
            .await;
        answer.expect("it answers");
        entries
    };
    let entries = statement(Period::ALL).await;
    let lines = entries.iter().map(|it| (&*it.kind, it.units, it.sum));
    let lines: Vec<_> = lines.collect();
    assert_eq!(
        lines,
        [("usage", 5, 5), ("usage", 7, 12), ("adjustment", -2, 10)]
    );
    let csv = entries[2].csv();
    assert!(
        csv.ends_with(r#","'=HYPERLINK(""x"")","ann","said ""sorry""""#),
        "{csv}"
    );
    assert_eq!(entries[2].json()["sum"], 10);
    // By the middle of the window, whatever its zone.
    let year = &usage(&ledger).await[0].json()["window_end"].to_string()[1..5];
    let year: i32 = year.parse().expect("a year");
    let of = |year: i32| format!("{year}").parse().expect("a period");
    assert_eq!(
        statement(of(year - 1)).await.len() + statement(of(year)).await.len(),
        3
    );
    assert_eq!(statement(of(year - 2)).await.len(), 0);
}

#[test]
fn a_period_is_a_year_a_month_or_a_day() {
    for text in ["2026", "2026-07", "2026-12-31"] {
        assert!(text.parse::<Period>().is_ok(), "{text}");
    }
    for text in [
        "",
        "26",
        "2026-13",
        "2026-02-31",
        "2026-7",
        "1969",
        "2026-07-01T00",
        "july",
    ] {
        let wrong = text.parse::<Period>().expect_err("it is none").to_string();
        assert!(wrong.contains("2026-07"), "{wrong}");
    }
}
