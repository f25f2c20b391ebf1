//! Requests that wait for units: the rules of [the queue](tollgate_core::algorithm::gcra#waiting).

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_core::{Check, Decision, MINUTE, Outcome, Quota, Reason, Retry, Rule, SECOND};

use crate::subject::{Subject, TestLimiter};

const TICK: Duration = Duration::from_micros(1);

/// Five a second, one at a time.
fn provider(at_most: Duration) -> Rule {
    Rule::new("provider", Quota::gcra(5, SECOND).burst(1)).wait(at_most)
}

async fn start(limiter: &TestLimiter, checks: &[Check], decision: Decision) -> Decision {
    let started = limiter.0.start(checks, decision).await;
    assert_ne!(started.outcome(), Outcome::Failed, "{started:?}");
    started
}

/// How long a request would wait.
async fn wait_of(limiter: &TestLimiter, check: &Check) -> Duration {
    let looked = limiter.peek(&[*check]).await;
    assert!(looked.is_allowed(), "{looked:?}");
    looked.delay()
}

/// Cancels a request that waits, and lets the store settle it.
async fn cancel(limiter: &TestLimiter, check: &Check, decision: &Decision, then: Duration) {
    limiter.0.ticket(&[*check], decision).cancel();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let wait = wait_of(limiter, check).await;
        if wait == then {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "a wait of {wait:?} and not {then:?}"
        );
        sleep(Duration::from_millis(1)).await;
    }
}

pub async fn requests_wait_in_the_order_of_the_store_spaced_to_the_tick(subject: &Subject) {
    let quota = Quota::gcra(7, SECOND).burst(2);
    let limiter = subject.limiter([Rule::new("provider", quota).wait(MINUTE)]);
    let check = [limiter.check("provider", "a", 1)];
    for n in 0..40_u64 {
        assert_eq!(wait_of(&limiter, &check[0]).await, instant(n), "{n}");
        let decision = limiter.acquire(&check).await;
        assert!(decision.is_allowed(), "{n}");
        // A seventh of a second after the one before, rounded up to the tick, and nothing adds up.
        assert_eq!(decision.delay(), instant(n), "{n}");
        let started = start(&limiter, &check, decision).await;
        assert!(started.is_allowed() && started.delay().is_zero());
    }
    // Others do not wait for them.
    let other = limiter.take("provider", "b", 1).await;
    assert!(other.is_allowed() && other.delay().is_zero());
    // As time passes, the queue gets shorter.
    subject.clock().advance(2 * SECOND);
    let next = limiter.take("provider", "a", 1).await;
    assert_eq!(next.delay(), instant(40) - 2 * SECOND);
}

/// When the n-th of seven a second starts, with a burst of two.
fn instant(n: u64) -> Duration {
    Duration::from_micros((n.saturating_sub(1) * 1_000_000).div_ceil(7))
}

pub async fn who_would_wait_too_long_is_denied_until_the_queue_has_room(subject: &Subject) {
    let limiter = subject.limiter([provider(SECOND)]);
    for n in 0..6 {
        let decision = limiter.take("provider", "a", 1).await;
        assert_eq!(decision.delay(), n * SECOND / 5);
    }
    subject.clock().advance(SECOND / 20);
    for _ in 0..3 {
        let denied = limiter.take("provider", "a", 1).await;
        assert_eq!(denied.reason(), Some(Reason::Quota), "{denied:?}");
        let verdict = denied.verdicts()[0];
        assert_eq!(verdict.remaining(), 0);
        // The store's own number, or one of this process that is later by what the answer took.
        assert!(denied.retry_after() >= Some(SECOND / 5 - SECOND / 20));
    }
    subject.clock().advance(SECOND / 5 - SECOND / 20 - TICK);
    assert!(!limiter.took("provider", "a", 1).await);
    subject.clock().advance(TICK);
    let decision = limiter.take("provider", "a", 1).await;
    assert!(decision.is_allowed());
    assert_eq!(decision.delay(), SECOND);
}

pub async fn a_request_waits_no_longer_than_it_has_patience(subject: &Subject) {
    let limiter = subject.limiter([provider(MINUTE)]);
    let check = [limiter.check("provider", "a", 1)];
    for _ in 0..4 {
        assert!(limiter.acquire(&check).await.is_allowed());
    }
    let within = |patience| limiter.0.attempt(&check).within(patience).decide();
    let wait = 4 * SECOND / 5;
    let denied = within(wait - TICK).await;
    assert!(!denied.is_allowed(), "{denied:?}");
    assert!(denied.retry_after() >= Some(TICK), "{denied:?}");
    let denied = within(Duration::ZERO).await;
    assert!(denied.retry_after() >= Some(wait), "{denied:?}");
    // Whatever a process has learned from the denials, one with more patience waits.
    let decision = within(wait).await;
    assert!(decision.is_allowed(), "{decision:?}");
    assert_eq!(decision.delay(), wait);
}

