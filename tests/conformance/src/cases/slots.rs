//! Slots: never more at once than the limit.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinSet};
use tollgate_core::{
    Block, Check, Decision, MAX_PERIOD, Outcome, Quota, Reason, Retry, Rule, SECOND, Ticket,
};

use crate::subject::{Subject, TestLimiter};

/// A ticket of an allowed request, whose decision is gone.
async fn run(limiter: &TestLimiter, checks: &[Check]) -> Option<Ticket> {
    let decision = limiter.acquire(checks).await;
    let ticket = limiter.0.ticket(checks, &decision);
    decision.is_allowed().then_some(ticket)
}

async fn start(limiter: &TestLimiter, rule: &str, who: &str, slots: u64) -> Option<Ticket> {
    run(limiter, &[limiter.check(rule, who, slots)]).await
}

fn exports(limit: u64) -> Rule {
    Rule::new("exports", Quota::concurrent(limit))
}

pub async fn at_most_the_limit_runs_at_once(subject: &Subject) {
    let limiter = subject.limiter([exports(2)]);
    let first = start(&limiter, "exports", "a", 1).await;
    let second = start(&limiter, "exports", "a", 1).await;
    assert!(first.is_some() && second.is_some());
    let denied = limiter.take("exports", "a", 1).await;
    assert_eq!(denied.outcome(), Outcome::Deny);
    assert_eq!(denied.reason(), Some(Reason::Slots));
    assert_eq!(denied.retry(), Retry::Unknown);
    let verdict = denied.verdicts()[0];
    assert!(verdict.is_of_slots() && verdict.has_numbers());
    assert_eq!((verdict.remaining(), verdict.slot_number()), (0, None));
    // Another client has slots of its own.
    assert!(start(&limiter, "exports", "b", 2).await.is_some());
    drop(first);
    limiter.settled("exports", "a", 1, &"one has ended").await;
    let third = start(&limiter, "exports", "a", 1).await;
    assert!(third.is_some());
    assert!(start(&limiter, "exports", "a", 1).await.is_none());
}

pub async fn remaining_is_the_number_of_free_slots(subject: &Subject) {
    let other = Rule::new("other", Quota::fixed_window(1, MAX_PERIOD)).block(Block::after(9));
    let limiter = subject.limiter([exports(10), other]);
    let check = [limiter.check("exports", "a", 3)];
    let decision = limiter.acquire(&check).await;
    assert_eq!(decision.verdicts()[0].remaining(), 7);
    assert_eq!(decision.verdicts()[0].reset_after(), Duration::ZERO);
    assert_eq!(limiter.left("exports", "a").await, 7);
    // Also where the request wants none, and another rule denies it.
    assert!(limiter.take("other", "a", 1).await.is_allowed());
    let checks = [("exports", 0), ("other", 1)].map(|(rule, cost)| limiter.check(rule, "a", cost));
    let denied = limiter.acquire(&checks).await;
    assert_eq!(denied.outcome(), Outcome::Deny);
    assert_eq!(denied.verdicts()[0].remaining(), 7);
    let ticket = limiter.0.ticket(&check, &decision);
    drop(ticket);
    limiter.settled("exports", "a", 10, &"it has ended").await;
}

pub async fn a_typical_hold_time_says_when_to_try_again(subject: &Subject) {
    let quota = Quota::concurrent(4).typically(20 * SECOND);
    let limiter = subject.limiter([Rule::new("exports", quota)]);
    let running = start(&limiter, "exports", "a", 4).await;
    let denied = limiter.take("exports", "a", 2).await;
    assert_eq!(denied.retry(), Retry::After(10 * SECOND));
    drop(running);
}

pub async fn a_cost_above_the_slots_never_fits_and_one_of_zero_holds_none(subject: &Subject) {
    let limiter = subject.limiter([exports(2)]);
    let denied = limiter.take("exports", "a", 3).await;
    assert_eq!(
        (denied.retry(), denied.reason()),
        (Retry::Never, Some(Reason::Never))
    );
    let running = start(&limiter, "exports", "a", 2).await;
    let looked = limiter.take("exports", "a", 0).await;
    assert!(looked.is_allowed());
    assert_eq!(looked.verdicts()[0].slot_number(), None);
    drop(looked);
    assert_eq!(limiter.left("exports", "a").await, 0);
    drop(running);
}

