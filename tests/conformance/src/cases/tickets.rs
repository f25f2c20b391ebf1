//! Units that were taken, and are settled.

use std::time::{Duration, UNIX_EPOCH};

use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};
use tollgate_core::{AlgorithmKind, Block, Key, Quota, Reason, Rule, SECOND, Ticket};

use crate::{
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

async fn ticket(limiter: &TestLimiter, rule: &str, cost: u64) -> Ticket {
    let check = [limiter.check(rule, "a", cost)];
    let decision = limiter.acquire(&check).await;
    limiter.0.ticket(&check, &decision)
}

pub async fn a_lower_cost_gives_units_back(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        assert!(limiter.took(rule, "a", 3).await);
        ticket(&limiter, rule, 6).await.settle(4);
        limiter.settled(rule, "a", 3, &quota).await;
        ticket(&limiter, rule, 3).await.settle(0);
        limiter.settled(rule, "a", 3, &quota).await;
        assert!(!limiter.took(rule, "a", 4).await, "{quota:?}");
        assert!(limiter.took(rule, "a", 3).await, "{quota:?}");
        // Used up and denied: the refund is still in force at once.
        assert!(!limiter.took(rule, "a", 1).await, "{quota:?}");
    }
}

pub async fn a_higher_cost_takes_as_far_as_units_are_there(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        ticket(&limiter, rule, 2).await.settle(5);
        limiter.settled(rule, "a", 5, &quota).await;
        ticket(&limiter, rule, 1).await.settle(101);
        limiter.settled(rule, "a", 0, &quota).await;
    }
}

pub async fn after_the_end_of_a_block_a_request_is_settled_under_the_quota_that_counts_again(
    subject: &Subject,
) {
    let ended = Quota::none().until(UNIX_EPOCH + SECOND);
    for quota in every_algorithm(100) {
        let rule = quota.algorithm().name();
        let block = Block::after(2).count_settled();
        let counted = Rule::new(rule, quota).plan("blocked", ended).block(block);
        let limiter = subject.limiter([counted]);
        let check = [limiter.planned(rule, "blocked", "a", 10)];
        for (cost, left) in [(50, 50), (3, 0)] {
            let decision = limiter.acquire(&check).await;
            assert!(decision.is_allowed(), "{quota:?}");
            limiter.0.ticket(&check, &decision).settle(cost);
            limiter.settled(rule, "a", left, &quota).await;
        }
        let denied = limiter.acquire(&check).await;
        assert_eq!(denied.reason(), Some(Reason::Blocked), "{quota:?}");
    }
}

pub async fn under_a_rule_with_debt_a_charge_is_owed_and_nothing_passes_meanwhile(
    subject: &Subject,
) {
    let forgets = [AlgorithmKind::SlidingLog, AlgorithmKind::SlidingBuckets];
    let quotas = every_algorithm(10).into_iter();
    for quota in quotas.filter(|quota| !forgets.contains(&quota.algorithm())) {
        let rule = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(rule, quota).debt(20)]);
        let (first, second) = (
            ticket(&limiter, rule, 4).await,
            ticket(&limiter, rule, 4).await,
        );
        first.settle(17);
        owes(&limiter, rule, 11, &quota).await;
        assert!(!limiter.took(rule, "a", 1).await, "{quota:?}");
        let answer = limiter.take(rule, "a", 0).await;
        assert!(answer.is_allowed(), "what costs nothing passes: {quota:?}");
        // A second request was under way. Of its 16 units 7 lapse.
        second.settle(20);
        owes(&limiter, rule, 20, &quota).await;
        let index = limiter.0.rules().position(rule).expect("it is there");
        let store = limiter.0.rule_store();
        let lapsed = async {
            while store.lapsed_units(index as u16) != 7 {
                yield_now().await
            }
        };
        let lapsed = timeout(Duration::from_secs(60), lapsed).await;
        assert!(lapsed.is_ok(), "7 units lapse: {quota:?}");
        let reset = limiter.0.reset(rule, &Key::of(["a"])).expect("the rule");
        assert!(matches!(reset.await, Ok(true)), "{quota:?}");
        assert_eq!(limiter.left(rule, "a").await, 10, "{quota:?}");
    }
}

