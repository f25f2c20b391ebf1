//! Growing blocks: who does not stop is denied for a time, the next time for longer.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_core::{
    Block, DAY, Decision, HOUR, MAX_PERIOD, MINUTE, Outcome, Quota, Reason, Retry, Rule, SECOND,
};

use crate::{
    quotas::every_algorithm,
    subject::{Subject, TestLimiter},
};

pub(crate) fn block() -> Block {
    Block::after(3)
        .within(10 * MINUTE)
        .for_each([MINUTE, 10 * MINUTE, HOUR])
        .forget_after(DAY)
}

fn level(decision: &Decision) -> Option<u8> {
    let level = decision.verdicts()[0].block_level();
    let is_denied = !decision.is_allowed();
    assert_eq!(
        level.is_some() && is_denied,
        decision.reason() == Some(Reason::Blocked)
    );
    level
}

async fn denied_for_quota(limiter: &TestLimiter, rule: &str, times: usize) {
    for n in 0..times {
        let denied = limiter.take(rule, "a", 1).await;
        assert_eq!(denied.reason(), Some(Reason::Quota), "{rule}, {n}");
    }
}

pub async fn as_many_denials_as_the_block_says_block_one_key(subject: &Subject) {
    for quota in every_algorithm(2) {
        let name = quota.algorithm().name();
        let limiter = subject.limiter([Rule::new(name, quota).block(block())]);
        assert!(limiter.took(name, "a", 2).await, "{quota:?}");
        denied_for_quota(&limiter, name, 2).await;
        for _ in 0..3 {
            let denied = limiter.take(name, "a", 1).await;
            assert_eq!(level(&denied), Some(1), "{quota:?}");
            assert!(
                denied.retry_after() > Some(MINUTE),
                "the quota denies for longer: {denied:?}"
            );
        }
        assert_eq!(limiter.left(name, "a").await, 0, "{quota:?}");
        assert!(limiter.took(name, "c", 2).await, "{quota:?}");
    }
}

pub async fn what_does_not_fail_for_want_of_units_does_not_count(subject: &Subject) {
    for quota in every_algorithm(2) {
        let name = quota.algorithm().name();
        let other = &*format!("other-{name}");
        let never = Quota::sliding_log(1, MAX_PERIOD);
        let rules = [
            Rule::new(name, quota).block(block()),
            Rule::new(other, never),
        ];
        let limiter = subject.limiter(rules);
        assert!(limiter.took(other, "a", 1).await);
        for _ in 0..5 {
            // What another rule denies, a cost that never fits, a cost of 0 and a look.
            let both = [limiter.check(name, "a", 1), limiter.check(other, "a", 1)];
            assert_eq!(limiter.acquire(&both).await.reason(), Some(Reason::Quota));
            let never = limiter.take(name, "a", 3).await;
            assert_eq!(never.reason(), Some(Reason::Never));
            assert!(limiter.took(name, "a", 0).await);
        }
        assert!(limiter.took(name, "a", 2).await, "{quota:?}");
        for _ in 0..5 {
            let look = limiter.peek(&[limiter.check(name, "a", 1)]).await;
            assert_eq!(look.reason(), Some(Reason::Quota), "{quota:?}");
            assert!(limiter.took(name, "a", 0).await);
        }
        // Neither does a grant in part.
        assert_eq!(
            limiter
                .0
                .acquire_up_to(&[limiter.check(name, "b", 1)], 9)
                .await
                .units,
            2
        );
        denied_for_quota(&limiter, name, 2).await;
        assert_eq!(
            level(&limiter.take(name, "a", 1).await),
            Some(1),
            "{quota:?}"
        );
    }
}

pub async fn a_look_says_that_a_key_is_blocked_and_a_cost_of_zero_passes(subject: &Subject) {
    let quota = Quota::fixed_window(1, MAX_PERIOD);
    let limiter = subject.limiter([Rule::new("rule", quota).block(block())]);
    for _ in 0..4 {
        let _ = limiter.take("rule", "a", 1).await;
    }
    let look = limiter.peek(&[limiter.check("rule", "a", 1)]).await;
    assert_eq!(level(&look), Some(1));
    for nothing in [
        limiter.peek(&[limiter.check("rule", "a", 0)]).await,
        limiter.take("rule", "a", 0).await,
    ] {
        assert!(nothing.is_allowed());
        let verdict = nothing.verdicts()[0];
        assert_eq!((verdict.block_level(), verdict.remaining()), (Some(1), 0));
        assert!(matches!(verdict.retry(), Retry::After(_)), "{verdict:?}");
    }
}