pub async fn a_denied_request_takes_neither_units_nor_slots(subject: &Subject) {
    let rate = Rule::new("rate", Quota::fixed_window(2, MAX_PERIOD));
    let limiter = subject.limiter([rate, exports(1)]);
    let both = |who| {
        [
            limiter.check("rate", who, 1),
            limiter.check("exports", who, 1),
        ]
    };
    let first = run(&limiter, &both("a")).await;
    assert!(first.is_some());
    for _ in 0..3 {
        let denied = limiter.acquire(&both("a")).await;
        assert_eq!(denied.reason(), Some(Reason::Slots));
        // The rate would have let it pass, and keeps its unit.
        assert_eq!(denied.verdicts()[0].remaining(), 1);
    }
    drop(first);
    limiter.settled("exports", "a", 1, &"it has ended").await;
    let second = run(&limiter, &both("a")).await;
    drop(second);
    limiter.settled("exports", "a", 1, &"it has ended").await;
    for _ in 0..3 {
        let denied = limiter.acquire(&both("a")).await;
        assert_eq!(denied.reason(), Some(Reason::Quota));
        assert_eq!(denied.verdicts()[1].slot_number(), None);
    }
    assert_eq!(limiter.left("exports", "a").await, 1);
}

pub async fn slots_go_back_once_whatever_holds_them(subject: &Subject) {
    let limiter = subject.limiter([exports(3)]);
    let other = start(&limiter, "exports", "a", 1).await;
    let check = [limiter.check("exports", "a", 2)];
    let decision = limiter.acquire(&check).await;
    let clone = decision.clone();
    let ticket = limiter.0.ticket(&check, &decision);
    // A second ticket of the decision holds nothing.
    let second = limiter.0.ticket(&check, &clone);
    assert_eq!(second.slot_number("exports"), None);
    assert!(ticket.slot_number("exports").is_some());
    drop((second, decision, clone));
    assert_eq!(limiter.left("exports", "a").await, 0);
    ticket.cancel();
    limiter
        .settled("exports", "a", 2, &"two have gone back")
        .await;
    // A decision that no ticket was made of returns them with its last clone.
    let decision = limiter.acquire(&check).await;
    let clone = decision.clone();
    drop(decision);
    assert_eq!(limiter.left("exports", "a").await, 0);
    drop(clone);
    limiter
        .settled("exports", "a", 2, &"two have gone back")
        .await;
    drop(other);
    limiter
        .settled("exports", "a", 3, &"all have gone back")
        .await;
}

pub async fn every_end_of_a_ticket_returns_its_slots(subject: &Subject) {
    let rate = Rule::new("rate", Quota::fixed_window(100, MAX_PERIOD));
    let limiter = subject.limiter([rate, exports(2)]);
    let checks = [
        limiter.check("rate", "a", 2),
        limiter.check("exports", "a", 2),
    ];
    let ends: [(fn(Ticket), u64); 8] = [
        (drop, 98),
        (Ticket::keep, 96),
        (Ticket::cancel, 96),
        (|ticket| ticket.settle(1), 95),
        (|ticket| ticket.settle(3), 92),
        (|ticket| ticket.settle(5), 87),
        (|ticket| drop(ticket.cancel_on_drop()), 87),
        (
            |ticket| ticket.of_rule("rate").expect("a rule").settle(1),
            86,
        ),
    ];
    for (index, (end, left)) in ends.into_iter().enumerate() {
        let ticket = run(&limiter, &checks).await.expect("all slots are free");
        assert_eq!(limiter.left("exports", "a").await, 0, "{index}");
        end(ticket);
        limiter.settled("exports", "a", 2, &index).await;
        limiter.settled("rate", "a", left, &index).await;
    }
}

