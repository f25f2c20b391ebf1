//! Tickets of requests that took units of several kinds.

use tollgate_conformance::RemoteStore;
use tollgate_core::{Limiter, MemoryStore, Quota, Rule};

use crate::{LONG, at_once, check, left};

#[test]
fn one_rule_of_a_ticket_is_settled_and_the_others_are_let_be() {
    let rules = [
        Rule::new("requests", Quota::gcra(10, LONG)),
        Rule::new("bytes", Quota::gcra(10_000, LONG)),
    ];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
    let checks = [
        check(&limiter, "requests", "ann", 1),
        check(&limiter, "bytes", "ann", 4_000),
    ];
    let decision = at_once(limiter.acquire(&checks));
    let ticket = limiter.ticket(&checks, &decision);
    ticket
        .of_rule("bytes")
        .expect("the rule is there")
        .settle(1_500);
    assert_eq!(left(&limiter, "requests", "ann"), 9);
    assert_eq!(left(&limiter, "bytes", "ann"), 8_500);
}

#[test]
fn a_ticket_of_a_rule_that_is_not_there_says_which_are() {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [Rule::new("bytes", Quota::gcra(10, LONG))],
    )
    .expect("valid");
    let checks = [check(&limiter, "bytes", "ann", 1)];
    let decision = at_once(limiter.acquire(&checks));
    let unknown = limiter.ticket(&checks, &decision).of_rule("octets");
    let message = unknown.expect_err("there is none").to_string();
    assert!(
        message.contains("octets") && message.contains("bytes"),
        "{message}"
    );
}

#[test]
fn each_rule_of_a_ticket_is_settled_once_to_a_cost_of_its_own() {
    let names = ["requests", "bytes", "rows", "pages"];
    let rules = names.map(|name| Rule::new(name, Quota::fixed_window(100, LONG)));
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
    let checks = names.map(|rule| check(&limiter, rule, "ann", 10));
    // Two of them give as much back, one takes more, and one is left as it is.
    for _ in 0..2 {
        let decision = at_once(limiter.acquire(&checks));
        let ticket = limiter.ticket(&checks, &decision);
        ticket.settle_each(|check| [Some(4), Some(12), Some(4), None][usize::from(check.rule())]);
    }
    let left = names.map(|rule| left(&limiter, rule, "ann"));
    assert_eq!(left, [92, 76, 92, 80]);
}

#[tokio::test]
async fn checks_that_cost_alike_are_settled_in_one_call_and_what_cost_as_much_as_it_took_in_none() {
    let store = RemoteStore::new(MemoryStore::new());
    let rules = ["one", "two", "asks"].map(|name| Rule::new(name, Quota::gcra(100, LONG)));
    let limiter = Limiter::new(store.clone(), rules).expect("valid");
    for (costs, settlements) in [
        ([Some(3), Some(3)], 0),
        ([None, Some(3)], 0),
        ([Some(1), Some(1)], 1),
        ([Some(5), Some(5)], 1),
        ([Some(0), Some(0)], 1),
        ([Some(0), Some(3)], 1),
        ([Some(1), Some(2)], 2),
    ] {
        // The third takes nothing, whatever it is said to have cost.
        let checks = [("one", 3), ("two", 3), ("asks", 0)];
        let checks = checks.map(|(rule, cost)| check(&limiter, rule, "ann", cost));
        let decision = limiter.acquire(&checks).await;
        let before = store.settlements();
        let ticket = limiter.ticket(&checks, &decision);
        ticket.settle_each(|check| match check.rule() {
            2 => Some(7),
            rule => costs[usize::from(rule)],
        });
        assert_eq!(store.settlements() - before, settlements, "{costs:?}");
    }
}
