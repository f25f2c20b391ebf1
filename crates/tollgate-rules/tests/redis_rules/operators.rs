//! What operators set lies beside the pushed document.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{MemoryStore, clock::Clock};
use tollgate_rules::{
    Author, Bindings, Format, OperatorEntry, RuleText,
    operators::{EntryKind, EntryOrigin, EntryStatus},
    redis::PushErrorKind,
};

use crate::{
    KEY, alice, dump::dump, entries, follow, limit_shown, limits, push, says, set, started, until,
};

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(Clock::system().now())
}

#[tokio::test]
async fn a_push_leaves_in_force_what_operators_set_and_what_no_longer_fits_waits() {
    let ((server, redis), bindings) = (started("fixed_window 10/h").await, Bindings::new());
    let rules = follow(&redis).await;
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    let friday = now() + Duration::from_secs(86_400);
    let doubled = OperatorEntry::limit("api", KEY, "200%");
    let doubled = doubled.until(friday).because("contract");
    assert_eq!(set(&redis, doubled).await.expect("set"), 2);
    let bob = Author::new("bob").because("slow database");
    let halved = [OperatorEntry::switch("*", "50%")];
    let halved = redis.set(&halved, &bindings, &bob).await;
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
    let all = stored.document.entries();
    let [one, other] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!((one.kind, one.id), (EntryKind::Override, Some(2)));
    assert_eq!((&*one.rules, &*one.limit), ("api", "fixed_window 80/h"));
    assert_eq!(
        (&one.author, one.reason.as_deref()),
        (&Some(alice()), Some("contract"))
    );
    assert_eq!((&other.author, other.id), (&Some(bob.clone()), Some(3)));
    let is_in_force = |it: &EntryStatus| it.origin == EntryOrigin::Redis && it.problem.is_none();
    assert!(all.iter().all(is_in_force), "{all:?}");
    assert!(!dump(&server).contains(KEY));

    // Its rule counts by something else, is gone, and is there again.
    let other = |name: &str, by: &str| {
        let rule = format!("name = '{name}'\nlimit = 'fixed_window 40/h'\nby = '{by}'\n");
        RuleText::new(format!("version = 1\n[[rules]]\n{rule}"), Format::Toml)
    };
    let gone = "there is no rule \"api\" any more";
    for (text, problem) in [
        (other("api", "client_ip"), "counts by client_ip now"),
        (other("new", "constant"), gone),
    ] {
        let revision = push(&redis, text).await;
        until("it is in force", || rules.status().revision == revision).await;
        let all = entries(&redis).await;
        let mut unfit = all
            .iter()
            .filter_map(|one| Some((one.id, one.problem.as_ref()?)));
        let (id, said) = unfit.next().expect("it does not fit");
        assert!(id == Some(2) && said.contains(problem), "{said}");
        assert_eq!(all.len(), 2);
    }
    push(&redis, limits("fixed_window 40/h")).await;
    until("it is in force", || rules.status().revision == 7).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=40;w=3600");

    let ended = redis.end(&[3], &bindings, &alice()).await;
    assert_eq!(ended.expect("it is there"), 8);
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
    let ((server, redis), bindings) = (started("fixed_window 10/h").await, Bindings::new());
    let past = now() - Duration::from_secs(60);
    let new = |limit: &str| OperatorEntry::limit("api", KEY, limit);
    for (entry, message) in [
        (new("20/h").until(past), "its end is past"),
        (
            OperatorEntry::limit_of_hash("api", 7, "20/h").and_key(KEY),
            "is that of all parts",
        ),
        (new("0%"), "to block, write \"none\""),
        (new("20/mni"), "did you mean \"min\"?"),
        (new("20/h").because("x".repeat(2 << 20)), "end some of them"),
    ] {
        // All or nothing.
        let fits = OperatorEntry::switch("*", "50%");
        let refused = redis.set(&[fits, entry], &bindings, &alice()).await;
        let refused = refused.expect_err("it is wrong");
        assert_eq!(refused.kind(), PushErrorKind::Document);
        let said = refused.to_string();
        assert!(said.contains(message) && !said.contains(KEY), "{said}");
    }
    let unknown = redis.end(&[7], &bindings, &alice()).await;
    let unknown = unknown.expect_err("there is none").to_string();
    says(&unknown, "has the number");
    let nothing = redis.end(&[], &bindings, &alice()).await;
    assert_eq!(nothing.expect("there is nothing to do"), 1);

    // Who can write to Redis cannot take it away.
    set(&redis, new("20/h")).await.expect("right");
    let _: i64 = server.ask(&["HDEL", RULES, "operators"]);
    let wrong = redis.stored(&bindings).await;
    let wrong = wrong.expect_err("it is not signed so");
    says(&wrong, "not signed");
}