pub async fn slots_are_numbered_in_the_order_of_their_start(subject: &Subject) {
    let limiter = subject.limiter([exports(2)]);
    let mut last = 0;
    for _ in 0..50 {
        let ticket = start(&limiter, "exports", "a", 1).await.expect("free");
        let number = ticket.slot_number("exports").expect("it holds a slot");
        assert!(number > last, "{number} after {last}");
        last = number;
        drop(ticket);
        limiter.settled("exports", "a", 2, &"it has ended").await;
    }
}

pub async fn a_lowered_number_of_slots_ends_nothing_and_starts_nothing(subject: &Subject) {
    let limiter = subject.limiter([exports(20)]);
    let mut running = Vec::new();
    for _ in 0..20 {
        running.extend(start(&limiter, "exports", "a", 1).await);
    }
    let fewer = subject.replacing(&[&limiter], [exports(10)]);
    let fewer = fewer.expect("another number of slots");
    drop(limiter);
    assert_eq!(running.len(), 20);
    while running.len() > 9 {
        assert!(
            start(&fewer, "exports", "a", 1).await.is_none(),
            "{} run",
            running.len()
        );
        running.pop();
    }
    fewer.settled("exports", "a", 1, &"nine run").await;
    let tenth = start(&fewer, "exports", "a", 1).await;
    assert!(tenth.is_some());
    assert!(start(&fewer, "exports", "a", 1).await.is_none());
    drop((running, tenth));
    fewer.settled("exports", "a", 10, &"all have ended").await;
}

pub async fn plans_of_slots_share_those_in_use(subject: &Subject) {
    let limiter = subject.limiter([exports(1).plan("gold", Quota::concurrent(3))]);
    let gold = limiter.planned("exports", "gold", "a", 1);
    let first = run(&limiter, &[gold]).await;
    assert!(start(&limiter, "exports", "a", 1).await.is_none());
    let second = run(&limiter, &[gold]).await;
    assert!(first.is_some() && second.is_some());
    drop(first);
    assert!(start(&limiter, "exports", "a", 1).await.is_none());
    drop(second);
    limiter.settled("exports", "a", 1, &"both have ended").await;
    assert!(start(&limiter, "exports", "a", 1).await.is_some());
}

pub async fn checks_on_the_same_slots_are_folded(subject: &Subject) {
    let limiter = subject.limiter([exports(3)]);
    let two = [
        limiter.check("exports", "a", 2),
        limiter.check("exports", "a", 1),
    ];
    let ticket = run(&limiter, &two).await;
    assert!(ticket.is_some());
    assert_eq!(limiter.left("exports", "a").await, 0);
    assert!(run(&limiter, &two).await.is_none());
    drop(ticket);
    limiter.settled("exports", "a", 3, &"both have ended").await;
}

pub async fn a_shadow_of_slots_denies_nothing_and_counts_what_runs(subject: &Subject) {
    let shadow = Rule::new("shadow", Quota::concurrent(1)).shadow();
    let limiter = subject.limiter([exports(2), shadow]);
    let both = [
        limiter.check("exports", "a", 1),
        limiter.check("shadow", "a", 1),
    ];
    let first = run(&limiter, &both).await;
    assert!(first.is_some());
    let second = limiter.acquire(&both).await;
    assert!(second.is_allowed());
    assert_eq!(second.verdicts()[1].outcome(), Outcome::Deny);
    // A denied request does not run.
    let denied = limiter.acquire(&both).await;
    assert!(!denied.is_allowed());
    drop(first);
    limiter.settled("shadow", "a", 1, &"it has ended").await;
    drop(second);
    limiter.settled("exports", "a", 2, &"both have ended").await;
    assert_eq!(limiter.left("shadow", "a").await, 1);
    // Nor where the shadow would have let it.
    let narrow = Rule::new("narrow", Quota::concurrent(1));
    let wide = Rule::new("wide", Quota::concurrent(3)).shadow();
    let limiter = subject.limiter([narrow, wide]);
    let both = ["narrow", "wide"].map(|rule| limiter.check(rule, "a", 1));
    let running = run(&limiter, &both).await;
    assert!(running.is_some());
    let denied = limiter.acquire(&both).await;
    assert!(!denied.is_allowed());
    assert_eq!(denied.verdicts()[1].slot_number(), None);
    assert_eq!(limiter.left("wide", "a").await, 2);
    drop(denied);
    drop(running);
    limiter.settled("wide", "a", 3, &"it has ended").await;
}