pub async fn several_rules_start_together_and_are_charged_as_of_then(subject: &Subject) {
    let wide = Rule::new("wide", Quota::gcra(10, SECOND).burst(3)).wait(MINUTE);
    let limiter = subject.limiter([provider(MINUTE), wide]);
    let both = [
        limiter.check("provider", "a", 1),
        limiter.check("wide", "a", 1),
    ];
    for n in 0..3 {
        let decision = limiter.acquire(&both).await;
        assert_eq!(decision.delay(), n * SECOND / 5);
        // As of its start: the wide one has got back two units since the one before.
        let left = decision.verdicts()[1].remaining();
        assert_eq!(left, 2, "{n}: {decision:?}");
    }
    // The wide rule was charged at 0, 200 and 400 ms: alone, a third one fits there at 400 ms.
    let alone = [limiter.check("wide", "a", 3)];
    assert_eq!(wait_of(&limiter, &alone[0]).await, SECOND / 2);
    // Alone, the narrow one is next at 600 ms.
    assert_eq!(wait_of(&limiter, &both[0]).await, 3 * SECOND / 5);
}

pub async fn rules_that_cannot_wait_are_charged_when_the_request_starts(subject: &Subject) {
    let window = Rule::new("window", Quota::sliding_log(2, MINUTE));
    let limiter = subject.limiter([provider(MINUTE), window]);
    let checks = [
        limiter.check("provider", "a", 1),
        limiter.check("window", "a", 1),
    ];
    let first = limiter.acquire(&checks).await;
    assert!(first.delay().is_zero());
    let second = limiter.acquire(&checks).await;
    let third = limiter.acquire(&checks).await;
    for decision in [&second, &third] {
        // Nothing of the window is taken while they wait.
        assert!(decision.is_allowed() && !decision.delay().is_zero());
        assert_eq!(decision.verdicts()[1].remaining(), 1, "{decision:?}");
    }
    subject.clock().advance(third.delay());
    let second = start(&limiter, &checks, second).await;
    assert!(second.is_allowed());
    assert_eq!(second.waited(), SECOND / 5);
    assert_eq!(second.verdicts()[1].remaining(), 0);
    let third = start(&limiter, &checks, third).await;
    assert_eq!(
        (third.outcome(), third.reason()),
        (Outcome::Deny, Some(Reason::Quota))
    );
    // While the window is full, no request takes a place.
    let denied = limiter.acquire(&checks).await;
    assert!(!denied.is_allowed() && denied.delay().is_zero());
    // What it waited for goes back: it is the next one's.
    let alone = limiter.check("provider", "a", 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !wait_of(&limiter, &alone).await.is_zero() {
        assert!(Instant::now() < deadline, "the place has not gone back");
        sleep(Duration::from_millis(1)).await;
    }
}

pub async fn a_denial_frees_no_place_in_the_queue(subject: &Subject) {
    let limiter = subject.limiter([provider(SECOND)]);
    let check = limiter.check("provider", "a", 1);
    for _ in 0..6 {
        assert!(limiter.took("provider", "a", 1).await);
    }
    for cost in [1, 1, 7] {
        let denied = limiter.take("provider", "a", cost).await;
        assert!(!denied.is_allowed(), "{denied:?}");
    }
    let within = limiter.0.attempt(&[check]).within(TICK).decide().await;
    assert!(!within.is_allowed());
    subject.clock().advance(SECOND / 5);
    // Somebody who asks a moment later is behind all of them.
    assert_eq!(limiter.take("provider", "a", 1).await.delay(), SECOND);
}

pub async fn the_last_place_goes_back_and_no_other(subject: &Subject) {
    let limiter = subject.limiter([provider(MINUTE)]);
    let check = [limiter.check("provider", "a", 1)];
    assert!(limiter.acquire(&check).await.is_allowed());
    let second = limiter.acquire(&check).await;
    let third = limiter.acquire(&check).await;
    // The last one gives up, then the one that is the last by then.
    cancel(&limiter, &check[0], &third, third.delay()).await;
    cancel(&limiter, &check[0], &second, second.delay()).await;
    let second = limiter.acquire(&check).await;
    let third = limiter.acquire(&check).await;
    assert_eq!(third.delay(), 2 * SECOND / 5);
    // Somebody is behind this one, and was told when to start.
    let after = third.delay() + SECOND / 5;
    let lapsed = || limiter.0.rule_store().lapsed_units(0);
    assert_eq!(lapsed(), 0);
    limiter.0.ticket(&check, &second).cancel();
    // A settlement is carried out before a request that comes later.
    assert_eq!(wait_of(&limiter, &check[0]).await, after);
    let deadline = Instant::now() + Duration::from_secs(60);
    while lapsed() != 1 {
        assert!(Instant::now() < deadline, "{} units lapsed", lapsed());
        sleep(Duration::from_millis(1)).await;
    }
    cancel(&limiter, &check[0], &third, third.delay()).await;
    assert_eq!(lapsed(), 1);
}

pub async fn a_queue_keeps_its_length_when_the_quota_changes(subject: &Subject) {
    let before = subject.limiter([provider(MINUTE)]);
    let check = [before.check("provider", "a", 1)];
    let mut last = Duration::ZERO;
    for _ in 0..6 {
        last = before.acquire(&check).await.delay();
    }
    let waiting = before.acquire(&check).await;
    assert_eq!(waiting.delay(), last + SECOND / 5);
    // Slower, with a larger burst: the queue is where it was, and the next one a unit of the new quota behind it.
    let slower = Rule::new("provider", Quota::gcra(1, SECOND).burst(3)).wait(MINUTE);
    let after = subject
        .replacing(&[&before], [slower])
        .expect("it replaces");
    let again = [after.check("provider", "a", 1)];
    let next = waiting.delay() + SECOND;
    assert_eq!(wait_of(&after, &again[0]).await, next);
    assert_eq!(after.acquire(&again).await.delay(), next);
    // The place of another quota lapses.
    let started = start(&before, &check, waiting.clone()).await;
    assert!(started.is_allowed());
    before.0.ticket(&check, &waiting).cancel();
    assert_eq!(wait_of(&after, &again[0]).await, next + SECOND);
}

pub async fn a_request_never_waits_for_what_never_fits_nor_for_nothing(subject: &Subject) {
    let limiter = subject.limiter([provider(MINUTE)]);
    let never = limiter.take("provider", "a", 2).await;
    assert_eq!(never.retry(), Retry::Never);
    for _ in 0..3 {
        assert!(limiter.took("provider", "a", 1).await);
    }
    let looked = limiter.take("provider", "a", 0).await;
    assert!(looked.is_allowed() && looked.delay().is_zero());
    let verdict = looked.verdicts()[0];
    assert_eq!(verdict.remaining(), 0);
    assert_eq!(verdict.reset_after(), 3 * SECOND / 5);
    assert_eq!(verdict.retry(), Retry::After(3 * SECOND / 5));
    assert_eq!(limiter.take("provider", "a", 2).await.retry(), Retry::Never);
}

pub async fn a_threshold_above_the_burst_observes_the_queue(subject: &Subject) {
    let quota = Quota::gcra(5, SECOND).burst(1);
    let rule = provider(MINUTE).threshold("long", quota.burst(3));
    let limiter = subject.limiter([rule]);
    for n in 0..6 {
        let decision = limiter.take("provider", "a", 1).await;
        assert!(decision.is_allowed());
        let long = decision.verdicts()[1].outcome();
        let expected = if n < 3 { Outcome::Allow } else { Outcome::Deny };
        assert_eq!(long, expected, "{n}: {decision:?}");
    }
}

pub async fn a_shadow_never_moves_the_start(subject: &Subject) {
    let slow = Rule::new("slow", Quota::gcra(1, SECOND).burst(1)).wait(MINUTE);
    let limiter = subject.limiter([provider(MINUTE), slow.shadow()]);
    let checks = [
        limiter.check("provider", "a", 1),
        limiter.check("slow", "a", 1),
    ];
    for n in 0..4 {
        let decision = limiter.acquire(&checks).await;
        assert_eq!(decision.delay(), n * SECOND / 5);
        let shadow = decision.verdicts()[1].outcome();
        let expected = if n == 0 {
            Outcome::Allow
        } else {
            Outcome::Deny
        };
        assert_eq!(shadow, expected, "{n}: {decision:?}");
    }
}

pub async fn what_has_waited_is_forgotten_only_when_it_is_paid_back(subject: &Subject) {
    let limiter = subject.limiter([provider(MINUTE)]);
    for _ in 0..11 {
        assert!(limiter.took("provider", "a", 1).await);
    }
    subject.clock().advance(2 * SECOND);
    // The burst was paid back after 200 ms, the queue is not yet.
    assert_eq!(limiter.take("provider", "a", 1).await.delay(), SECOND / 5);
    subject.clock().advance(2 * SECOND / 5);
    let fresh = limiter.take("provider", "a", 1).await;
    assert!(fresh.delay().is_zero());
}

pub async fn among_many_tasks_every_place_is_given_once(subject: &Subject) {
    const TASKS: u32 = 40;
    let limiter = subject.limiter([provider(MINUTE)]);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let limiter = limiter.clone();
        tasks.spawn(async move { limiter.take("provider", "a", 1).await.delay() });
    }
    let mut delays = Vec::new();
    while let Some(delay) = tasks.join_next().await {
        delays.push(delay.expect("a task"));
    }
    delays.sort_unstable();
    let expected: Vec<Duration> = (0..TASKS).map(|n| n * SECOND / 5).collect();
    assert_eq!(delays, expected);
}

