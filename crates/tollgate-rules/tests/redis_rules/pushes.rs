//! Pushing documents, overrides and switches.

use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate::{Limiter, MemoryStore, Quota, Rule};
use tollgate_rules::{
    Bindings, Format, OperatorEntry, RuleText,
    redis::{PushErrorKind, RedisRules},
};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    KEY, alice, dump::dump, entries, follow, limit_of, limit_shown, limits, push, redis, says,
    secret, set, started, until, with_override,
};

#[tokio::test]
async fn a_pushed_document_is_in_force_and_holds_no_key() {
    let server = RedisServer::start(&[]).await;
    let redis = redis(&server);
    assert_eq!(push(&redis, with_override("fixed_window 9/h")).await, 1);
    let rules = follow(&redis).await;
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=9;w=3600");
    assert_eq!(limit_shown(&layer, "other").await, "\"api\";q=3;w=3600");

    assert_eq!(push(&redis, with_override("fixed_window 8/h")).await, 2);
    until("it is in force", || rules.status().revision == 2).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=8;w=3600");

    // It is there already.
    assert_eq!(push(&redis, with_override("fixed_window 8/h")).await, 2);

    let all = dump(&server);
    assert!(!all.contains(KEY), "{all}");
    says(&all, "\"hash\"");
    let document = redis.document().await.expect("signed");
    let (revision, text) = document.expect("there is one");
    assert_eq!(revision, 2);
    // A file may name the hash as well.
    let text = RuleText::new(text, Format::Json);
    let error = text.parse(&Bindings::new());
    let error = error.expect_err("there is no secret");
    says(&error, "Bindings::secret");
    let bindings = Bindings::new().secret(&crate::secret(7));
    let document = text.parse(&bindings).expect("there is a secret");
    for (key, limit) in [(KEY, 8), ("other", 3)] {
        let explained = document.explain_key("api", &[key]).expect("one part");
        assert_eq!(explained.quota.limit(), limit, "{key}");
    }
}

#[tokio::test]
async fn overrides_and_switches_reach_all_processes() {
    let server = RedisServer::start(&[]).await;
    let redis = redis(&server);
    let bindings = Bindings::new();
    let early = set(&redis, OperatorEntry::switch("*", "off")).await;
    let early = early.expect_err("there is nothing to switch").to_string();
    says(&early, "push a document first");

    push(&redis, limits("fixed_window 10/h")).await;
    let rules = follow(&redis).await;
    let layer = rules.layer(MemoryStore::new()).expect("valid rules");
    let raised = OperatorEntry::limit("api", KEY, "50/h").because("launch week");
    assert_eq!(set(&redis, raised).await.expect("pushed"), 2);
    // Of two for one client the later one counts, and is the only one.
    let raised = OperatorEntry::limit("api", KEY, "60/h");
    assert_eq!(set(&redis, raised).await.expect("pushed"), 3);
    until("it is in force", || rules.status().revision == 3).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=60;w=3600");
    assert_eq!(entries(&redis).await.len(), 1);

    let halved = set(&redis, OperatorEntry::switch("*", "50%")).await;
    assert_eq!(halved.expect("pushed"), 4);
    until("it is in force", || rules.status().revision == 4).await;
    assert_eq!(limit_shown(&layer, KEY).await, "\"api\";q=30;w=3600");
    assert_eq!(limit_shown(&layer, "other").await, "\"api\";q=5;w=3600");
    redis.end(&[4], &bindings, &alice()).await.expect("pushed");
    until("it is in force", || rules.status().revision == 5).await;
    assert_eq!(limit_shown(&layer, "other").await, "\"api\";q=10;w=3600");
    assert!(!dump(&server).contains(KEY));

    let unknown = OperatorEntry::limit("apy", KEY, "50/h");
    let unknown = set(&redis, unknown).await;
    let unknown = unknown.expect_err("there is no such rule").to_string();
    says(&unknown, "did you mean \"api\"?");
}

