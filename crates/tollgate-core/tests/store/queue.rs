//! Waiting in a queue for units.

use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tollgate_conformance::RemoteStore;
use tollgate_core::{
    Check, Clock, Key, Limiter, MemoryStore, Quota, Reason, Rule, SECOND, types::WaitErrorKind,
};

use crate::{LONG, at_once, check, left};

const PATIENT: Duration = Duration::from_secs(1_000);

/// One unit a second, one at once.
fn slow() -> Quota {
    Quota::gcra(1, SECOND)
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    Limiter::new(store, rules).expect("valid rules")
}

/// A task that waits for `checks`, and has come as far as it can before the next one is made.
async fn waiter(
    limiter: &Limiter,
    checks: &[Check],
    patience: Duration,
) -> tokio::task::JoinHandle<Option<Duration>> {
    let (limiter, checks) = (limiter.clone(), checks.to_vec());
    let start = Instant::now();
    let task = tokio::spawn(async move {
        let decision = limiter.acquire_within(&checks, patience).await;
        decision
            .is_ok_and(|decision| decision.is_allowed())
            .then(|| start.elapsed())
    });
    tokio::task::yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn a_large_cost_at_the_head_is_not_overtaken_by_small_ones() {
    let limiter = limiter([Rule::new("rule", Quota::gcra(1, SECOND).burst(10))]);
    assert!(
        limiter
            .acquire(&[check(&limiter, "rule", "a", 5)])
            .await
            .is_allowed()
    );
    let large = waiter(&limiter, &[check(&limiter, "rule", "a", 10)], PATIENT).await;
    // Five units are there, but a waiter came before.
    let small = waiter(&limiter, &[check(&limiter, "rule", "a", 1)], PATIENT).await;
    assert_eq!(large.await.expect("it ends").map(|t| t.as_secs()), Some(5));
    assert_eq!(small.await.expect("it ends").map(|t| t.as_secs()), Some(6));
}

#[tokio::test(start_paused = true)]
async fn patience_that_runs_out_in_the_queue_takes_nothing() {
    let limiter = limiter([Rule::new("rule", Quota::gcra(1, 10 * SECOND))]);
    let one = [check(&limiter, "rule", "a", 1)];
    assert!(limiter.acquire(&one).await.is_allowed());
    let head = waiter(&limiter, &one, PATIENT).await;
    let start = Instant::now();
    let error = limiter
        .acquire_within(&one, 3 * SECOND)
        .await
        .expect_err("ten seconds are long");
    assert_eq!(error.kind(), WaitErrorKind::TimedOut);
    assert_eq!(start.elapsed(), 3 * SECOND);
    assert_eq!(head.await.expect("it ends").map(|t| t.as_secs()), Some(10));
    // The one that ran out of patience took no unit: the next is there ten seconds later.
    let next = waiter(&limiter, &one, PATIENT).await;
    assert_eq!(next.await.expect("it ends").map(|t| t.as_secs()), Some(10));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_leaves_the_queue_and_takes_nothing() {
    let limiter = limiter([Rule::new("rule", slow())]);
    let one = [check(&limiter, "rule", "a", 1)];
    assert!(limiter.acquire(&one).await.is_allowed());
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(waiter(&limiter, &one, PATIENT).await);
    }
    // The head, one in the middle, and the last.
    for n in [0, 2, 4] {
        tasks[n].abort();
    }
    let mut times = Vec::new();
    for task in tasks {
        if let Ok(time) = task.await {
            times.push(time.map(|time| time.as_secs()));
        }
    }
    assert_eq!(times, [Some(1), Some(2)]);
    advance(SECOND).await;
    assert_eq!(left(&limiter, "rule", "a"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_queues_hold_a_bounded_number_and_keep_half_for_the_first_of_each() {
    let limiter = limiter([Rule::new("rule", Quota::gcra(1, LONG))]);
    let (who, endless) = (|n: u64| n.to_string(), 2 * LONG);
    let mut tasks = Vec::new();
    for n in 0..32 {
        let one = [check(&limiter, "rule", &who(n), 1)];
        assert!(limiter.acquire(&one).await.is_allowed());
        for _ in 0..256 {
            tasks.push(waiter(&limiter, &one, endless).await);
        }
    }
    // Thirty-two keys have taken all the room behind others: there is none for a second one, and half of it is left for the first.
    let two = [check(&limiter, "rule", &who(32), 1)];
    assert!(limiter.acquire(&two).await.is_allowed());
    tasks.push(waiter(&limiter, &two, endless).await);
    assert!(tasks.iter().all(|task| !task.is_finished()));
    let error = limiter.acquire_within(&two, PATIENT).await;
    let error = error.expect_err("too many behind others");
    assert_eq!(error.kind(), WaitErrorKind::QueueFull);
    assert!(error.to_string().contains("16384"), "{error}");
    for n in 33..8_224 {
        let one = [check(&limiter, "rule", &who(n), 1)];
        assert!(limiter.acquire(&one).await.is_allowed());
        tasks.push(waiter(&limiter, &one, endless).await);
    }
    assert_eq!(tasks.len(), 16_384);
    assert!(tasks.iter().all(|task| !task.is_finished()));
    // Now there is no room at all.
    let last = [check(&limiter, "rule", "last", 1)];
    // A request that finds units and an empty queue needs no permit.
    let decision = limiter.acquire_within(&last, PATIENT).await;
    assert!(decision.expect("nothing to wait for").is_allowed());
    let error = limiter.acquire_within(&last, PATIENT).await;
    let error = error.expect_err("the queues are full");
    assert_eq!(error.kind(), WaitErrorKind::QueueFull);
    for task in tasks {
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn the_short_form_waits_for_one_unit_and_knows_its_rules() {
    let limiter = limiter([Rule::new("rule", slow())]);
    let (key, start) = (Key::of(["a"]), Instant::now());
    for _ in 0..3 {
        let decision = limiter.wait("rule", &key, PATIENT).await;
        assert!(decision.expect("it was patient").is_allowed());
    }
    assert_eq!(start.elapsed(), 2 * SECOND);
    let error = limiter.wait("rul", &key, PATIENT).await;
    let error = error.expect_err("there is none");
    assert_eq!(error.kind(), WaitErrorKind::UnknownRule);
    assert!(error.to_string().contains("\"rul\""), "{error}");
}

#[tokio::test(start_paused = true)]
async fn patience_beyond_the_clock_is_no_panic() {
    let limiter = limiter([Rule::new("rule", slow())]);
    let one = [check(&limiter, "rule", "a", 1)];
    for _ in 0..3 {
        let decision = limiter.acquire_within(&one, Duration::MAX).await;
        assert!(decision.expect("it was patient").is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_a_request_that_waits_once() {
    let limiter = limiter([
        Rule::new("rule", slow()),
        Rule::new("shadow", Quota::sliding_log(100, LONG)).shadow(),
    ]);
    let both = ["rule", "shadow"].map(|rule| check(&limiter, rule, "a", 1));
    for _ in 0..10 {
        assert!(
            limiter
                .acquire_within(&both, PATIENT)
                .await
                .expect("patient")
                .is_allowed()
        );
    }
    assert_eq!(left(&limiter, "shadow", "a"), 90);
}

#[tokio::test(start_paused = true)]
async fn the_first_in_the_queue_takes_units_that_come_back_early() {
    let hour = Rule::new("rule", Quota::fixed_window(1, 3_600 * SECOND));
    let shadow = || Rule::new("shadow", Quota::fixed_window(9, 3_600 * SECOND)).shadow();
    for rules in [vec![hour.clone()], vec![hour, shadow()]] {
        let limiter = limiter(rules);
        let one = [check(&limiter, "rule", "a", 1)];
        let begin = Instant::now();
        let taken = at_once(limiter.acquire(&one));
        let ticket = limiter.ticket(&one, &taken);
        let first = waiter(&limiter, &one, LONG).await;
        let second = waiter(&limiter, &one, LONG).await;
        sleep(SECOND).await;
        ticket.cancel();
        assert_eq!(first.await.expect("a task"), Some(SECOND));
        sleep(SECOND).await;
        assert!(!second.is_finished());
        let reset = limiter.reset("rule", &Key::of("a")).expect("it is there");
        assert!(at_once(reset).expect("memory does not fail"));
        assert_eq!(second.await.expect("a task"), Some(2 * SECOND));
        assert_eq!(begin.elapsed(), 2 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_without_slots_hides_no_units_that_come_back_early() {
    let limiter = limiter([Rule::new("rule", Quota::fixed_window(2, LONG))]);
    let one = [check(&limiter, "rule", "a", 1)];
    let take = || limiter.ticket(&one, &at_once(limiter.acquire(&one)));
    for is_redeemed in [true, false] {
        let text = at_once(take().into_reservation(PATIENT)).expect("it is written");
        if is_redeemed {
            let redeemed = limiter.redeem(&text).expect("it is open");
            at_once(redeemed.settle(1)).expect("it is open");
        }
        let ticket = take();
        let waits = waiter(&limiter, &one, LONG).await;
        sleep(SECOND).await;
        ticket.cancel();
        assert_eq!(waits.await.expect("a task"), Some(SECOND));
        let reset = limiter.reset("rule", &Key::of("a")).expect("it is there");
        at_once(reset).expect("memory does not fail");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_waited_for_also_where_its_rule_does_not_wait() {
    let rate = Rule::new("rate", Quota::gcra(1, 3 * SECOND));
    for quota in [
        Quota::concurrent(1),
        Quota::concurrent(1).typically(60 * SECOND),
    ] {
        for (patience, ends_at, reason) in [
            (PATIENT, 3 * SECOND, None),
            (SECOND, SECOND, Some(Reason::WaitExpired)),
            (Duration::ZERO, Duration::ZERO, Some(Reason::Slots)),
        ] {
            let limiter = limiter([Rule::new("slots", quota), rate.clone()]);
            let slot = [check(&limiter, "slots", "a", 1)];
            let running = limiter.acquire(&slot).await;
            tokio::spawn(async move {
                sleep(3 * SECOND).await;
                drop(running);
            });
            let begin = Instant::now();
            let ended = limiter.acquire_within(&slot, patience).await;
            let ended = ended.expect("there is room");
            assert_eq!(ended.reason(), reason);
            assert_eq!(begin.elapsed(), ends_at);
        }
        // One that never fits, and a rate that is late, are not waited for.
        let limiter = limiter([Rule::new("slots", quota), rate.clone()]);
        let both = ["slots", "rate"].map(|rule| check(&limiter, rule, "a", 1));
        let begin = Instant::now();
        let two = [both[0].with_cost(2)];
        let never = limiter.acquire_within(&two, PATIENT).await;
        assert_eq!(never.expect("room").reason(), Some(Reason::Never));
        let running = limiter.acquire(&both).await;
        let late = limiter.acquire_within(&both, SECOND).await;
        assert_eq!(late.expect("room").reason(), Some(Reason::Quota));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        // Both come within the patience, one after the other.
        tokio::spawn(async move {
            sleep(4 * SECOND).await;
            drop(running);
        });
        let ended = limiter.acquire_within(&both, PATIENT).await;
        assert!(ended.expect("there is room").is_allowed());
        assert_eq!(begin.elapsed(), 4 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_in_front_of_a_remote_store_keeps_its_order() {
    let memory = MemoryStore::builder().clock(Clock::tokio()).build();
    let store = RemoteStore::new(memory).delay(Duration::from_millis(10));
    let limiter = Limiter::new(store, [Rule::new("rule", slow())]).expect("a valid rule");
    let one = [check(&limiter, "rule", "a", 1)];
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(waiter(&limiter, &one, PATIENT).await);
    }
    let mut last = None;
    for task in tasks {
        let time = task.await.expect("it ends");
        assert!(time.is_some() && time > last, "{time:?} after {last:?}");
        last = time;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_says_how_many_wait_for_one_key_and_in_all() {
    let rule = Rule::new("rule", Quota::gcra(1, LONG)).max_waiting(2, 5);
    let limiter = limiter([rule]);
    let checks = |key| [check(&limiter, "rule", key, 1)];
    let keys = ["a", "b", "c"];
    for key in keys {
        assert!(limiter.acquire(&checks(key)).await.is_allowed());
    }
    let endless = 2 * LONG;
    let mut tasks = Vec::new();
    for key in keys {
        for place in 0..2 {
            let task = waiter(&limiter, &checks(key), endless).await;
            // The sixth is one too many.
            assert_eq!(
                task.is_finished(),
                key == "c" && place == 1,
                "{key} {place}"
            );
            tasks.push(task);
        }
    }
    let full = limiter.acquire_within(&checks("a"), endless).await;
    let full = full.expect_err("two wait for it").to_string();
    assert!(
        full.starts_with("2 are waiting") && full.contains("max_waiting"),
        "{full}"
    );
    let full = limiter.acquire_within(&checks("c"), endless).await;
    let full = full.expect_err("five wait in all").to_string();
    assert!(full.starts_with("5 are waiting"), "{full}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_only_those_away_who_would_have_to_wait() {
    let rule = Rule::new("rule", Quota::gcra(2, LONG)).max_waiting(1, 1);
    let limiter = limiter([rule]);
    let checks = |key, cost| [check(&limiter, "rule", key, cost)];
    assert!(limiter.acquire(&checks("a", 1)).await.is_allowed());
    let waits = waiter(&limiter, &checks("a", 2), LONG).await;
    assert!(!waits.is_finished());
    for _ in 0..2 {
        let decision = limiter.acquire_within(&checks("b", 1), LONG).await;
        assert!(decision.is_ok_and(|decision| decision.is_allowed()));
    }
    let full = limiter.acquire_within(&checks("b", 1), LONG).await;
    assert!(full.is_err());
    // There is a unit for it, and the one in front waits for two.
    let full = limiter.acquire_within(&checks("a", 1), LONG).await;
    assert!(full.is_err());
    assert!(!waits.is_finished());
    waits.abort();
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_lets_more_wait_than_a_limiter_has_room_for_gets_its_room() {
    const MORE: usize = 20_000;
    let more = Rule::new("more", Quota::gcra(1, LONG)).max_waiting(MORE, MORE);
    let limiter = limiter([more, Rule::new("rule", Quota::gcra(1, LONG))]);
    let [more, rule] = ["more", "rule"].map(|name| [check(&limiter, name, "a", 1)]);
    for checks in [&more, &rule] {
        assert!(limiter.acquire(checks).await.is_allowed());
    }
    let endless = 2 * LONG;
    let mut tasks = Vec::new();
    // First of their queues, and the rest behind each other.
    for n in 0..17_000 {
        let own = [check(&limiter, "more", &n.to_string(), 1)];
        assert!(limiter.acquire(&own).await.is_allowed());
        tasks.push(waiter(&limiter, &own, endless).await);
    }
    for _ in 17_000..MORE {
        tasks.push(waiter(&limiter, &more, endless).await);
    }
    assert!(tasks.iter().all(|task| !task.is_finished()));
    let full = limiter.acquire_within(&more, endless).await;
    let full = full.expect_err("as many wait as may").to_string();
    assert!(full.contains("20000"), "{full}");
    // For one that does not say so, the limiter is full.
    let full = limiter.acquire_within(&rule, endless).await;
    let full = full.expect_err("the limiter is full").to_string();
    assert!(
        full.contains("16384") && full.contains("Rule::max_waiting"),
        "{full}"
    );
    for task in tasks {
        task.abort();
    }
}

#[test]
fn a_rule_with_no_room_for_waiters_is_refused() {
    for (per_key, in_all) in [(0, 1), (1, 0)] {
        let rule = Rule::new("rule", Quota::gcra(1, LONG)).max_waiting(per_key, in_all);
        let error = Limiter::new(MemoryStore::new(), [rule]).expect_err("it is refused");
        assert!(error.to_string().contains("leave wait() out"), "{error}");
    }
}