pub async fn a_denial_says_nothing_of_how_long_a_state_of_another_quota_makes_wait(
    subject: &Subject,
) {
    let fast = Rule::new("provider", Quota::gcra(1, SECOND).burst(5)).wait(MINUTE);
    let before = subject.limiter([fast]);
    for _ in 0..10 {
        assert!(before.took("provider", "a", 1).await);
    }
    // A queue of five seconds. A unit takes two now.
    let slow = Rule::new("provider", Quota::gcra(1, 2 * SECOND).burst(1)).wait(MINUTE);
    let after = subject.replacing(&[&before], [slow]).expect("it replaces");
    let check = [after.check("provider", "a", 1)];
    let denied = after.0.attempt(&check).within(SECOND).decide().await;
    assert_eq!(denied.retry_after(), Some(6 * SECOND), "{denied:?}");
    let decision = after.0.attempt(&check).within(8 * SECOND).decide().await;
    assert!(decision.is_allowed(), "{decision:?}");
    assert_eq!(decision.delay(), 7 * SECOND);
}

pub async fn a_denial_by_a_shorter_wait_says_when_the_longer_queue_has_room(subject: &Subject) {
    let before = subject.limiter([provider(MINUTE)]);
    for _ in 0..26 {
        assert!(before.took("provider", "a", 1).await);
    }
    let next = 26 * SECOND / 5;
    let check = [before.check("provider", "a", 1)];
    assert_eq!(wait_of(&before, &check[0]).await, next);
    // Requests wait for a second here, and in the last one do not wait, of more units at once.
    let shorter = provider(SECOND);
    let wider = Rule::new("provider", Quota::gcra(5, SECOND).burst(4));
    for (rule, at_most) in [(shorter, SECOND), (wider, Duration::ZERO)] {
        let after = subject.replacing(&[&before], [rule]).expect("it replaces");
        let again = [after.check("provider", "a", 1)];
        let denied = after.acquire(&again).await;
        assert_eq!(denied.outcome(), Outcome::Deny, "{denied:?}");
        assert_eq!(denied.retry_after(), Some(next - at_most), "{denied:?}");
    }
    // Those who wait are where they were.
    assert_eq!(wait_of(&before, &check[0]).await, next);
}

