//! Ids of requests: one that comes again costs its rule nothing.

use std::time::Duration;

use tollgate_core::{
    Block, Check, Decision, MAX_PERIOD, MINUTE, Outcome, Quota, Reason, Rule, SECOND, Ticket,
};

use crate::{
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

fn check(limiter: &TestLimiter, rule: &str, who: &str, id: &str) -> Check {
    limiter.identified(rule, who, 1, id)
}

async fn acquire(limiter: &TestLimiter, rule: &str, who: &str, id: &str) -> Decision {
    limiter.acquire(&[check(limiter, rule, who, id)]).await
}

async fn repeats(limiter: &TestLimiter, rule: &str, who: &str, id: &str) -> bool {
    let decision = acquire(limiter, rule, who, id).await;
    decision.is_allowed() && decision.is_repeat()
}

async fn counts(limiter: &TestLimiter, rule: &str, who: &str, id: &str) -> bool {
    let decision = acquire(limiter, rule, who, id).await;
    decision.is_allowed() && !decision.is_repeat()
}

fn ticket(limiter: &TestLimiter, check: Check, decision: &Decision) -> Ticket {
    limiter.0.ticket(&[check], decision)
}

pub async fn a_repeat_costs_nothing_also_when_nothing_is_left_and_three_times(subject: &Subject) {
    for quota in every_algorithm(2) {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).idempotent(10 * MINUTE)]);
        assert!(counts(&limiter, name, "a", "1").await, "{quota:?}");
        assert!(repeats(&limiter, name, "a", "1").await, "{quota:?}");
        assert_eq!(limiter.left(name, "a").await, 1, "{quota:?}");
        assert!(limiter.took(name, "a", 1).await);
        assert!(!limiter.took(name, "a", 1).await);
        let look = limiter.peek(&[check(&limiter, name, "a", "1")]).await;
        assert!(look.is_allowed() && look.is_repeat(), "{look:?}");
        assert!(repeats(&limiter, name, "a", "1").await, "{quota:?}");
        assert!(repeats(&limiter, name, "a", "1").await, "{quota:?}");
        let fourth = acquire(&limiter, name, "a", "1").await;
        assert_eq!(fourth.reason(), Some(Reason::Quota), "{quota:?}");
        assert!(!acquire(&limiter, name, "a", "2").await.is_allowed());
    }
}

pub async fn an_id_is_of_one_key_one_rule_and_one_cost(subject: &Subject) {
    let quota = Quota::fixed_window(9, MAX_PERIOD);
    let rules = ["one", "other"].map(|name| Rule::new(name, quota).idempotent(MINUTE));
    let limiter = subject.limiter(rules);
    assert!(counts(&limiter, "one", "a", "1").await);
    assert!(counts(&limiter, "one", "b", "1").await);
    assert!(counts(&limiter, "other", "a", "1").await);
    let dearer = [limiter.identified("one", "a", 4, "1")];
    assert!(!limiter.acquire(&dearer).await.is_repeat());
    assert_eq!(limiter.left("one", "a").await, 4);
    // What costs nothing repeats nothing, and two checks on one state have no id in common.
    let free = [limiter.identified("one", "a", 0, "1")];
    assert!(!limiter.acquire(&free).await.is_repeat());
    let twice = [check(&limiter, "one", "a", "1"); 2];
    assert!(!limiter.acquire(&twice).await.is_repeat());
    assert_eq!(limiter.left("one", "a").await, 2);
}