/// All fields of the document in Redis.
const RULES: &str = "{shop}:rules";

#[tokio::test]
async fn what_operators_had_set_is_said_to_be_lost_where_redis_was_emptied_before_a_push() {
    let ((server, redis), bindings) = (started("fixed_window 10/h").await, Bindings::new());
    let block = || OperatorEntry::limit("api", KEY, "none").because("a flood");
    let set = async || set(&redis, block()).await;
    assert_eq!(set().await.expect("set"), 2);
    let rules = follow(&redis).await;
    let blocked = || rules.document().entries().len();
    let _: i64 = server.ask(&["DEL", RULES]);
    until("it is noticed", || rules.status().source_error.is_some()).await;
    let error = rules.status().source_error.expect("there are none");
    says(&error, "and then set again what operators had set");
    assert_eq!(
        (set().await.expect_err("no rules").kind(), blocked()),
        (PushErrorKind::Document, 1)
    );

    // Also by a later push.
    let line = "lost with Redis, set it again: api: none for one key (a flood), set by alice";
    for (revision, limit) in [(3, "fixed_window 10/h"), (4, "fixed_window 20/h")] {
        assert_eq!(push(&redis, limits(limit)).await, revision);
        until("it is in force", || rules.status().revision == revision).await;
        assert_eq!((rules.status().lost, blocked()), (vec![line.to_owned()], 0));
        let stored = redis.stored(&bindings).await.expect("signed");
        assert_eq!(stored.expect("there are rules").lost, Some(2));
    }
    assert_eq!(set().await.expect("set again"), 5);
    until("it is in force", || rules.status().revision == 5).await;
    assert_eq!((rules.status().lost, blocked()), (Vec::new(), 1));
}

#[tokio::test]
async fn an_old_document_that_is_put_back_with_its_entries_is_not_built_upon() {
    let ((server, redis), bindings) = (started("fixed_window 10/h").await, Bindings::new());
    let set = async |key: &str| set(&redis, OperatorEntry::limit("api", key, "none")).await;
    set("ended-later").await.expect("set");
    let older: Vec<String> = server.ask(&["HGETALL", RULES]);
    redis.end(&[2], &bindings, &alice()).await.expect("ended");
    set(KEY).await.expect("set");
    let rules = follow(&redis).await;
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    let blocked = async || {
        let shown = [KEY, "ended-later"].map(|key| limit_shown(&layer, key));
        let [one, other] = shown;
        [one.await.is_empty(), other.await.is_empty()]
    };
    let is = async || (rules.status().revision, blocked().await);
    assert_eq!(is().await, (4, [true, false]));
    let fleet = || rules.status().fleet;
    until("it is heard", || {
        fleet().is_some_and(|it| it.processes == 1)
    })
    .await;
    let mut put_back = vec!["HSET", RULES];
    put_back.extend(older.iter().map(String::as_str));
    let _: i64 = server.ask(&put_back);
    let _: i64 = server.ask(&["PUBLISH", RULES, "2"]);
    until("it is rejected", || rules.status().rejected == 1).await;
    assert_eq!(is().await, (4, [true, false]));
    // With this alone, all processes would go back.
    let refused = set("another").await.expect_err("Redis is behind");
    let said = refused.to_string();
    says(
        &said,
        "Redis has the rules of revision 2, and processes those of revision 4",
    );

    assert_eq!(push(&redis, limits("fixed_window 10/h")).await, 5);
    until("it is in force", || rules.status().revision == 5).await;
    assert_eq!(
        rules.status().lost,
        [
            "lost with Redis, set it again: api: none for one key, set by alice",
            "in force again from an older state of Redis: api: none for one key, set by alice",
        ]
    );
}
