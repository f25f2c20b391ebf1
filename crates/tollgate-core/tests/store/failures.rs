//! What a request gets when its store fails: per rule, by the rule's own answer.

use std::{num::NonZeroU32, time::Duration};

use tokio::time::Instant;
use tollgate_conformance::{Fault, RemoteStore};
use tollgate_core::{
    Clock, Decision, Limiter, MemoryStore, OnStoreError, Outcome, Quota, Reason, Retry, Rule,
    RuleErrorKind, Source, types::CheckPolicy,
};

use crate::{LONG, admitted_in_fallback, check, left};

fn log(limit: u64) -> Quota {
    Quota::sliding_log(limit, LONG)
}

/// A remote store over `memory` each of whose calls, from the one with number `from` on, has this fault.
fn failing(memory: &MemoryStore, from: u64, fault: Fault) -> RemoteStore {
    RemoteStore::new(memory.clone()).faults(move |call| (call >= from).then_some(fault))
}

/// A store each of whose calls is refused.
fn down() -> RemoteStore {
    failing(&MemoryStore::new(), 1, Fault::Refused)
}

fn limiter<const N: usize>(store: &RemoteStore, rules: [Rule; N]) -> Limiter {
    Limiter::new(store.clone(), rules).expect("valid rules")
}

async fn take(limiter: &Limiter, rule: &str, cost: u64) -> Decision {
    limiter.acquire(&[check(limiter, rule, "a", cost)]).await
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_allows_on_failure_passes_as_degraded() {
    for answer in [OnStoreError::Allow, OnStoreError::Degraded] {
        let rule = Rule::new("rule", log(1)).on_store_error(answer);
        let limiter = limiter(&down(), [rule]);
        for _ in 0..3 {
            let decision = take(&limiter, "rule", 1).await;
            assert!(decision.is_allowed() && decision.is_degraded());
            assert_eq!(decision.reason(), None);
            assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
            assert!(!decision.verdicts()[0].has_numbers());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denies_on_failure_says_so_and_invents_no_numbers() {
    let rule = Rule::new("rule", log(9)).on_store_error(OnStoreError::Deny);
    let limiter = limiter(&down(), [rule]);
    let decision = take(&limiter, "rule", 1).await;
    assert_eq!(decision.outcome(), Outcome::Deny);
    assert_eq!(decision.reason(), Some(Reason::StoreFailed));
    assert_eq!(decision.retry(), Retry::Unknown);
    assert_eq!(decision.retry_after(), None);
    assert!(!decision.verdicts()[0].has_numbers());
}

/// How checks with these answers and costs, one after the other, are decided while the store is down: whether they pass, and
/// the units that are left of what is counted here.
async fn answered(own: OnStoreError, checks: &[(Option<OnStoreError>, u64)]) -> Vec<(bool, u64)> {
    let limiter = limiter(&down(), [Rule::new("rule", log(9)).on_store_error(own)]);
    let mut answers = Vec::new();
    for (answer, cost) in checks {
        let policy = answer.map_or_else(CheckPolicy::default, |answer| {
            let policy = CheckPolicy::default().on_store_error(answer);
            policy.expect("an answer for some checks")
        });
        let check = check(&limiter, "rule", "a", 1).with_policy(policy);
        // The policy stays whatever the cost becomes.
        let decision = limiter.acquire(&[check.with_cost(*cost)]).await;
        let verdict = decision.verdicts()[0];
        answers.push((decision.is_allowed(), verdict.remaining()));
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn some_checks_of_a_rule_have_another_answer_to_a_store_failure_on_one_budget() {
    use OnStoreError::{Allow, Cap, Degraded, Deny, LocalShare};
    let reads = (None, 4);
    let (open, closed) = ((Some(Allow), 4), (Some(Deny), 4));
    // What passes uncounted, or is denied, takes nothing from the share.
    let answers = answered(LocalShare, &[reads, open, closed, reads, reads, open]).await;
    let passed = [
        (true, 5),
        (true, 0),
        (false, 0),
        (true, 1),
        (false, 1),
        (true, 0),
    ];
    assert_eq!(answers, passed);
    let answers = answered(Cap(log(4)), &[reads, closed, reads, (Some(Degraded), 4)]).await;
    assert_eq!(answers, [(true, 0), (false, 0), (false, 0), (true, 0)]);
    for own in [Allow, Degraded] {
        let answers = answered(own, &[reads, closed]).await;
        assert_eq!(answers, [(true, 0), (false, 0)]);
    }
    assert_eq!(
        answered(Deny, &[reads, open]).await,
        [(false, 0), (true, 0)]
    );
}

#[test]
fn an_answer_that_counts_is_a_rule_s_own() {
    for answer in [OnStoreError::LocalShare, OnStoreError::Cap(log(4))] {
        let error = CheckPolicy::default().on_store_error(answer);
        let error = error.expect_err("it counts");
        assert_eq!(error.kind(), RuleErrorKind::Mode);
        let text = error.to_string();
        for words in [
            "one share or one cap",
            "own on_store_error",
            "Allow, Deny or Degraded",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cap_counts_against_its_own_quota_under_every_plan() {
    let rule = Rule::new("rule", log(100))
        .plan("gold", log(1_000))
        .on_store_error(OnStoreError::Cap(Quota::gcra(2, LONG)));
    let limiter = limiter(&down(), [rule]);
    let gold = limiter
        .check_with_plan("rule", "gold", &tollgate_core::Key::of("a"))
        .expect("the plan is there");
    assert!(limiter.acquire(&[gold]).await.is_allowed());
    assert!(take(&limiter, "rule", 1).await.is_allowed());
    assert!(!limiter.acquire(&[gold]).await.is_allowed());
    assert_eq!(
        take(&limiter, "rule", 1).await.reason(),
        Some(Reason::Quota)
    );
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_but_not_above_the_quota_is_not_never() {
    let rules = [Rule::new("rule", log(10))];
    let five = NonZeroU32::new(5).expect("not zero");
    let limiter = Limiter::new(down(), rules).and_then(|limiter| limiter.shared_by(five));
    let limiter = limiter.expect("valid rules");
    let decision = take(&limiter, "rule", 3).await;
    assert_eq!(decision.reason(), Some(Reason::StoreFailed));
    assert_eq!(decision.retry(), Retry::Unknown);
    assert_eq!(
        take(&limiter, "rule", 11).await.reason(),
        Some(Reason::Never)
    );
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_a_check_brings_along_has_a_share_of_its_own_and_no_cap_but_that_of_the_rule()
{
    for (answer, passes) in [
        (OnStoreError::LocalShare, 10),
        (OnStoreError::Cap(log(4)), 4),
    ] {
        let rules = [Rule::new("rule", log(6))
            .variable_quota()
            .on_store_error(answer)];
        let two = NonZeroU32::new(2).expect("not zero");
        let limiter = Limiter::new(down(), rules).and_then(|limiter| limiter.shared_by(two));
        let limiter = limiter.expect("valid rules");
        let brought = limiter.quota_for("rule", log(20)).expect("a quota");
        let check = check(&limiter, "rule", "a", 1).with_quota(brought);
        let mut passed = 0;
        while limiter.acquire(&[check]).await.is_allowed() {
            passed += 1;
        }
        assert_eq!(passed, passes, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn equal_checks_are_folded_in_the_local_share_as_well() {
    let limiter = limiter(&down(), [Rule::new("rule", log(4))]);
    let one = check(&limiter, "rule", "a", 1);
    for allowed in [true, true, false] {
        let decision = limiter.acquire(&[one, one]).await;
        assert_eq!(decision.is_allowed(), allowed, "{decision:?}");
        assert_ne!(decision.outcome(), Outcome::Failed);
        let sources: Vec<_> = decision.verdicts().iter().map(|v| v.source()).collect();
        assert_eq!(sources, [Source::Fallback, Source::Fallback]);
    }
}

#[tokio::test(start_paused = true)]
async fn local_shares_of_a_request_are_taken_whole_or_not_at_all() {
    let limiter = limiter(
        &down(),
        [Rule::new("one", log(9)), Rule::new("other", log(2))],
    );
    let both = [
        check(&limiter, "one", "a", 1),
        check(&limiter, "other", "a", 1),
    ];
    for n in 0..6 {
        assert_eq!(limiter.acquire(&both).await.is_allowed(), n < 2);
    }
    // Two of nine were taken.
    assert!(take(&limiter, "one", 7).await.is_allowed());
    assert!(!take(&limiter, "one", 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn each_rule_of_a_request_has_its_own_answer() {
    let rules = [
        Rule::new("share", log(2)),
        Rule::new("open", log(2)).on_store_error(OnStoreError::Allow),
        Rule::new("closed", log(2)).on_store_error(OnStoreError::Deny),
    ];
    let limiter = limiter(&down(), rules);
    let checks = ["share", "open", "closed"].map(|rule| check(&limiter, rule, "a", 1));
    let decision = limiter.acquire(&checks).await;
    assert_eq!(decision.reason(), Some(Reason::StoreFailed));
    let outcomes: Vec<_> = decision.verdicts().iter().map(|v| v.outcome()).collect();
    assert_eq!(
        outcomes,
        [Outcome::NotDecided, Outcome::Allow, Outcome::Deny]
    );
    // The share of a request that is denied anyway is not touched.
    for _ in 0..2 {
        assert!(limiter.acquire(&checks[..2]).await.is_allowed());
    }
    assert!(!limiter.acquire(&checks[..2]).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denied_before_the_failure_wins() {
    for answer in [
        OnStoreError::Deny,
        OnStoreError::Allow,
        OnStoreError::LocalShare,
        OnStoreError::Cap(log(1)),
    ] {
        let memory = MemoryStore::new();
        // The second request's first call.
        let store = RemoteStore::new(memory.clone())
            .partitioned()
            .faults(|call| (call == 2).then_some(Fault::Refused));
        let limiter = limiter(
            &store,
            [
                Rule::new("counts", log(1)),
                Rule::new("fails", log(9)).on_store_error(answer),
            ],
        );
        assert!(take(&limiter, "counts", 1).await.is_allowed());
        let checks = [
            check(&limiter, "fails", "a", 1),
            check(&limiter, "counts", "a", 1),
        ];
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.reason(), Some(Reason::Quota), "{answer:?}");
        assert!(matches!(decision.retry(), Retry::After(_)), "{answer:?}");
        assert_eq!(
            decision.verdicts()[0].outcome(),
            Outcome::NotDecided,
            "{answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_is_given_back_when_a_failed_rule_denies() {
    for answer in [OnStoreError::Deny, OnStoreError::Cap(log(1))] {
        let memory = MemoryStore::new();
        let rules = [
            Rule::new("counts", log(5)),
            Rule::new("fails", log(5)).on_store_error(answer),
        ];
        let store = RemoteStore::new(memory.clone())
            .partitioned()
            .faults(|call| call.is_multiple_of(2).then_some(Fault::Refused));
        let limiter = limiter(&store, rules.clone());
        let direct = Limiter::new(memory, rules).expect("valid rules");
        let checks = [
            check(&limiter, "counts", "a", 2),
            check(&limiter, "fails", "a", 2),
        ];
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.outcome(), Outcome::Deny, "{answer:?}");
        assert_eq!(left(&direct, "counts", "a"), 5, "{answer:?}");
        assert_eq!(store.settlements(), 1, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_unknown_outcome_nothing_is_given_back() {
    for fault in [Fault::Lost, Fault::Silent] {
        let memory = MemoryStore::new();
        let rule = || [Rule::new("rule", log(5)).on_store_error(OnStoreError::Deny)];
        let store = failing(&memory, 1, fault);
        let limiter = limiter(&store, rule());
        let direct = Limiter::new(memory, rule()).expect("valid rules");
        assert!(!take(&limiter, "rule", 2).await.is_allowed());
        assert_eq!(left(&direct, "rule", "a"), 3, "{fault:?}");
        assert_eq!(store.settlements(), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_gives_back_only_what_the_store_is_known_to_hold() {
    let memory = MemoryStore::new();
    let rules = || {
        [
            Rule::new("counts", log(5)),
            Rule::new("fails", log(5)).on_store_error(OnStoreError::Allow),
        ]
    };
    let store = RemoteStore::new(memory.clone())
        .partitioned()
        .faults(|call| (call == 2).then_some(Fault::Lost));
    let limiter = limiter(&store, rules());
    let direct = Limiter::new(memory, rules()).expect("valid rules");
    let checks = [
        check(&limiter, "counts", "a", 2),
        check(&limiter, "fails", "a", 2),
    ];
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    limiter.ticket(&checks, &decision).cancel();
    assert_eq!(left(&direct, "counts", "a"), 5);
    assert_eq!(left(&direct, "fails", "a"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_fails_counts_against_no_share_and_says_that_it_failed() {
    let rules = [
        Rule::new("shadow", log(9)).shadow(),
        Rule::new("rule", log(2)),
    ];
    let limiter = limiter(&down(), rules);
    let checks = ["shadow", "rule"].map(|rule| check(&limiter, rule, "a", 1));
    for is_allowed in [true, true, false] {
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.is_allowed(), is_allowed);
        let shadow = decision.verdicts()[0];
        let seen = (shadow.outcome(), shadow.source());
        assert_eq!(seen, (Outcome::Failed, Source::None));
    }
    assert_eq!(admitted_in_fallback(&limiter, "shadow"), 0);
    assert_eq!(admitted_in_fallback(&limiter, "rule"), 2);
    // Nor does it become one that is not decided where another rule denies.
    let denies = Rule::new("closed", log(9)).on_store_error(OnStoreError::Deny);
    let shadow = Rule::new("shadow", log(9)).shadow();
    let rules = [shadow.on_store_error(OnStoreError::Deny), denies];
    let limiter = self::limiter(&down(), rules);
    let checks = ["shadow", "closed"].map(|rule| check(&limiter, rule, "a", 1));
    let decision = limiter.acquire(&checks).await;
    assert_eq!(decision.outcome(), Outcome::Deny);
    assert_eq!(decision.verdicts()[0].outcome(), Outcome::Failed);
    assert!(limiter.acquire(&checks[..1]).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn what_the_store_has_decided_is_not_counted_as_let_through_without_it() {
    let store = RemoteStore::new(MemoryStore::new())
        .partitioned()
        .faults(|call| (call == 2).then_some(Fault::Refused));
    let names = ["counts", "fails"];
    let limiter = limiter(&store, names.map(|name| Rule::new(name, log(5))));
    let checks = names.map(|rule| check(&limiter, rule, "a", 2));
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    let sources: Vec<_> = decision.verdicts().iter().map(|v| v.source()).collect();
    assert_eq!(sources, [Source::Store, Source::Fallback]);
    let counted = names.map(|name| admitted_in_fallback(&limiter, name));
    assert_eq!(counted, [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_reset_during_an_outage_is_an_error_and_clears_the_local_share() {
    let limiter = limiter(&down(), [Rule::new("rule", log(1))]);
    assert!(take(&limiter, "rule", 1).await.is_allowed());
    assert!(!take(&limiter, "rule", 1).await.is_allowed());
    let reset = limiter
        .reset("rule", &tollgate_core::Key::of("a"))
        .expect("the rule is there");
    assert!(reset.await.expect_err("it is down").is_transient());
    assert!(take(&limiter, "rule", 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_may_wait_gets_the_rule_s_answer_as_well() {
    let wait = Duration::from_secs(1);
    for (answer, passes) in [(OnStoreError::Allow, true), (OnStoreError::Deny, false)] {
        let rule = Rule::new("rule", Quota::concurrent(1)).wait(wait);
        let limiter = limiter(&down(), [rule.on_store_error(answer)]);
        let checks = [check(&limiter, "rule", "a", 1)];
        let decision = limiter.attempt(&checks).within(wait).decide().await;
        assert_eq!(decision.is_allowed(), passes);
        assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_whether_it_or_the_patience_was_given_first() {
    let second = Duration::from_secs(1);
    let memory = MemoryStore::builder().clock(Clock::tokio()).build();
    let slow = RemoteStore::new(memory).delay(LONG / 2).deadline(LONG);
    let asks = limiter(&slow, [Rule::new("rule", log(1))]);
    let waits = limiter(
        &RemoteStore::new(MemoryStore::new()),
        [Rule::new("rule", log(1))],
    );
    assert!(take(&waits, "rule", 1).await.is_allowed());
    for is_first in [true, false] {
        let begun = Instant::now();
        let checks = [&asks, &waits].map(|limiter| [check(limiter, "rule", "a", 1)]);
        let [asked, waited] =
            [(&asks, &checks[0]), (&waits, &checks[1])].map(|(limiter, checks)| {
                let (attempt, deadline) = (limiter.attempt(checks), begun + second);
                match is_first {
                    true => attempt.answered_by(deadline).within(LONG),
                    false => attempt.within(LONG).answered_by(deadline),
                }
            });
        let (asked, waited) = tokio::join!(asked.decide().into_future(), waited.run());
        assert_eq!(asked.verdicts()[0].source(), Source::Fallback);
        assert!(!waited.expect("a place").is_allowed());
        assert_eq!(begun.elapsed(), second);
    }
}

#[test]
fn an_answer_that_must_be_waited_for_is_not_tried() {
    let limiter = limiter(&down(), [Rule::new("rule", log(1))]);
    let error = limiter.try_acquire("rule", &tollgate_core::Key::shared());
    let error = error.expect_err("it is remote").to_string();
    assert!(error.contains("use `acquire`"), "{error}");
}