pub async fn a_place_goes_back_to_what_was_before_it(subject: &Subject) {
    let wide = Rule::new("wide", Quota::gcra(10, SECOND).burst(1)).wait(MINUTE);
    let limiter = subject.limiter([provider(MINUTE), wide]);
    let both = [
        limiter.check("provider", "a", 1),
        limiter.check("wide", "a", 1),
    ];
    assert!(limiter.acquire(&both).await.is_allowed());
    let second = limiter.acquire(&both).await;
    assert_eq!(second.delay(), SECOND / 5);
    // The wide rule had to wait for 100 ms alone, and is charged from 200 ms on.
    assert_eq!(wait_of(&limiter, &both[1]).await, 3 * SECOND / 10);
    limiter.0.ticket(&both, &second).cancel();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let waits = [
            wait_of(&limiter, &both[0]).await,
            wait_of(&limiter, &both[1]).await,
        ];
        if waits == [SECOND / 5, SECOND / 10] {
            return;
        }
        assert!(Instant::now() < deadline, "{waits:?}");
        sleep(Duration::from_millis(1)).await;
    }
}

pub async fn a_shadow_is_decided_when_all_rules_let_the_request_start(subject: &Subject) {
    let wide = Rule::new("wide", Quota::gcra(10, SECOND).burst(1)).wait(MINUTE);
    let shadow = Rule::new("seven", Quota::gcra(7, SECOND).burst(1)).wait(MINUTE);
    let limiter = subject.limiter([provider(MINUTE), wide, shadow.shadow()]);
    let all = ["provider", "wide", "seven"].map(|rule| limiter.check(rule, "a", 1));
    for n in 0..4 {
        let decision = limiter.acquire(&all).await;
        assert_eq!(decision.delay(), n * SECOND / 5);
        // Later than the wide rule alone would start, and earlier than all of them do.
        let seven = decision.verdicts()[2];
        assert_eq!(seven.outcome(), Outcome::Allow, "{n}: {decision:?}");
    }
}
