//! What operators see of a limiter without a layer, and that nothing is counted twice with one.

use std::time::Duration;

use tollgate::{
    Key, Limiter, LiveLimiter, MINUTE, OnStoreError, Quota, Rule, observe::flush_metrics,
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{per_minute, still},
    counted::{Counted, Metrics},
    events::Events,
};
use tracing::Level;

fn limiter(rule: Rule) -> Limiter {
    Limiter::new(still().0, [rule]).expect("a valid rule")
}

/// The requests with these labels.
fn requests(counted: &Counted, labels: &[(&str, &str)]) -> u64 {
    counted.sum("tollgate_requests_total", labels)
}

#[test]
fn a_bare_limiter_counts_with_all_labels() {
    let metrics = Metrics::record();
    let rule = per_minute("mails", 2).plan("gold", Quota::fixed_window(9, MINUTE));
    let limiter = limiter(rule);
    let key = Key::of("ada");
    for _ in 0..3 {
        let _ = limiter.try_acquire("mails", &key);
    }
    let gold = limiter.check_with_plan("mails", "gold", &key).unwrap();
    let _ = limiter.acquire(&[gold.with_cost(2)]);
    let _ = limiter.acquire(&[gold.with_cost(90)]);
    let counted = metrics.counted();
    for (labels, expected) in [
        (
            &[
                ("plan", "none"),
                ("decision", "allowed"),
                ("reason", "none"),
                ("source", "store"),
            ][..],
            2,
        ),
        (
            &[
                ("plan", "none"),
                ("decision", "denied"),
                ("reason", "quota"),
            ],
            1,
        ),
        (&[("plan", "gold"), ("decision", "allowed")], 1),
        (
            &[
                ("plan", "gold"),
                ("decision", "denied"),
                ("reason", "never"),
            ],
            1,
        ),
        (&[("rule", "mails"), ("algorithm", "fixed_window")], 5),
    ] {
        assert_eq!(requests(&counted, labels), expected, "{labels:?}");
    }
    let units = |plan, decision| {
        let labels = [("plan", plan), ("decision", decision)];
        counted.sum("tollgate_cost_units_total", &labels)
    };
    assert_eq!((units("gold", "allowed"), units("gold", "denied")), (2, 90));
    // The second request took the last unit.
    assert_eq!(
        counted.count("tollgate_burst_exhausted_total{rule=mails}"),
        1
    );
    let left = counted.recorded("tollgate_remaining_ratio{rule=mails}");
    assert!(
        left.contains(&0.5),
        "the first one left half of it: {left:?}"
    );
}

#[tokio::test]
async fn a_remote_store_is_reported_once_it_has_answered() {
    let metrics = Metrics::record();
    let store = SwitchedStore::after(Duration::ZERO, still().0);
    let rule = Rule::new("mails", Quota::fixed_window(1, MINUTE));
    let limiter =
        Limiter::new(store.clone(), [rule.on_store_error(OnStoreError::Degraded)]).unwrap();
    let checks = [limiter.check("mails", &Key::shared()).unwrap()];
    for works in [true, false] {
        store.switch(works);
        let answer = limiter.acquire(&checks);
        assert_eq!(
            requests(&metrics.counted(), &[]),
            0,
            "nothing is decided yet"
        );
        assert!(answer.await.is_allowed());
        let decision = if works { "allowed" } else { "degraded" };
        assert_eq!(requests(&metrics.counted(), &[("decision", decision)]), 1);
    }
}

#[test]
fn counts_go_on_when_rules_are_replaced() {
    let metrics = Metrics::record();
    let rule = |quota| [Rule::new("mails", quota).top_keys()];
    let quotas = [9, 8, 8].map(|limit| Quota::fixed_window(limit, MINUTE));
    let limiter = LiveLimiter::new(still().0, rule(quotas[0])).unwrap();
    let key = Key::of("ada");
    for quota in [quotas[1], quotas[2], Quota::gcra(7, MINUTE), quotas[0]] {
        let _ = limiter.try_acquire("mails", &key);
        limiter.replace(rule(quota)).unwrap();
    }
    let allowed = [("decision", "allowed")];
    assert_eq!(requests(&metrics.counted(), &allowed), 4);
    let limiter = limiter.limiter();
    assert_eq!(limiter.counts()[0].decided("allowed"), 4);
    let top = limiter.top_keys("mails", 9).unwrap();
    assert_eq!((top.len(), top[0].at_least, top[0].at_most), (1, 4, 4));
}

/// More requests than hand over their counts one by one.
const MANY: u64 = 1_000;