pub async fn a_block_comes_before_all_other_reasons_and_takes_nothing(subject: &Subject) {
    let rules = [
        Rule::new("blocks", Quota::fixed_window(1, MAX_PERIOD)).block(block()),
        Rule::new("other", Quota::fixed_window(5, MAX_PERIOD)),
    ];
    let limiter = subject.limiter(rules);
    for _ in 0..4 {
        let _ = limiter.take("blocks", "a", 1).await;
    }
    for cost in [1, 9] {
        let checks = [
            limiter.check("other", "a", cost),
            limiter.check("blocks", "a", 1),
        ];
        let denied = limiter.acquire(&checks).await;
        assert_eq!(denied.reason(), Some(Reason::Blocked));
        // Where a process knows of the block, the other rule is not asked.
        let is_asked = denied.verdicts()[0].outcome() != Outcome::NotDecided;
        assert_eq!(
            denied.retry() == Retry::Never,
            cost == 9 && is_asked,
            "the longest of all: {denied:?}"
        );
    }
    assert_eq!(limiter.left("other", "a").await, 5);
}

pub async fn a_blocked_key_passes_when_its_cost_fits_under_its_plan(subject: &Subject) {
    let rule = Rule::new("rule", Quota::fixed_window(5, MAX_PERIOD)).block(block());
    let limiter = subject.limiter([rule.plan("gold", Quota::fixed_window(9, MAX_PERIOD))]);
    assert!(limiter.took("rule", "a", 1).await);
    for _ in 0..4 {
        let _ = limiter.take("rule", "a", 5).await;
    }
    for (check, is_longer) in [
        (limiter.check("rule", "a", 5), true),
        (limiter.planned("rule", "gold", "a", 5), false),
        (limiter.check("rule", "a", 5), true),
        (limiter.check("rule", "a", 4), false),
    ] {
        let denied = limiter.acquire(&[check]).await;
        assert_eq!(level(&denied), Some(1));
        let says_longer = denied.retry_after() > Some(MINUTE);
        assert_eq!(says_longer, is_longer, "{check:?}: {denied:?}");
    }
}

pub async fn a_shadow_says_that_it_would_block_and_blocks_nobody(subject: &Subject) {
    let rules = [
        Rule::new("rule", Quota::fixed_window(9, MAX_PERIOD)),
        Rule::new("next", Quota::fixed_window(1, MAX_PERIOD))
            .block(block())
            .shadow(),
    ];
    let limiter = subject.limiter(rules);
    for n in 0..9 {
        let checks = ["rule", "next"].map(|rule| limiter.check(rule, "a", 1));
        let decision = limiter.acquire(&checks).await;
        assert!(decision.is_allowed());
        let shadow = decision.verdicts()[1];
        assert_eq!(shadow.block_level().is_some(), n >= 3, "{n}: {shadow:?}");
        assert_eq!(shadow.outcome() == Outcome::Allow, n == 0);
    }
}

pub async fn a_reset_lifts_a_block_and_forgets_its_level(subject: &Subject) {
    let quota = Quota::fixed_window(1, MAX_PERIOD);
    let limiter = subject.limiter([Rule::new("rule", quota).block(block())]);
    for _ in 0..2 {
        assert!(limiter.took("rule", "a", 1).await);
        denied_for_quota(&limiter, "rule", 2).await;
        assert_eq!(level(&limiter.take("rule", "a", 1).await), Some(1));
        let reset = limiter.0.reset_all(&[limiter.check("rule", "a", 1)]).await;
        assert!(reset.expect("the store answers"));
    }
}

