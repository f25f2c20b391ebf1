//! Limits of none: whom they block, for how long, and what is asked of the store meanwhile.

use std::time::{Duration, UNIX_EPOCH};

use tollgate_conformance::RemoteStore;
use tollgate_core::{
    Key, Limiter, ManualClock, MemoryStore, Outcome, Quota, Reason, Retry, Rule, SECOND,
};

use crate::{LONG, at_once, check, layered, left};

const START: u64 = 1_700_000_000_000_000;

fn of_plan(limiter: &Limiter, rule: &str, plan: &str) -> tollgate_core::Check {
    let check = limiter.check_with_plan(rule, plan, &Key::of(["a"]));
    check.expect("it has the plan")
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_none_calls_no_store_and_nothing_else_counts_the_request() {
    let store = RemoteStore::new(MemoryStore::new());
    let quota = Quota::fixed_window(5, LONG);
    let rules = [
        Rule::new("counted", quota),
        Rule::new("trial", quota).shadow(),
        Rule::new("blocking", quota).plan("revoked", Quota::none()),
        Rule::new("blocking-trial", Quota::none()).shadow(),
        Rule::new("slots", Quota::concurrent(1)).wait(SECOND),
    ];
    let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
    let mut checks = vec![
        check(&limiter, "counted", "a", 1),
        check(&limiter, "trial", "a", 1),
        of_plan(&limiter, "blocking", "revoked"),
        check(&limiter, "blocking-trial", "a", 1),
        check(&limiter, "slots", "a", 1),
    ];
    for cost in [0, 1, 9] {
        checks[2] = checks[2].with_cost(cost);
        let in_queue = limiter.acquire_within(&checks, SECOND).await;
        for decision in [
            limiter.acquire(&checks).await,
            limiter.peek(&checks).await,
            in_queue.expect("it does not wait"),
            layered(&limiter).attempt(&checks).decide().await,
            limiter.acquire_up_to(&checks, 3).await.decision,
        ] {
            assert_eq!(decision.reason(), Some(Reason::Blocked));
            assert_eq!(decision.retry(), Retry::Never);
            let outcomes = decision.verdicts().iter().map(|verdict| verdict.outcome());
            let undecided = Outcome::NotDecided;
            let expected = [undecided, undecided, Outcome::Deny, undecided, undecided];
            assert!(outcomes.eq(expected), "{decision:?}");
        }
    }
    assert_eq!(store.calls(), 0);
    // The shadow of none denies nothing, and the others count as without it.
    checks.remove(2);
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    assert!(decision.verdicts()[2].is_blocked());
    assert_eq!(decision.verdicts()[0].remaining(), 4);
    let alone = limiter.acquire(&[checks[2]]).await;
    assert!(alone.is_allowed() && alone.verdicts()[0].is_blocked());
    assert_eq!(store.calls(), 1);
}

#[test]
fn a_place_in_a_queue_behind_a_shadow_of_none_goes_back() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(&clock).build();
    let rules = [
        Rule::new("trial", Quota::none()).shadow(),
        Rule::new("waits", Quota::per_second(1)).wait(9 * SECOND),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let checks = ["trial", "waits"].map(|rule| check(&limiter, rule, "a", 1));
    assert!(at_once(limiter.acquire(&checks)).delay().is_zero());
    for _ in 0..3 {
        let second = at_once(limiter.acquire(&checks));
        assert_eq!(second.delay(), SECOND);
        limiter.ticket(&checks, &second).cancel();
    }
    clock.advance(SECOND);
    let second = at_once(limiter.acquire(&checks));
    let started = at_once(limiter.start(&checks, second));
    assert!(started.is_allowed() && started.verdicts()[0].is_blocked());
    assert_eq!(left(&limiter, "waits", "a"), 0);
}

#[test]
fn a_block_with_an_end_says_when_it_is_and_the_longest_of_several_counts() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(&clock).build();
    let until =
        |seconds| Quota::none().until(UNIX_EPOCH + Duration::from_micros(START) + seconds * SECOND);
    let quota = Quota::fixed_window(5, LONG);
    let rules = [
        Rule::new("short", quota).plan("blocked", until(10)),
        Rule::new("long", until(20)),
        Rule::new("endless", Quota::none()),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let short = of_plan(&limiter, "short", "blocked");
    let [long, endless] = ["long", "endless"].map(|rule| check(&limiter, rule, "a", 1));
    let retry = |checks: &[_]| at_once(limiter.acquire(checks)).retry();
    assert_eq!(retry(&[short]), Retry::After(10 * SECOND));
    assert_eq!(retry(&[short, long]), Retry::After(20 * SECOND));
    assert_eq!(retry(&[endless, short, long]), Retry::Never);
    clock.advance(10 * SECOND - Duration::from_micros(1));
    assert_eq!(retry(&[short]), Retry::After(Duration::from_micros(1)));
    clock.advance(Duration::from_micros(1));
    assert_eq!(left(&limiter, "short", "a"), 5);
    // The rule's own quota counts again; the rule that was none limits nothing.
    for left_of_five in (0..5).rev() {
        let decision = at_once(limiter.acquire(&[short]));
        assert!(decision.is_allowed());
        assert_eq!(left(&limiter, "short", "a"), left_of_five);
    }
    assert!(!at_once(limiter.acquire(&[short])).is_allowed());
    clock.advance(10 * SECOND);
    assert!(at_once(limiter.acquire(&[long])).is_allowed());
}

#[test]
fn a_limit_of_none_goes_where_it_can_be_meant_and_nowhere_else() {
    let quota = Quota::sliding_log(5, LONG);
    let new = |rule: Rule| Limiter::new(MemoryStore::new(), [rule]).map(|_| ());
    assert_eq!(new(Rule::new("rule", Quota::none()).cost(9)), Ok(()));
    let cap = tollgate_core::OnStoreError::Cap(Quota::none());
    for (rule, words) in [
        (
            Rule::new("rule", quota).on_store_error(cap),
            "OnStoreError::Deny",
        ),
        (
            Rule::new("rule", quota.until(UNIX_EPOCH)),
            "is Quota::none()",
        ),
        (
            Rule::new("rule", quota).threshold("t", Quota::none()),
            "cannot be read",
        ),
        (
            Rule::new("rule", Quota::fixed_window(0, SECOND)),
            "Quota::none(), in text \"none\"",
        ),
    ] {
        let error = new(rule).expect_err("it means nothing").to_string();
        assert!(error.contains(words), "{error}");
    }
}