#[tokio::test]
async fn of_many_who_push_at_once_no_change_is_lost() {
    const OPERATORS: usize = 6;
    let server = Arc::new(RedisServer::start(&[]).await);
    push(&redis(&server), limits("fixed_window 10/h")).await;
    let mut operators = JoinSet::new();
    for n in 0..OPERATORS {
        let server = Arc::clone(&server);
        operators.spawn(async move {
            let entry = OperatorEntry::limit("api", format!("client-{n}"), "50/h");
            let set = set(&redis(&server), entry).await;
            set.expect("it is tried again")
        });
    }
    let mut revisions = operators.join_all().await;
    revisions.sort_unstable();
    assert_eq!(revisions, [2, 3, 4, 5, 6, 7]);
    let (redis, bindings) = (redis(&server), Bindings::new());
    assert_eq!(entries(&redis).await.len(), OPERATORS);
    // What operators set is no push; one that was not seen is in the way of another document.
    let push = async |seen, limit| {
        let (text, alice) = (limits(limit), alice());
        let push = redis.push_after(Some(seen), text, &bindings, &alice, false);
        push.await
    };
    assert_eq!(push(1, "9/h").await.expect("pushed"), 8);
    let refused = push(7, "8/h").await.expect_err("8 was not seen");
    assert_eq!(refused.kind(), PushErrorKind::Conflict);
    assert_eq!(push(7, "9/h").await.expect("there already"), 8);
}

#[tokio::test]
async fn an_outage_ends_in_the_status_also_where_the_document_is_the_same() {
    let server = RedisServer::start(&[]).await;
    let user = "ACL SETUSER limits on >sesame ~* &* +@all";
    let _: String = server.ask(&user.split(' ').collect::<Vec<_>>());
    push(&redis(&server), limits("3/h")).await;
    let address = server.url_of("limits", "sesame");
    let rules = follow(&RedisRules::new(&address, "shop", &secret(7)).expect("an address")).await;
    for right in ["-@all", "+@all"] {
        let _: String = server.ask(&["ACL", "SETUSER", "limits", right]);
        until("it is noticed", || {
            rules.status().source_error.is_some() == (right == "-@all")
        })
        .await;
        assert_eq!((rules.status().revision, limit_of(&rules)), (1, 3));
    }
}

#[tokio::test]
async fn a_document_that_was_rejected_is_in_force_once_nothing_is_in_its_way() {
    let (_server, redis) = started("3/h").await;
    let store = MemoryStore::new();
    let rules = follow(&redis).await;
    let _layer = rules.layer(store.clone()).expect("valid");
    let elsewhere = Rule::new("search", Quota::per_second(1));
    let elsewhere = Limiter::new(store, [elsewhere]).expect("valid");
    let search = "version = 1\n[[rules]]\nname = 'search'\nlimit = '9/h'\nby = 'path'\n";
    let search = RuleText::new(search, Format::Toml);
    push(&redis, limits("4/h").and(search)).await;
    until("it is rejected", || rules.status().rejected == 1).await;
    assert_eq!((rules.status().revision, limit_of(&rules)), (1, 3));
    drop(elsewhere);
    until("it is in force", || rules.status().revision == 2).await;
    let status = rules.status();
    assert_eq!((status.rejected, status.last_rejection), (1, None));
}

#[tokio::test]
async fn a_document_that_redis_has_lost_stays_in_force_and_the_next_one_is_newer() {
    let (mut server, redis) = started("3/h").await;
    push(&redis, limits("4/h")).await;
    let rules = follow(&redis).await;
    assert_eq!(rules.status().revision, 2);

    server.kill();
    until("it is noticed", || rules.status().source_error.is_some()).await;
    assert_eq!((rules.status().revision, limit_of(&rules)), (2, 4));
    server.restart().await;
    let has_none = |error: String| error.contains("no rules in Redis");
    let error = || rules.status().source_error;
    until("there are none", || error().is_some_and(has_none)).await;
    assert_eq!((rules.status().revision, limit_of(&rules)), (2, 4));
    // It comes after what processes have in force.
    assert_eq!(push(&redis, limits("5/h")).await, 3);
    until("it is in force", || rules.status().revision == 3).await;
    assert_eq!(limit_of(&rules), 5);
    assert_eq!(rules.status().source_error, None);
}