pub async fn other_rules_and_a_block_decide_a_repeat_as_any_request(subject: &Subject) {
    let rules = [
        Rule::new("orders", Quota::fixed_window(1, MAX_PERIOD))
            .idempotent(MINUTE)
            .free_repeats(1)
            .block(Block::after(2)),
        Rule::new("other", Quota::fixed_window(2, MAX_PERIOD)),
    ];
    let limiter = subject.limiter(rules);
    let both = [
        check(&limiter, "orders", "a", "1"),
        limiter.check("other", "a", 1),
    ];
    assert!(!limiter.acquire(&both).await.is_repeat());
    assert!(limiter.took("other", "a", 1).await);
    // A denial uses no repeat up.
    for _ in 0..2 {
        let denied = limiter.acquire(&both).await;
        assert_eq!(denied.reason(), Some(Reason::Quota));
        assert_ne!(denied.verdicts()[0].outcome(), Outcome::Deny);
    }
    assert!(repeats(&limiter, "orders", "a", "1").await);
    for _ in 0..2 {
        assert!(!limiter.took("orders", "a", 1).await);
    }
    let denied = acquire(&limiter, "orders", "a", "1").await;
    assert_eq!(denied.reason(), Some(Reason::Blocked));
    // What another rule has denied is no first request.
    let denied = [check(&limiter, "orders", "b", "1"), both[1]];
    assert!(!limiter.acquire(&denied).await.is_allowed());
    assert!(counts(&limiter, "orders", "b", "1").await);
}

pub async fn a_first_request_that_gets_all_back_forgets_its_id_unless_it_was_repeated(
    subject: &Subject,
) {
    for quota in every_algorithm(10) {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).idempotent(MINUTE)]);
        let first = limiter.identified(name, "a", 4, "1");
        let decision = limiter.acquire(&[first]).await;
        ticket(&limiter, first, &decision).cancel();
        limiter.settled(name, "a", 10, &quota).await;
        // It counts, and a part of it comes back.
        let decision = limiter.acquire(&[first]).await;
        assert!(!decision.is_repeat(), "{quota:?}");
        ticket(&limiter, first, &decision).settle(3);
        limiter.settled(name, "a", 7, &quota).await;
        let repeat = limiter.acquire(&[first]).await;
        assert!(repeat.is_repeat(), "{quota:?}");
        // Its ticket holds nothing.
        ticket(&limiter, first, &repeat).cancel();
        ticket(&limiter, first, &repeat).settle(9);
        // It was repeated: what is settled after it is seen first.
        ticket(&limiter, first, &decision).cancel();
        let other = limiter.check(name, "a", 1);
        let taken = limiter.acquire(&[other]).await;
        ticket(&limiter, other, &taken).settle(3);
        limiter.settled(name, "a", 4, &quota).await;
        assert!(repeats_of(&limiter, first).await, "{quota:?}");
    }
}

async fn repeats_of(limiter: &TestLimiter, check: Check) -> bool {
    limiter.acquire(&[check]).await.is_repeat()
}

pub async fn of_a_key_64_ids_are_kept_and_a_reset_forgets_them(subject: &Subject) {
    let quota = Quota::fixed_window(1_000, MAX_PERIOD);
    let limiter = subject.limiter([Rule::new("rule", quota).idempotent(MINUTE)]);
    for id in 0..65 {
        assert!(counts(&limiter, "rule", "a", &id.to_string()).await, "{id}");
    }
    for id in 1..65 {
        assert!(
            repeats(&limiter, "rule", "a", &id.to_string()).await,
            "{id}"
        );
    }
    assert!(counts(&limiter, "rule", "a", "0").await);
    let reset = limiter.0.reset_all(&[limiter.check("rule", "a", 1)]).await;
    assert!(reset.expect("the store answers"));
    assert!(counts(&limiter, "rule", "a", "0").await);
}

pub async fn an_id_ends_after_its_time_and_lives_longer_than_what_was_used(subject: &Subject) {
    for quota in [Quota::gcra(9, SECOND), Quota::fixed_window(9, SECOND)] {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).idempotent(MINUTE)]);
        assert!(counts(&limiter, name, "a", "1").await);
        subject.clock().advance(30 * SECOND);
        assert_eq!(limiter.left(name, "a").await, 9);
        assert!(repeats(&limiter, name, "a", "1").await);
        assert!(counts(&limiter, name, "a", "2").await);
        // A repeat does not prolong it.
        let tick = Duration::from_micros(1);
        subject.clock().advance(30 * SECOND - tick);
        assert!(repeats(&limiter, name, "a", "1").await);
        subject.clock().advance(tick);
        assert!(counts(&limiter, name, "a", "1").await);
        assert!(repeats(&limiter, name, "a", "2").await);
    }
}
