//! Who changed what, in Redis.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_rules::{AuditKind, Author, Bindings, Format, LiveRules, OperatorEntry, RuleText};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{KEY, dump::dump, limits, push, redis, says, set};

#[tokio::test]
async fn pushes_that_were_accepted_or_refused_are_in_a_capped_stream() {
    let server = RedisServer::start(&[]).await;
    let redis = redis(&server);
    let bindings = Bindings::new();
    push(&redis, limits("fixed_window 20/h")).await;
    let bob = Author::new("bob").because("launch week");
    let raised = OperatorEntry::limit("api", KEY, "500/h");
    redis.set(&[raised], &bindings, &bob).await.expect("pushed");
    let wrong = OperatorEntry::limit("api", KEY, "500/hh");
    assert!(redis.set(&[wrong], &bindings, &bob).await.is_err());
    let off = OperatorEntry::switch("api", "off").because("it was wrong");
    set(&redis, off).await.expect("pushed");

    let records = redis.audit(10).await.expect("Redis is there");
    let words: Vec<String> = records.iter().rev().map(ToString::to_string).collect();
    assert_eq!(
        words[..2],
        [
            "accepted, revision 0 → 1, by alice, because: ticket 4711: api: added, fixed_window 20/h",
            "accepted, revision 1 → 2, by bob, because: launch week: \
             api: fixed_window 20/h → fixed_window 500/h for one key",
        ]
    );
    let rejected = &words[2];
    assert!(
        rejected.starts_with("rejected, revision 0, by bob"),
        "{rejected}"
    );
    says(rejected, "\"hh\" is not a unit of time");
    assert_eq!(
        words[3],
        "accepted, revision 2 → 3, by alice, because: ticket 4711: all rules: off (it was wrong)"
    );
    assert_eq!(records[3].kind, AuditKind::Accepted);
    let all = dump(&server);
    assert!(!all.contains(KEY), "{all}");

    // Capped: about 10 000 records.
    let many = "for i = 1, 12000 do redis.call('XADD', KEYS[1], '*', 'what', 'accepted') end";
    let _: redis::Value = server.ask(&["EVAL", many, "1", "{shop}:rules:audit"]);
    push(&redis, limits("fixed_window 21/h")).await;
    let length: u64 = server.ask(&["XLEN", "{shop}:rules:audit"]);
    assert!((10_000..11_000).contains(&length), "{length}");
}

#[tokio::test]
async fn changes_of_one_process_are_in_the_stream() {
    let server = RedisServer::start(&[]).await;
    let redis = redis(&server);
    let text = "version = 1\n[[rules]]\nname = 'log-in'\nlimit = 'fixed_window 1/h'\nby = 'header:x-api-key'\n";
    push(&redis, RuleText::new(text, Format::Toml)).await;
    let rules = LiveRules::builder(Bindings::new())
        .audit(redis.audit_sink())
        .follow(redis.source())
        .await
        .expect("there are rules");
    let bob = rules.handle(Author::new("bob"));
    bob.set(OperatorEntry::switch("*", "off"))
        .expect("a switch");
    let begin = Instant::now();
    let records = loop {
        let records = redis.audit(10).await.expect("Redis is there");
        if records.len() == 2 {
            break records;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{records:?}");
        sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(records[0].author.actor(), "bob");
    assert_eq!(records[0].lines, ["all rules: off"]);

    // A document that this process alone has is nobody's push.
    let own = text.replace("1/h", "2/h");
    bob.replace(own, Format::Toml).expect("a right document");
    let newest = async || redis.audit(1).await.expect("Redis is there")[0].to_string();
    while !newest()
        .await
        .contains("fixed_window 1/h → fixed_window 2/h")
    {
        assert!(begin.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(10)).await;
    }
}