/// Waits until a settlement, which runs in the background, has left a key that owes `units`.
async fn owes(limiter: &TestLimiter, rule: &str, units: u64, quota: &Quota) {
    let owes = async {
        while limiter
            .peek(&[limiter.check(rule, "a", 0)])
            .await
            .verdicts()[0]
            .debt()
            != units
        {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let owes = timeout(Duration::from_secs(60), owes).await;
    assert!(owes.is_ok(), "it owes {units}: {quota:?}");
    assert_eq!(limiter.left(rule, "a").await, 0, "{quota:?}");
}

pub async fn a_request_settles_to_its_real_cost(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        ticket(&limiter, rule, 6).await.settle(1);
        limiter.settled(rule, "a", 9, &quota).await;
        ticket(&limiter, rule, 2).await.settle(5);
        limiter.settled(rule, "a", 4, &quota).await;
        ticket(&limiter, rule, 2).await.settle(2);
        limiter.settled(rule, "a", 2, &quota).await;
    }
}

pub async fn a_cancelled_request_gives_everything_back(subject: &Subject) {
    for quota in every_algorithm(10) {
        let (one, other) = (
            format!("{}-1", quota.algorithm()),
            format!("{}-2", quota.algorithm()),
        );
        let limiter = subject.limiter([Rule::new(&*one, quota), Rule::new(&*other, quota)]);
        let checks = [limiter.check(&one, "a", 4), limiter.check(&other, "a", 10)];
        let decision = limiter.acquire(&checks).await;
        // A denial in between, which a deny cache may hold.
        assert!(!limiter.took(&other, "a", 1).await);
        limiter.0.ticket(&checks, &decision).cancel();
        limiter.settled(&one, "a", 10, &quota).await;
        limiter.settled(&other, "a", 10, &quota).await;
        assert!(limiter.took(&other, "a", 10).await, "{quota:?}");
    }
}

pub async fn a_ticket_that_is_dropped_settles_nothing(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        drop(ticket(&limiter, rule, 6).await);
        assert!(!limiter.took(rule, "a", 5).await, "{quota:?}");
        assert_eq!(limiter.left(rule, "a").await, 4, "{quota:?}");
    }
}

pub async fn a_ticket_that_cancels_on_drop_gives_everything_back(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        drop(ticket(&limiter, rule, 6).await.cancel_on_drop());
        limiter.settled(rule, "a", 10, &quota).await;
        ticket(&limiter, rule, 6).await.cancel_on_drop().settle(7);
        limiter.settled(rule, "a", 3, &quota).await;
    }
}

pub async fn a_ticket_that_is_kept_gives_nothing_back(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        ticket(&limiter, rule, 6).await.cancel_on_drop().keep();
        assert!(!limiter.took(rule, "a", 5).await, "{quota:?}");
        assert_eq!(limiter.left(rule, "a").await, 4, "{quota:?}");
    }
}

pub async fn a_ticket_of_a_denial_gives_nothing_back(subject: &Subject) {
    for quota in every_algorithm(10) {
        let (one, other) = (
            format!("{}-1", quota.algorithm()),
            format!("{}-2", quota.algorithm()),
        );
        let limiter = subject.limiter([Rule::new(&*one, quota), Rule::new(&*other, quota)]);
        assert!(limiter.took(&one, "a", 5).await);
        assert!(limiter.took(&other, "a", 10).await);
        // The first rule would have allowed it.
        let checks = [limiter.check(&one, "a", 5), limiter.check(&other, "a", 1)];
        let denied = limiter.acquire(&checks).await;
        assert!(!denied.is_allowed());
        limiter.0.ticket(&checks, &denied).cancel();
        assert!(!limiter.took(&one, "a", 6).await, "{quota:?}");
        assert_eq!(limiter.left(&one, "a").await, 5, "{quota:?}");
        assert_eq!(limiter.left(&other, "a").await, 0, "{quota:?}");
    }
}