pub async fn a_look_at_slots_takes_none(subject: &Subject) {
    let limiter = subject.limiter([exports(1)]);
    let check = [limiter.check("exports", "a", 1)];
    for _ in 0..3 {
        let looked = limiter.peek(&check).await;
        assert!(looked.is_allowed());
        assert_eq!(looked.verdicts()[0].slot_number(), None);
        assert!(looked.take_slots().is_none());
    }
    let running = run(&limiter, &check).await;
    assert!(!limiter.peek(&check).await.is_allowed());
    drop(running);
}

pub async fn a_reset_leaves_slots_to_the_requests_that_run(subject: &Subject) {
    let limiter = subject.limiter([exports(2)]);
    let running = start(&limiter, "exports", "a", 2).await;
    let check = limiter.check("exports", "a", 1);
    assert_eq!(limiter.0.reset_all(&[check]).await.ok(), Some(false));
    assert!(start(&limiter, "exports", "a", 1).await.is_none());
    drop(running);
    limiter.settled("exports", "a", 2, &"both have ended").await;
}

pub async fn another_quota_under_the_name_of_slots_in_use_frees_none(subject: &Subject) {
    let limiter = subject.limiter([exports(2)]);
    let running = start(&limiter, "exports", "a", 1).await;
    let rate = Rule::new("exports", Quota::fixed_window(5, MAX_PERIOD));
    let rate = subject.replacing(&[&limiter], [rate]);
    let rate = rate.expect("another algorithm");
    drop(limiter);
    assert_eq!(rate.left("exports", "a").await, 5);
    assert!(rate.took("exports", "a", 3).await);
    let slots = subject.replacing(&[&rate], [exports(2)]);
    let slots = slots.expect("another algorithm");
    drop(rate);
    // The units of the rate are no slots, and what ran before runs still.
    assert_eq!(slots.left("exports", "a").await, 1);
    drop(running);
    slots.settled("exports", "a", 2, &"it has ended").await;
}

pub async fn among_many_tasks_never_more_than_the_limit_run(subject: &Subject) {
    const LIMIT: u64 = 5;
    let rate = Rule::new("rate", Quota::fixed_window(1_000, MAX_PERIOD));
    let limiter = Arc::new(subject.limiter([rate, exports(LIMIT)]));
    // How many run, how many ran, and the numbers of their slots.
    let running = Arc::new(Mutex::new((0, 0, 0)));
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let (limiter, running) = (Arc::clone(&limiter), Arc::clone(&running));
        tasks.spawn(async move {
            for turn in 0..20 {
                let slots = 1 + (task + turn) % 3;
                let checks = [
                    limiter.check("rate", "a", 1),
                    limiter.check("exports", "a", slots),
                ];
                let Some(ticket) = run(&limiter, &checks).await else {
                    tokio::task::yield_now().await;
                    continue;
                };
                let mut now = running.lock().await;
                now.0 += slots;
                now.1 += 1;
                assert!(now.0 <= LIMIT, "{} slots", now.0);
                drop(now);
                tokio::task::yield_now().await;
                running.lock().await.0 -= slots;
                drop(ticket);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a task");
    }
    limiter
        .settled("exports", "a", LIMIT, &"all have ended")
        .await;
    let ran = running.lock().await.1;
    assert!(ran > 0);
    assert_eq!(limiter.left("rate", "a").await, 1_000 - ran);
}

pub async fn time_brings_no_slot_back(subject: &Subject) {
    let limiter = subject.limiter([exports(1)]);
    let running = start(&limiter, "exports", "a", 1).await;
    subject.clock().advance(MAX_PERIOD);
    let denied: Decision = limiter.take("exports", "a", 1).await;
    assert!(!denied.is_allowed());
    drop(running);
    assert!(start(&limiter, "exports", "a", 1).await.is_some());
}
