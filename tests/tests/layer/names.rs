//! One name is one budget: layers hold the names of their rules, as limiters do.

use tollgate::{
    HOUR, Key, Limiter, MINUTE, MemoryStore, Quota, RateLimitLayer, RequestRule, Rule, RuleError,
    error::RuleErrorKind, message::MessageLimitLayer,
};
use tollgate_client::ClientRateLimitLayer;
use tower::Layer;

use tollgate_tests::app::{all, still};

fn strict() -> RequestRule {
    all(Rule::new("per-ip", Quota::fixed_window(5, HOUR)))
}

fn loose_rule() -> Rule {
    Rule::new("per-ip", Quota::fixed_window(6_000, MINUTE))
}

fn loose() -> RequestRule {
    all(loose_rule())
}

fn in_use<T>(made: Result<T, RuleError>) -> bool {
    match made {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), RuleErrorKind::Conflict, "{error}");
            true
        }
    }
}

#[test]
fn a_second_quota_of_a_name_is_rejected_by_layers_and_limiters() {
    let (store, _) = still();
    let log_in = RateLimitLayer::new(store.clone(), [strict()]).expect("the first");
    let error = RateLimitLayer::new(store.clone(), [loose()]).expect_err("the second");
    for words in [
        "\"per-ip\"",
        "fixed_window 5/h",
        "fixed_window 6000/min",
        "another name",
        "the same quota",
    ] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(in_use(MessageLimitLayer::new(store.clone(), [loose()])));
    assert!(in_use(Limiter::new(store.clone(), [loose_rule()])));
    // The same quota shares the budget.
    for made in [
        RateLimitLayer::new(store.clone(), [strict()]).is_ok(),
        MessageLimitLayer::new(store.clone(), [strict()]).is_ok(),
    ] {
        assert!(made);
    }
    // Another store is another budget.
    assert!(RateLimitLayer::new(MemoryStore::new(), [loose()]).is_ok());
    drop(log_in);
    assert!(RateLimitLayer::new(store, [loose()]).is_ok());
}

#[test]
fn message_and_client_layers_hold_names_too() {
    let (store, _) = still();
    let messages = MessageLimitLayer::new(store.clone(), [strict()]).expect("valid");
    assert!(in_use(RateLimitLayer::new(store.clone(), [loose()])));
    let service = messages.layer(());
    drop(messages);
    assert!(in_use(RateLimitLayer::new(store.clone(), [loose()])));
    drop(service);
    let limiter = Limiter::new(store.clone(), [loose_rule()]).expect("valid");
    let client = ClientRateLimitLayer::new().limit(limiter, |limiter, _| {
        limiter.check("per-ip", &Key::shared()).map(|check| [check])
    });
    let client = client.expect("it has no slots");
    assert!(in_use(RateLimitLayer::new(store.clone(), [strict()])));
    let service = client.layer(());
    drop(client);
    assert!(in_use(RateLimitLayer::new(store.clone(), [strict()])));
    drop(service);
    assert!(RateLimitLayer::new(store, [strict()]).is_ok());
}
