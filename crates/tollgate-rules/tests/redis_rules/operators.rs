//! What operators set lies beside the pushed document.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{Clock, MemoryStore};
use tollgate_rules::{
    Author, Bindings, Format, OperatorEntry, RuleText,
    operators::{EntryKind, EntryOrigin},
    redis::PushErrorKind,
};

use crate::{
    KEY, alice, entries, follow, limit_shown, limits, push, redis, redis_server::RedisServer, until,
};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(Clock::system().now())
}

#[tokio::test]
async fn a_push_leaves_in_force_what_operators_set_and_what_no_longer_fits_waits() {
    let (server, bindings) = (RedisServer::start().await, Bindings::new());
    let redis = redis(&server);
    push(&redis, limits("fixed_window 10/h")).await;
    let rules = follow(&redis).await;
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    let friday = now() + Duration::from_secs(86_400);
    let doubled = OperatorEntry::limit("api", KEY, "200%");
    let doubled = doubled.until(friday).because("contract");
    let id = redis.set(doubled, &bindings, &alice()).await;
    assert_eq!(id.expect("set"), 2);
    let bob = Author::new("bob").because("slow database");
    let halved = redis
        .set(OperatorEntry::switch("*", "50%"), &bindings, &bob)
        .await;
    assert_eq!(halved.expect("set"), 3);

    // A deployment with the same file, and one with another limit.
    assert_eq!(push(&redis, limits("fixed_window 10/h")).await, 3);
    assert_eq!(push(&redis, limits("fixed_window 40/h")).await, 4);
    until("it is in force", || rules.status().revision == 4).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=40;w=3600");
    assert_eq!(limit_shown(&layer, "other").await, "\"api\";q=20;w=3600");
    let stored = redis.stored(&bindings).await.expect("signed");
    let stored = stored.expect("there are rules");
    assert_eq!((stored.revision, stored.pushed_revision), (4, 4));
    let set = stored.document.entries();
    assert_eq!((set[0].kind, set[0].id), (EntryKind::Override, Some(2)));
    assert_eq!(
        (&*set[0].rules, &*set[0].limit),
        ("api", "fixed_window 80/h")
    );
    assert_eq!(
        (set[0].author.as_ref(), set[0].reason.as_deref()),
        (Some(&alice()), Some("contract"))
    );
    assert_eq!((set[1].author.as_ref(), set[1].id), (Some(&bob), Some(3)));
    assert!(
        set.iter()
            .all(|one| one.origin == EntryOrigin::Redis && one.problem.is_none())
    );
    assert!(!server.dump().await.contains(KEY));

    // Its rule counts by something else, is gone, and is there again.
    let other = |name: &str, by: &str| {
        let rule = format!("name = '{name}'\nlimit = 'fixed_window 40/h'\nby = '{by}'\n");
        RuleText::new(format!("version = 1\n[[rules]]\n{rule}"), Format::Toml)
    };
    for (text, problem) in [
        (other("api", "client_ip"), "counts by client_ip now"),
        (
            other("new", "constant"),
            "there is no rule \"api\" any more",
        ),
    ] {
        let revision = push(&redis, text).await;
        until("it is in force", || rules.status().revision == revision).await;
        let set = entries(&redis).await;
        let unfit = set
            .iter()
            .find_map(|one| Some((one.id, one.problem.as_ref()?)));
        let (id, said) = unfit.expect("it does not fit");
        assert!(id == Some(2) && said.contains(problem), "{said}");
        assert_eq!(set.len(), 2);
    }
    push(&redis, limits("fixed_window 40/h")).await;
    until("it is in force", || rules.status().revision == 7).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=40;w=3600");

    assert_eq!(
        redis
            .end(&[3], &bindings, &alice())
            .await
            .expect("it is there"),
        8
    );
    until("it is in force", || rules.status().revision == 8).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=80;w=3600");
    let alone = redis.replace_all(limits("fixed_window 40/h"), &bindings, &bob);
    assert_eq!(alone.await.expect("pushed"), 9);
    assert_eq!(entries(&redis).await, []);
    until("it is in force", || rules.status().revision == 9).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=40;w=3600");
}

#[tokio::test]
async fn what_cannot_be_set_or_ended_is_refused_and_changes_nothing() {
    let (server, bindings) = (RedisServer::start().await, Bindings::new());
    let redis = redis(&server);
    push(&redis, limits("fixed_window 10/h")).await;
    let past = now() - Duration::from_secs(60);
    let new = |limit: &str| OperatorEntry::limit("api", KEY, limit);
    for (entry, message) in [
        (new("20/h").until(past), "it would have ended already"),
        (new("0%"), "there is no such part of fixed_window 10/h"),
        (new("20/mni"), "did you mean \"min\"?"),
        (new("20/h").because("x".repeat(2 << 20)), "end some of them"),
    ] {
        let refused = redis.set(entry, &bindings, &alice()).await;
        let refused = refused.expect_err("it is wrong");
        assert_eq!(refused.kind(), PushErrorKind::Document);
        let said = refused.to_string();
        assert!(said.contains(message) && !said.contains(KEY), "{said}");
    }
    let unknown = redis.end(&[7], &bindings, &alice()).await;
    let unknown = unknown.expect_err("there is none").to_string();
    assert!(unknown.contains("nothing is set"), "{unknown}");
    let nothing = redis.end(&[], &bindings, &alice()).await;
    assert_eq!(nothing.expect("there is nothing to do"), 1);

    // Who can write to Redis cannot take it away.
    redis
        .set(new("20/h"), &bindings, &alice())
        .await
        .expect("right");
    let _: i64 = server.ask(&["HDEL", "{shop}:rules", "operators"]).await;
    let wrong = redis
        .stored(&bindings)
        .await
        .expect_err("it is not signed so");
    assert!(wrong.to_string().contains("not signed"), "{wrong}");
}
