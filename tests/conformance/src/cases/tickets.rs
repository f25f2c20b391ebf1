//! Units that were taken, and are settled.

use tollgate_core::{Rule, Ticket};

use crate::{
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

async fn ticket(limiter: &TestLimiter, rule: &str, cost: u64) -> Ticket {
    let check = [limiter.check(rule, "a", cost)];
    let decision = limiter.acquire(&check).await;
    limiter.0.ticket(&check, &decision)
}

pub async fn a_refund_gives_back_what_was_taken_and_no_more(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        assert!(limiter.took(rule, "a", 3).await);
        ticket(&limiter, rule, 6).await.refund(2);
        limiter.settled(rule, "a", 3, &quota).await;
        ticket(&limiter, rule, 3).await.refund(1_000);
        limiter.settled(rule, "a", 3, &quota).await;
        assert!(!limiter.took(rule, "a", 4).await, "{quota:?}");
        assert!(limiter.took(rule, "a", 3).await, "{quota:?}");
        // Used up and denied: the refund is still in force at once.
        assert!(!limiter.took(rule, "a", 1).await, "{quota:?}");
    }
}

pub async fn a_charge_takes_as_far_as_units_are_there(subject: &Subject) {
    for (limiter, rule, quota) in subject.each(10) {
        ticket(&limiter, rule, 2).await.charge(3);
        limiter.settled(rule, "a", 5, &quota).await;
        ticket(&limiter, rule, 1).await.charge(100);
        limiter.settled(rule, "a", 0, &quota).await;
    }
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
