//! Who may change rules, and what happens without Redis.

use tollgate_rules::{
    Bindings, LiveRules, OperatorEntry,
    redis::{PushErrorKind, RedisRules},
};

use crate::{alice, follow, limit_of, limits, push, says, secret, set, started, until};

const DOCUMENT: &str = "{shop}:rules";

#[tokio::test]
async fn a_document_without_a_right_signature_is_rejected() {
    let (server, redis) = started("3/h").await;
    let rules = follow(&redis).await;

    // Somebody who can write to Redis switches the limits off.
    let text: String = server.ask(&["HGET", DOCUMENT, "document"]);
    let off = text.replace("3/h", "unlimited");
    assert_ne!(off, text);
    for (field, value) in [("document", off.as_str()), ("revision", "2")] {
        let _: i64 = server.ask(&["HSET", DOCUMENT, field, value]);
    }
    let _: i64 = server.ask(&["HSET", DOCUMENT, "signature", &"ab".repeat(32)]);
    let _: i64 = server.ask(&["PUBLISH", DOCUMENT, "2"]);
    until("it is rejected", || rules.status().rejected == 1).await;
    let rejection = rules.status().last_rejection.expect("it is rejected");
    says(&rejection, "revision 2 is not signed with the secret");
    assert_eq!((rules.status().revision, limit_of(&rules)), (1, 3));
    // A service that starts does not take it either, nor is it built upon.
    let refused = LiveRules::follow(redis.source(), Bindings::new()).await;
    let refused = refused.expect_err("it is not signed").to_string();
    says(&refused, "not signed");
    assert!(redis.document().await.is_err());
    let entry = OperatorEntry::switch("*", "50%");
    says(
        set(&redis, entry).await.expect_err("nor here"),
        "not signed",
    );
    let (bindings, alice) = (Bindings::new(), alice());
    let pushed = redis.push(limits("4/h"), &bindings, &alice).await;
    says(pushed.expect_err("with what operators set"), "not signed");
    let replaced = redis.replace_all(limits("4/h"), &bindings, &alice);
    assert_eq!(replaced.await.expect("it is replaced"), 3);
    until("it is in force", || rules.status().revision == 3).await;
    assert_eq!(limit_of(&rules), 4);

    // Those of a service with another secret are as good as none.
    let other = RedisRules::new(server.url(), "shop", &secret(8)).expect("an address");
    let replaced = other.replace_all(limits("9/h"), &bindings, &alice);
    assert_eq!(replaced.await.expect("it is replaced"), 4);
    assert_eq!(push(&other, limits("8/h")).await, 5);
    until("they are rejected", || {
        let rejection = rules.status().last_rejection.unwrap_or_default();
        rejection.contains("revision 5 is not signed with the secret")
    })
    .await;
    assert_eq!((rules.status().revision, limit_of(&rules)), (3, 4));
}

#[tokio::test]
async fn a_user_who_may_not_subscribe_follows_all_the_same() {
    let (server, _redis) = started("3/h").await;
    let user = "ACL SETUSER limits on >sesame ~{shop}:* +@all -subscribe resetchannels";
    let _: String = server.ask(&user.split(' ').collect::<Vec<_>>());
    let address = server.url_of("limits", "sesame");
    let restricted = RedisRules::new(&address, "shop", &secret(7)).expect("an address");
    let rules = follow(&restricted).await;
    // Nor may it publish.
    push(&restricted, limits("4/h")).await;
    until("it is found by looking", || rules.status().revision == 2).await;
    assert_eq!(limit_of(&rules), 4);
}

#[test]
fn an_address_or_a_namespace_that_cannot_be_used_is_refused() {
    let error = |address: &str, namespace: &str| {
        let made = RedisRules::new(address, namespace, &secret(7));
        let error = made.expect_err(address);
        assert_eq!(error.kind(), PushErrorKind::Setting);
        error.to_string()
    };
    let address = error("http://:sesame@localhost", "shop");
    assert!(
        address.contains("\"http\" is not one of redis") && !address.contains("sesame"),
        "{address}"
    );
    assert!(error("redis://localhost", "{shop}").contains("is no namespace"));
}