#[test]
fn requests_are_counted_at_once_and_the_last_of_very_many_with_the_end_of_their_limiter() {
    let metrics = Metrics::record();
    let limiter = limiter(Rule::new("mails", Quota::fixed_window(10_000, MINUTE)));
    let mut published = 0;
    for (requests_so_far, behind) in [(10, 0), (MANY, 63)] {
        while limiter.counts()[0].decided("allowed") < requests_so_far {
            let _ = limiter.try_acquire("mails", &Key::shared()).unwrap();
        }
        published += requests(&metrics.published(), &[]);
        assert!((requests_so_far - behind..=requests_so_far).contains(&published));
    }
    drop(limiter);
    // A thread that hands over the counts of all limiters may hold this one for a moment longer.
    for _ in 0..60_000 {
        published += requests(&metrics.published(), &[]);
        if published >= MANY {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert_eq!(published, MANY);
}

#[test]
fn the_last_of_very_many_requests_are_told_after_a_reload_without_a_further_one() {
    let metrics = Metrics::record();
    let rules = |most| {
        let mails = Rule::new("mails", Quota::fixed_window(most, MINUTE));
        [mails, per_minute("calls", 9)]
    };
    let limiter = LiveLimiter::new(still().0, rules(10_000)).expect("valid rules");
    for _ in 0..MANY {
        let _ = limiter.try_acquire("mails", &Key::shared()).unwrap();
    }
    limiter.replace(rules(20_000)).expect("valid rules");
    let _ = limiter.try_acquire("calls", &Key::shared()).unwrap();
    assert_eq!(requests(&metrics.published(), &[("rule", "mails")]), MANY);
}

#[test]
fn many_threads_lose_no_count() {
    let metrics = Metrics::record();
    let limiter = limiter(Rule::new("mails", Quota::fixed_window(1_000_000, MINUTE)).top_keys());
    // The series begins with a recorder of this thread.
    let _ = limiter.try_acquire("mails", &Key::of("ada"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let _ = limiter.try_acquire("mails", &Key::of("ada"));
                    flush_metrics();
                }
            });
        }
    });
    let counted = metrics.counted();
    assert_eq!(requests(&counted, &[("decision", "allowed")]), 8_001);
    let units = counted.sum("tollgate_cost_units_total", &[("decision", "allowed")]);
    assert_eq!(units, 8_001);
    assert_eq!(limiter.counts()[0].decided("allowed"), 8_001);
    // Of top keys some are missed.
    let top = &limiter.top_keys("mails", 1).unwrap()[0];
    assert!((1..=8_001).contains(&top.at_least) && top.at_least == top.at_most);
}

#[test]
fn a_denial_in_the_log_has_what_support_needs() {
    let events = Events::listen();
    let plan = Quota::fixed_window(2, MINUTE);
    let limiter = limiter(per_minute("mails", 1).plan("two\n\u{202e}", plan));
    let key = Key::of("ada");
    let check = limiter
        .check_with_plan("mails", "two\n\u{202e}", &key)
        .unwrap();
    for _ in 0..2 {
        let _ = limiter.acquire(&[check.with_cost(2)]);
    }
    let prefix = format!("key={}", check.key().prefix());
    events.one(
        Level::DEBUG,
        &[
            "rule=\"mails\"",
            "algorithm=\"fixed_window\"",
            "plan=\"two\u{fffd}\u{fffd}\"",
            "limit=2",
            "remaining=0",
            "cost=2",
            "source=\"store\"",
            "reason=\"quota\"",
            "at_ms=",
            "one_in=1",
            &prefix,
        ],
    );
    assert!(!events.recorded()[0].fields.contains("ada"));
}

#[test]
fn many_denials_are_few_lines_which_say_how_many_they_stand_for() {
    let events = Events::listen();
    let limiter = limiter(per_minute("mails", 1));
    for _ in 0..1_001 {
        let _ = limiter.try_acquire("mails", &Key::of("ada"));
    }
    let lines = events.at(Level::DEBUG);
    assert_eq!(lines.len(), 10 + 9 + 9);
    assert!(lines[27].contains("one_in=100"), "{}", lines[27]);
}

#[test]
fn a_hot_key_is_reported_once_by_its_label() {
    let metrics = Metrics::record();
    let events = Events::listen();
    let label = |key: &tollgate::key::KeyBuf| {
        let part = key.parts().next().map(|(_, part)| part.to_vec());
        format!(
            "account {}\n",
            String::from_utf8_lossy(&part.unwrap_or_default())
        )
    };
    let limiter = limiter(Rule::new("mails", Quota::fixed_window(1_000_000, MINUTE)).label(label));
    for n in 0..10_000 {
        let key = if n % 3 == 0 {
            Key::of("ada")
        } else {
            Key::of(n)
        };
        let _ = limiter.try_acquire("mails", &key);
    }
    events.one(
        Level::WARN,
        &[
            "hot key",
            "rule=\"mails\"",
            "label=\"account ada\u{fffd}\"",
            "percent=3",
        ],
    );
    assert_eq!(
        metrics
            .counted()
            .count("tollgate_hot_keys_total{rule=mails}"),
        1
    );
}