pub async fn where_settled_requests_count_denials_do_not(subject: &Subject) {
    for quota in every_algorithm(50) {
        let name = quota.algorithm().name();
        let rule = Rule::new(name, quota).block(block().count_settled());
        let limiter = subject.limiter([rule]);
        let all = [limiter.check(name, "a", 50)];
        let taken = limiter.acquire(&all).await;
        denied_for_quota(&limiter, name, 9).await;
        limiter.0.ticket(&all, &taken).cancel();
        limiter.settled(name, "a", 50, &quota).await;
        // An office that logs in at once, and three who do not know the password.
        let one = [limiter.check(name, "a", 1)];
        let mut tickets = Vec::new();
        for _ in 0..50 {
            let decision = limiter.acquire(&one).await;
            tickets.push(limiter.0.ticket(&one, &decision));
        }
        denied_for_quota(&limiter, name, 20).await;
        for ticket in tickets.drain(3..) {
            ticket.cancel();
        }
        limiter.settled(name, "a", 47, &quota).await;
        let (first, rest) = (tickets.pop(), tickets);
        drop(first);
        assert!(limiter.took(name, "a", 1).await, "{quota:?}");
        drop(rest);
        // A settlement runs in the background.
        let deadline = Instant::now() + Duration::from_secs(60);
        while limiter.peek(&one).await.reason() != Some(Reason::Blocked) {
            assert!(Instant::now() < deadline, "{quota:?} never blocks");
            sleep(Duration::from_millis(1)).await;
        }
    }
}

pub async fn blocks_grow_and_are_forgotten_after_their_time(subject: &Subject) {
    let quota = Quota::sliding_log(1, SECOND);
    let limiter = subject.limiter([Rule::new("rule", quota).block(block())]);
    let clock = subject.clock();
    for (round, time) in [MINUTE, 10 * MINUTE, HOUR, HOUR, MINUTE]
        .into_iter()
        .enumerate()
    {
        assert!(limiter.took("rule", "a", 1).await, "{round}");
        denied_for_quota(&limiter, "rule", 2).await;
        let began = limiter.take("rule", "a", 1).await;
        assert_eq!(
            (level(&began).is_some(), began.retry_after()),
            (true, Some(time)),
            "{round}"
        );
        // Requests do not lengthen it.
        clock.advance(time - SECOND);
        for _ in 0..9 {
            let denied = limiter.take("rule", "a", 1).await;
            assert_eq!(
                (level(&denied).is_some(), denied.retry_after()),
                (true, Some(SECOND))
            );
        }
        clock.advance(SECOND - Duration::from_micros(1));
        assert!(level(&limiter.take("rule", "a", 1).await).is_some());
        clock.advance(Duration::from_micros(1));
        if round == 3 {
            clock.advance(DAY);
        }
    }
}

pub async fn denials_that_are_too_long_ago_do_not_count(subject: &Subject) {
    let quota = Quota::fixed_window(1, MAX_PERIOD);
    let limiter = subject.limiter([Rule::new("rule", quota).block(block())]);
    let clock = subject.clock();
    assert!(limiter.took("rule", "a", 1).await);
    denied_for_quota(&limiter, "rule", 1).await;
    clock.advance(5 * MINUTE);
    denied_for_quota(&limiter, "rule", 1).await;
    clock.advance(5 * MINUTE);
    denied_for_quota(&limiter, "rule", 1).await;
    clock.advance(5 * MINUTE - Duration::from_micros(1));
    assert_eq!(level(&limiter.take("rule", "a", 1).await), Some(1));
}

pub async fn a_clock_that_is_set_back_blocks_nobody_for_longer_than_the_block(subject: &Subject) {
    let quota = Quota::sliding_log(1, SECOND);
    let limiter = subject.limiter([Rule::new("rule", quota).block(block())]);
    let clock = subject.clock();
    for _ in 0..4 {
        let _ = limiter.take("rule", "a", 1).await;
    }
    clock.set(clock.now() - 10_000_000_000);
    let denied = limiter.take("rule", "a", 1).await;
    assert_eq!(level(&denied), Some(1));
    clock.advance(2 * MINUTE);
    let denied = limiter.take("rule", "a", 1).await;
    assert_eq!(level(&denied), None, "{denied:?}");
}
