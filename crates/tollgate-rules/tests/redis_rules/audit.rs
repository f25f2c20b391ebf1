//! Who changed what, in Redis.

use tollgate_rules::{AuditKind, Author, Bindings, OperatorEntry};
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
    // Its lines are shown to who pushes, and are in no record.
    let when = format!("when = {{ header = {{ name = 'x-a', equals = '{KEY}', equal = 1 }} }}");
    let wrong = limits(&format!("1/h'\n{when} # '"));
    let refused = redis.push(wrong, &bindings, &bob).await;
    says(refused.expect_err("it is wrong"), KEY);
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
    says(&words[3], "limits.toml:6: unknown field \"equal\"");
    assert_eq!(
        words[4],
        "accepted, revision 2 → 3, by alice, because: ticket 4711: all rules: off (it was wrong)"
    );
    assert_eq!(records[4].kind, AuditKind::Accepted);
    let all = dump(&server);
    assert!(!all.contains(KEY), "{all}");

    // Capped: about 10 000 records.
    let many = "for i = 1, 12000 do redis.call('XADD', KEYS[1], '*', 'what', 'accepted') end";
    let _: redis::Value = server.ask(&["EVAL", many, "1", "{shop}:rules:audit"]);
    push(&redis, limits("fixed_window 21/h")).await;
    let length: u64 = server.ask(&["XLEN", "{shop}:rules:audit"]);
    assert!((10_000..11_000).contains(&length), "{length}");
}
