//! Requests that wait by their rules: in the store for units, in the process for slots.

use std::time::{Duration, SystemTime};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tollgate_conformance::SwitchedStore;
use tollgate_core::{
    Check, Clock, Decision, Key, Limiter, MINUTE, MemoryStore, Quota, Reason, Retry, Rule, SECOND,
    types::{WaitError, WaitErrorKind},
};

use crate::{at_once, check, left};

/// On the paused clock of the runtime, from the beginning of a minute on: no window ends while a test runs for some seconds.
fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let start = Instant::now();
    let now = move || 1_700_000_040_000_000 + start.elapsed().as_micros() as u64;
    let store = MemoryStore::builder().clock(Clock::custom(now)).build();
    Limiter::new(store, rules).expect("valid rules")
}

fn provider() -> Rule {
    Rule::new("provider", Quota::per_second(5).burst(1)).wait(MINUTE)
}

/// A request that waits in a task of its own.
fn waits(
    limiter: &Limiter,
    checks: [Check; 2],
    patience: Duration,
) -> JoinHandle<Result<Decision, WaitError>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire_within(&checks, patience).await })
}

#[test]
fn a_request_waits_as_long_as_the_most_impatient_rule_that_it_takes_units_of() {
    let rule = |name| Rule::new(name, Quota::per_second(5).burst(1));
    let rules = [
        rule("patient").wait(MINUTE),
        rule("impatient").wait(SECOND),
        rule("shadow").wait(SECOND / 2).shadow(),
        rule("other"),
    ];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid rules");
    let at_most = |rules: &[(&str, u64)]| {
        let checks = rules
            .iter()
            .map(|(rule, cost)| check(&limiter, rule, "a", *cost));
        limiter.at_most_wait(&checks.collect::<Vec<_>>())
    };
    for (rules, wait) in [
        (&[("patient", 1)][..], Some(MINUTE)),
        (
            &[("patient", 1), ("impatient", 1), ("other", 1)],
            Some(SECOND),
        ),
        // A check of no units waits for nothing, and a request does not wait for a shadow.
        (&[("patient", 1), ("impatient", 0)], Some(MINUTE)),
        (&[("patient", 1), ("shadow", 1)], Some(MINUTE)),
        (&[("shadow", 1)], None),
        (&[("other", 1)], None),
        (&[], None),
    ] {
        assert_eq!(at_most(rules), wait, "{rules:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_counts_from_when_its_reply_comes() {
    let memory = MemoryStore::builder().clock(Clock::tokio()).build();
    let store = SwitchedStore::after(SECOND / 50, memory);
    let limiter = Limiter::new(store, [provider()]).expect("valid rules");
    let check = [check(&limiter, "provider", "a", 1)];
    let began = Instant::now();
    for (waits, at) in [(0, 20), (180, 220), (180, 420)] {
        let started = limiter.acquire_within(&check, MINUTE).await;
        let started = started.expect("there is room");
        assert!(started.is_allowed());
        assert_eq!(started.waited(), Duration::from_millis(waits));
        assert_eq!(began.elapsed(), Duration::from_millis(at));
    }
}

/// One that took a place there would leave a hole.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_turned_away_has_taken_no_place_in_the_queue_of_the_store() {
    let rule = Rule::new("units", Quota::per_second(1).burst(1)).wait(MINUTE);
    let limiter = limiter([rule.max_waiting(1, 9)]);
    let checks = [check(&limiter, "units", "a", 1)];
    let attempt = limiter.attempt(&checks);
    assert!(at_once(attempt.decide()).is_allowed());
    let begun = Instant::now();
    let waits = || {
        let decision = at_once(attempt.decide());
        assert!(attempt.waits(&decision));
        attempt.wait(decision)
    };
    let first = tokio::spawn(waits().start());
    tokio::task::yield_now().await;
    let full = Some(Reason::QueueFull);
    assert_eq!(waits().start().await.reason(), full);
    assert_eq!(waits().give_up().await.reason(), full);
    let within = |patience| limiter.acquire_within(&checks, patience);
    let refused = within(MINUTE).await.map_err(|it| it.kind());
    assert_eq!(refused, Err(WaitErrorKind::QueueFull));
    let denied = within(SECOND / 2).await.expect("it would not wait so long");
    assert_eq!(
        (denied.reason(), denied.retry().delay()),
        (Some(Reason::Quota), Some(2 * SECOND))
    );
    assert!(first.await.expect("no panic").is_allowed());
    assert!(waits().start().await.is_allowed());
    assert_eq!(begun.elapsed(), 2 * SECOND);
}

fn exports(wait: Duration) -> Rule {
    Rule::new("exports", Quota::concurrent(1)).wait(wait)
}

#[tokio::test(start_paused = true)]
async fn a_request_for_more_slots_than_there_are_is_denied_at_once_behind_others_too() {
    let over = Quota::none().until(SystemTime::UNIX_EPOCH);
    let limiter = limiter([exports(MINUTE).plan("over", over)]);
    let [one, two] = [1, 2].map(|cost| [check(&limiter, "exports", "a", cost)]);
    let _running = at_once(limiter.acquire(&one));
    let waiting = limiter.clone();
    let first = tokio::spawn(async move { waiting.acquire_within(&one, MINUTE).await });
    sleep(SECOND).await;
    let begin = Instant::now();
    let denied = limiter.acquire_within(&two, MINUTE).await;
    assert_eq!(denied.expect("it does not wait").retry(), Retry::Never);
    let decided = at_once(limiter.attempt(&two).decide());
    assert_eq!(decided.retry(), Retry::Never);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    // Whose block is over waits as others do.
    let over = [one[0].with_plan(1)];
    let second = timeout(SECOND, limiter.acquire_within(&over, MINUTE));
    assert!(second.await.is_err());
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_denial_after_a_wait_for_slots_says_what_is_left_then() {
    let rate = Rule::new("rate", Quota::gcra(1, SECOND).burst(2));
    let limiter = limiter([exports(SECOND), rate]);
    let both = ["exports", "rate"].map(|rule| check(&limiter, rule, "a", 1));
    let _running = at_once(limiter.acquire(&both));
    let begin = Instant::now();
    let expired = limiter.acquire_within(&both, MINUTE).await;
    assert_eq!(begin.elapsed(), SECOND);
    let expired = expired.expect("it queues");
    assert_eq!(expired.reason(), Some(Reason::WaitExpired));
    assert_eq!(expired.verdicts()[1].remaining(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_a_request_that_waits_for_a_slot_once() {
    for (patience, is_allowed) in [(MINUTE, true), (2 * SECOND, false)] {
        let shadow = Rule::new("shadow", Quota::sliding_log(100, MINUTE)).shadow();
        let limiter = limiter([exports(MINUTE), shadow]);
        let both = ["exports", "shadow"].map(|rule| check(&limiter, rule, "a", 1));
        let slot = [both[0]];
        let mut running = at_once(limiter.acquire(&slot));
        let waiting = waits(&limiter, both, patience);
        // It is woken each time, and others are faster.
        for _ in 0..5 {
            sleep(SECOND).await;
            drop(running);
            running = at_once(limiter.acquire(&slot));
            assert!(running.is_allowed());
        }
        drop(running);
        let ended = waiting.await.expect("a task").expect("there is room");
        assert_eq!(ended.is_allowed(), is_allowed);
        assert_eq!(left(&limiter, "shadow", "a"), 99);
    }
}

/// When requests start that come one after the other, and hold for a second what they get.
async fn starts(
    limiter: &Limiter,
    requests: impl IntoIterator<Item = [Check; 2]>,
) -> Vec<Duration> {
    let (begin, mut tasks) = (Instant::now(), Vec::new());
    for checks in requests {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            let started = limiter.acquire_within(&checks, MINUTE).await;
            assert!(started.as_ref().is_ok_and(Decision::is_allowed));
            let after = begin.elapsed();
            sleep(SECOND).await;
            after
        }));
        tokio::task::yield_now().await;
    }
    let mut starts = Vec::new();
    for task in tasks {
        starts.push(task.await.expect("it starts"));
    }
    starts
}

#[tokio::test(start_paused = true)]
async fn slots_are_given_in_the_order_of_arrival_whatever_else_requests_need() {
    let all = Rule::new("all", Quota::concurrent(2));
    for all in [all.clone(), all.wait(MINUTE)] {
        let limiter = limiter([all, Rule::new("rate", Quota::sliding_log(9, MINUTE))]);
        // The third waits for both slots, and those behind it for one.
        let requests = [(2, "a"), (1, "b"), (2, "a"), (1, "c"), (1, "b")];
        let checks = requests.map(|(slots, client)| {
            [
                check(&limiter, "all", "", slots),
                check(&limiter, "rate", client, 1),
            ]
        });
        assert_eq!(
            starts(&limiter, checks).await,
            [0, 1, 2, 3, 3].map(|n| n * SECOND)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_its_own_slots_keeps_no_other_from_those_of_all() {
    let rules =
        [("all", 2), ("own", 1)].map(|(name, limit)| Rule::new(name, Quota::concurrent(limit)));
    for rules in [rules.clone(), rules.map(|rule| rule.wait(MINUTE))] {
        let limiter = limiter(rules);
        let checks = ["a", "a", "b", "c", "d"].map(|client| {
            [
                check(&limiter, "all", "", 1),
                check(&limiter, "own", client, 1),
            ]
        });
        assert_eq!(
            starts(&limiter, checks).await,
            [0, 1, 0, 1, 2].map(|n| n * SECOND)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_line_that_has_to_wait_for_units_lets_others_pass_and_keeps_its_place() {
    let paced = Rule::new("paced", Quota::gcra(2, 5 * SECOND).burst(1)).wait(MINUTE);
    let limiter = limiter([paced, exports(MINUTE)]);
    let checks = ["a", "a", "b", "c", "d"].map(|client| {
        [
            check(&limiter, "paced", client, 1),
            check(&limiter, "exports", "", 1),
        ]
    });
    // The second has its unit after 2.5 s, and no slot then.
    assert_eq!(
        starts(&limiter, checks).await,
        [0, 3, 1, 2, 4].map(|n| n * SECOND)
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_units_holds_no_slot() {
    let limiter = limiter([provider(), exports(MINUTE)]);
    let checks = [
        check(&limiter, "provider", "a", 1),
        check(&limiter, "exports", "a", 1),
    ];
    let first = limiter.acquire_within(&checks, MINUTE).await.expect("room");
    drop(limiter.ticket(&checks, &first));
    let waiting = {
        let (limiter, checks) = (limiter.clone(), checks);
        tokio::spawn(async move { limiter.acquire_within(&checks, MINUTE).await })
    };
    sleep(SECOND / 10).await;
    // The slot is free for another request.
    let slot = [checks[1]];
    let other = at_once(limiter.acquire(&slot));
    assert!(other.is_allowed());
    drop(limiter.ticket(&slot, &other));
    let second = waiting.await.expect("a task").expect("room");
    assert!(second.is_allowed() && second.waited() > Duration::ZERO);
    assert!(second.verdicts()[1].slot_number().is_some());
    drop(second);
    assert!(at_once(limiter.acquire(&slot)).is_allowed());
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_at_once_takes_no_place_in_the_queue() {
    let limiter = limiter([provider()]);
    let one = check(&limiter, "provider", "a", 1);
    assert_eq!(limiter.acquire_up_to(&[one], 9).await.units, 1);
    for _ in 0..3 {
        let tried = limiter.try_acquire("provider", &Key::of(["a"]));
        let tried = tried.expect("memory answers at once");
        assert_eq!(tried.retry_after(), Some(SECOND / 5));
        let granted = limiter.acquire_up_to(&[one], 9).await;
        assert_eq!(granted.units, 0);
        assert_eq!(granted.decision.retry_after(), Some(SECOND / 5));
    }
    sleep(SECOND / 5).await;
    let tried = limiter.try_acquire("provider", &Key::of(["a"]));
    assert!(tried.is_ok_and(|tried| tried.is_allowed() && tried.delay().is_zero()));
}

#[tokio::test(start_paused = true)]
async fn a_plain_acquire_does_not_queue_and_the_one_in_the_queue_goes_on_waiting() {
    let slots = Rule::new("slots", Quota::concurrent(1)).wait(MINUTE);
    let limiter = limiter([slots, Rule::new("rate", Quota::gcra(9, SECOND))]);
    let checks = [check(&limiter, "slots", "a", 1)];
    let ticket = |decision| limiter.ticket(&checks, decision);
    let first = at_once(limiter.acquire(&checks));
    let first = ticket(&first);
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire_within(&checks, MINUTE).await }
    });
    sleep(SECOND).await;
    drop(first);
    // The one in line is woken, and has not run yet.
    let with_rate = [checks[0], check(&limiter, "rate", "a", 1)];
    let attempt = limiter.attempt(&with_rate);
    let queued = at_once(attempt.decide());
    assert!(attempt.waits(&queued) && queued.verdicts().is_empty());
    let second = at_once(limiter.acquire(&checks));
    assert!(second.is_allowed());
    let second = ticket(&second);
    sleep(SECOND).await;
    assert!(!waiting.is_finished());
    drop(second);
    let third = waiting.await.expect("a task").expect("room");
    assert!(third.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_queue_for_units_is_none_for_slots() {
    let limiter = limiter([
        provider(),
        exports(MINUTE),
        Rule::new("slots", Quota::concurrent(9)),
    ]);
    let both = ["provider", "slots"].map(|rule| check(&limiter, rule, "a", 1));
    drop(at_once(limiter.acquire(&both)));
    let waiting = waits(&limiter, both, MINUTE);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    // One more gets its place in the store, behind it.
    let next = at_once(limiter.attempt(&both).within(MINUTE).decide());
    assert_eq!(next.delay(), 2 * SECOND / 5);
    waiting.abort();
}

#[test]
fn a_decision_that_does_not_wait_is_started_as_it_is() {
    let rules = [
        provider(),
        Rule::new("rate", Quota::fixed_window(9, crate::LONG)),
        Rule::new("slots", Quota::concurrent(9)),
    ];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid rules");
    let checks = ["provider", "rate", "slots"].map(|rule| check(&limiter, rule, "a", 1));
    let decision = at_once(limiter.acquire(&checks));
    assert_eq!(decision.delay(), Duration::ZERO);
    let before = decision.clone();
    let started = at_once(limiter.start(&checks, decision));
    assert_eq!(started, before);
    drop(before);
    for rule in ["rate", "slots"] {
        assert_eq!(left(&limiter, rule, "a"), 8, "{rule}");
    }
    let slots = started.take_slots().expect("it holds one");
    drop(started);
    assert_eq!(left(&limiter, "slots", "a"), 8);
    drop(slots);
    assert_eq!(left(&limiter, "slots", "a"), 9);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_other_units_are_gone_at_its_start_waits_for_them_within_its_patience() {
    let millisecond = SECOND / 1_000;
    for (patience, ends_at, reason) in [
        (SECOND, SECOND, None),
        (SECOND - millisecond, SECOND / 5, Some(Reason::WaitExpired)),
    ] {
        let window = Rule::new("window", Quota::fixed_window(1, SECOND));
        let limiter = limiter([provider(), window]);
        let checks = ["provider", "window"].map(|rule| check(&limiter, rule, "a", 1));
        let begin = Instant::now();
        assert!(at_once(limiter.acquire(&checks[..1])).is_allowed());
        let waiting = waits(&limiter, checks, patience);
        sleep(SECOND / 10).await;
        // Its place at the provider comes before the next window.
        assert!(at_once(limiter.acquire(&checks[1..])).is_allowed());
        let ended = waiting.await.expect("a task").expect("there is room");
        assert_eq!(ended.reason(), reason);
        assert_eq!(begin.elapsed(), ends_at);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_queues_again_has_what_is_left_of_its_patience() {
    let window = Rule::new("window", Quota::fixed_window(1, SECOND));
    let limiter = limiter([provider(), window]);
    let checks = ["provider", "window"].map(|rule| check(&limiter, rule, "a", 1));
    let begin = Instant::now();
    assert!(at_once(limiter.acquire(&checks[..1])).is_allowed());
    let waiting = waits(&limiter, checks, SECOND + SECOND / 5);
    sleep(SECOND / 10).await;
    assert!(at_once(limiter.acquire(&checks[1..])).is_allowed());
    // By the next window, the provider has no unit for longer than is left.
    sleep_until(begin + SECOND - SECOND / 20).await;
    for _ in 0..3 {
        assert!(at_once(limiter.acquire(&checks[..1])).is_allowed());
    }
    let ended = waiting.await.expect("a task").expect("there is room");
    assert!(!ended.is_allowed());
    assert_eq!(begin.elapsed(), SECOND);
}

/// Another request takes the slot before this one starts, which waits for a unit, and returns it after a second. How this one ends,
/// and when.
async fn lost_slot(slots: Rule, patience: Duration) -> (Option<Reason>, Duration) {
    let limiter = limiter([provider(), slots]);
    let checks = ["provider", "exports"].map(|rule| check(&limiter, rule, "a", 1));
    let begin = Instant::now();
    assert!(at_once(limiter.acquire(&checks[..1])).is_allowed());
    let waiting = waits(&limiter, checks, patience);
    sleep(SECOND / 10).await;
    let running = at_once(limiter.acquire(&checks[1..]));
    assert!(running.is_allowed());
    let ends = tokio::spawn(async move {
        sleep(SECOND - SECOND / 10).await;
        drop(running);
    });
    let ended = waiting.await.expect("a task").expect("there is room");
    let after = begin.elapsed();
    ends.await.expect("a task");
    (ended.reason(), after)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_no_slot_at_its_start_waits_for_one_within_its_patience() {
    for (patience, ends_at, reason) in [
        (MINUTE, SECOND, None),
        (SECOND / 2, SECOND / 2, Some(Reason::WaitExpired)),
    ] {
        let ended = lost_slot(exports(MINUTE), patience).await;
        assert_eq!(ended, (reason, ends_at));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_typical_keeps_no_request_from_a_slot_that_comes_back_sooner() {
    let rare = Rule::new("exports", Quota::concurrent(1).typically(20 * SECOND));
    assert_eq!(lost_slot(rare.wait(MINUTE), MINUTE).await, (None, SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_rule_with_slots_that_does_not_wait_denies_at_once_next_to_one_that_waits() {
    let slots = || Rule::new("exports", Quota::concurrent(1));
    let typical = Rule::new("exports", Quota::concurrent(1).typically(20 * SECOND));
    for rule in [slots(), typical] {
        // At the start, after the wait for the unit.
        let denied = (Some(Reason::Slots), SECOND / 5);
        assert_eq!(lost_slot(rule, MINUTE).await, denied);
    }
    // Next to slots that are free, and that it would wait for.
    let limiter = limiter([
        Rule::new("mine", Quota::concurrent(5)).wait(MINUTE),
        slots(),
    ]);
    let checks = ["mine", "exports"].map(|rule| check(&limiter, rule, "a", 1));
    let running = at_once(limiter.acquire(&checks[1..]));
    let begin = Instant::now();
    let denied = limiter.acquire_within(&checks, MINUTE).await;
    let denied = denied.expect("there is room");
    assert_eq!(denied.reason(), Some(Reason::Slots));
    assert!(!limiter.attempt(&checks).waits(&denied));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    drop(running);
    // The other one is waited for.
    let running = at_once(limiter.acquire(&[check(&limiter, "mine", "a", 5)]));
    let denied = at_once(limiter.acquire(&checks));
    assert!(limiter.attempt(&checks).waits(&denied));
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_without_slots_keeps_no_request_from_waiting() {
    let shadow = Rule::new("shadow", Quota::concurrent(1)).shadow();
    let limiter = limiter([exports(MINUTE), shadow]);
    let checks = ["exports", "shadow"].map(|rule| check(&limiter, rule, "a", 1));
    let running = at_once(limiter.acquire(&checks));
    let waiting = waits(&limiter, checks, MINUTE);
    sleep(SECOND).await;
    assert!(!waiting.is_finished());
    drop(running);
    let ended = waiting.await.expect("a task").expect("there is room");
    assert!(ended.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_given_while_the_store_failed_wakes_who_waits() {
    let start = Instant::now();
    let now = move || 1_700_000_040_000_000 + start.elapsed().as_micros() as u64;
    let memory = MemoryStore::builder().clock(Clock::custom(now)).build();
    let store = SwitchedStore::at_once(memory);
    store.switch(false);
    let limiter = Limiter::new(store, [exports(MINUTE)]).expect("a valid rule");
    let one = [check(&limiter, "exports", "a", 1)];
    let running = at_once(limiter.acquire(&one));
    assert!(running.is_allowed());
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire_within(&one, MINUTE).await }
    });
    sleep(SECOND).await;
    drop(running);
    let ended = waiting.await.expect("a task").expect("there is room");
    assert!(ended.is_allowed(), "{ended:?}");
    assert_eq!(start.elapsed(), SECOND);
}
