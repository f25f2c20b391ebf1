//! Time passes, and goes back.

use std::time::Duration;

use tollgate_core::{
    AlgorithmKind, Check, DAY, Decision, HOUR, MINUTE, Quota, Retry, Rule, SECOND, Ticket,
    calendar::CalendarUnit,
};

use crate::subject::{Subject, TestLimiter};

const TICK: Duration = Duration::from_micros(1);

fn quotas() -> Vec<Quota> {
    vec![
        Quota::fixed_window(10, SECOND),
        Quota::calendar(10, CalendarUnit::Day).zone("Asia/Kathmandu"),
        Quota::calendar(10, CalendarUnit::Month).zone("Europe/Zurich"),
        Quota::sliding_window(10, SECOND),
        Quota::sliding_window(100, MINUTE),
        Quota::sliding_buckets(10, MINUTE),
        Quota::sliding_buckets(10, SECOND).buckets(7),
        Quota::sliding_log(10, SECOND),
        Quota::gcra(7, SECOND).burst(10),
        Quota::gcra(999_983, SECOND).burst(12),
        Quota::gcra(1, DAY),
        Quota::token_bucket(20).refill(3, Duration::from_millis(10)),
        Quota::leaky_bucket(10).leak(7, MINUTE),
    ]
}

async fn passes_at_its_retry_and_not_earlier(
    subject: &Subject,
    limiter: &TestLimiter,
    checks: &[Check],
    what: &dyn std::fmt::Debug,
) -> Decision {
    let denied = limiter.acquire(checks).await;
    let Retry::After(delay) = denied.retry() else {
        assert!(denied.is_allowed(), "{what:?}: {denied:?}");
        return denied;
    };
    assert!(delay >= TICK, "{what:?}: {denied:?}");
    subject.clock().advance(delay - TICK);
    let early = limiter.acquire(checks).await;
    assert!(
        !early.is_allowed(),
        "{what:?}: one tick before {delay:?} it passes"
    );
    assert_eq!(early.retry(), Retry::After(TICK), "{what:?}");
    subject.clock().advance(TICK);
    let after = limiter.acquire(checks).await;
    assert!(
        after.is_allowed(),
        "{what:?}: after {delay:?} it does not pass: {after:?}"
    );
    after
}

pub async fn retry_is_exact_to_the_tick(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        let step = quota.window() / 13 + Duration::from_micros(17);
        for round in 0..60 {
            let cost = 1 + [0, 1, 5, 2, 9][round % 5] % quota.limit();
            let check = [limiter.check(&name, "a", cost)];
            let _ = passes_at_its_retry_and_not_earlier(subject, &limiter, &check, &quota).await;
            subject.clock().advance(step * (round as u32 % 3));
        }
    }
}

/// The `retry` of an allowed request: when the same cost fits again.
pub async fn an_allowed_request_knows_to_the_tick_when_it_passes_again(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        let costs = [1, 3, 7, 10].map(|cost: u64| cost.min(quota.limit()));
        for cost in costs {
            let mut waits = 0;
            let most = quota.limit().saturating_sub(2 * cost);
            assert!(limiter.took(&name, "a", most).await, "{quota:?}");
            for round in 0..40_u32 {
                let decision = limiter.take(&name, "a", cost).await;
                assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
                assert_eq!(
                    (decision.retry(), decision.retry_after()),
                    (Retry::Now, None)
                );
                let verdict = decision.verdicts()[0];
                match verdict.retry() {
                    Retry::Now => assert!(verdict.remaining() >= cost, "{quota:?}: {verdict:?}"),
                    Retry::After(wait) => {
                        assert!(verdict.remaining() < cost, "{quota:?}: {verdict:?}");
                        waits += 1;
                        subject.clock().advance(wait - TICK);
                        let check = [limiter.check(&name, "a", cost)];
                        let early = limiter.acquire(&check).await;
                        assert_eq!(early.retry(), Retry::After(TICK), "{quota:?}: {verdict:?}");
                        // Sometimes later than that.
                        let later = quota.window() / 17 * (round % 3);
                        subject.clock().advance(TICK + later);
                    }
                    other => panic!("{quota:?}: {other:?} is no answer to what was taken"),
                }
            }
            assert!(waits > 1, "{quota:?}: it was never used up");
            subject.clock().advance(3 * quota.window());
        }
    }
}

/// The `retry` of a request of cost 0: when one unit fits.
pub async fn a_request_that_costs_nothing_knows_when_one_unit_fits(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        let fresh = limiter.take(&name, "a", 0).await;
        assert_eq!(fresh.verdicts()[0].retry(), Retry::Now, "{quota:?}");
        assert!(limiter.took(&name, "a", quota.limit()).await);
        let empty = limiter.take(&name, "a", 0).await;
        assert!(empty.is_allowed(), "{quota:?}");
        let denied = limiter.take(&name, "a", 1).await;
        assert_eq!(empty.verdicts()[0].retry(), denied.retry(), "{quota:?}");
    }
}

pub async fn retry_is_exact_after_a_change_of_plan(subject: &Subject) {
    let plans = [
        (
            Quota::fixed_window(10, SECOND),
            Quota::fixed_window(100, SECOND),
        ),
        (
            Quota::sliding_window(10, SECOND),
            Quota::sliding_window(100, SECOND),
        ),
        (
            Quota::sliding_buckets(10, MINUTE),
            Quota::sliding_buckets(100, MINUTE),
        ),
        (
            Quota::sliding_log(10, SECOND),
            Quota::sliding_log(100, SECOND),
        ),
        (
            Quota::gcra(7, SECOND).burst(10),
            Quota::gcra(97, SECOND).burst(100),
        ),
        (Quota::gcra(3, MINUTE), Quota::gcra(1_000, MINUTE).burst(90)),
    ];
    for (n, (free, gold)) in plans.into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, free).plan("gold", gold)]);
        for round in 0..40_u64 {
            let used = 1 + round * 37 % gold.limit();
            let golden = [limiter.planned(&name, "gold", "a", used)];
            let _ = passes_at_its_retry_and_not_earlier(subject, &limiter, &golden, &gold).await;
            subject
                .clock()
                .advance(gold.window() / 7 * (round as u32 % 5));
            let check = [limiter.check(&name, "a", 1 + round % free.limit())];
            let _ = passes_at_its_retry_and_not_earlier(subject, &limiter, &check, &free).await;
        }
    }
}

pub async fn who_has_used_up_a_longer_window_waits_for_no_more_than_a_shorter_one(
    subject: &Subject,
) {
    for (long, short) in [
        (
            Quota::fixed_window(100, HOUR),
            Quota::fixed_window(10, MINUTE),
        ),
        (
            Quota::calendar(10, CalendarUnit::Month),
            Quota::calendar(10, CalendarUnit::Day),
        ),
        (
            Quota::sliding_window(100, HOUR),
            Quota::sliding_window(10, MINUTE),
        ),
        (
            Quota::sliding_buckets(10, HOUR),
            Quota::sliding_buckets(10, MINUTE),
        ),
        (Quota::sliding_log(10, HOUR), Quota::sliding_log(10, SECOND)),
    ] {
        let before = subject.limiter([Rule::new("rule", long)]);
        let who = long.to_string();
        assert!(before.took("rule", &who, long.limit()).await);
        let after = subject.replacing(&[&before], [Rule::new("rule", short)]);
        let after = after.expect("it replaces the other");
        let denied = after.take("rule", &who, 1).await;
        assert!(!denied.is_allowed(), "{short}");
        let delay = denied.retry().delay().expect("it is known");
        assert!(delay <= 2 * short.window(), "{short}: {delay:?}");
        let check = [after.check("rule", &who, 1)];
        let _ = passes_at_its_retry_and_not_earlier(subject, &after, &check, &short).await;
    }
}

/// The limits of two versions of a service, which count in windows of two lengths.
fn of_two_lengths() -> [[Quota; 2]; 5] {
    let calendar = [(100, CalendarUnit::Month), (10, CalendarUnit::Day)];
    let window = |of: fn(u64, Duration) -> Quota| [of(100, HOUR), of(10, MINUTE)];
    [
        calendar.map(|(limit, unit)| Quota::calendar(limit, unit)),
        window(Quota::fixed_window),
        window(Quota::sliding_window),
        window(Quota::sliding_buckets),
        window(Quota::sliding_log),
    ]
}

pub async fn windows_of_two_lengths_admit_the_longer_ones_limit_in_each_shorter_one(
    subject: &Subject,
) {
    for [long, short] in of_two_lengths() {
        let (name, mut passed) = (long.to_string().replace([' ', '/'], "-"), 0);
        let mut version = subject.limiter([Rule::new(&*name, long)]);
        for turn in 0..200 {
            let rule = Rule::new(&*name, [short, long][turn % 2]);
            let other = subject.replacing(&[&version], [rule]);
            version = other.expect("it replaces the other");
            while version.took(&name, "a", 1).await {
                passed += 1;
            }
            subject.clock().advance(short.window() / 20);
        }
        assert!(
            (100..=1_100).contains(&passed),
            "{passed} in ten of {short}"
        );
    }
}

pub async fn what_is_owed_is_owed_under_a_shorter_window(subject: &Subject) {
    for [long, short] in of_two_lengths() {
        if may_be_owed(&long) {
            let name = long.to_string().replace([' ', '/'], "-");
            let before = subject.limiter([Rule::new(&*name, long).debt(50)]);
            charged(&before, &name, 124).await;
            let after = subject.replacing(&[&before], [Rule::new(&*name, short).debt(50)]);
            let after = after.expect("it replaces the other");
            assert_eq!(owed_and_left(&after, &name).await, (25, 0), "{short}");
            subject.clock().advance(short.window());
            assert!(!after.took(&name, "a", 1).await, "{short}");
        }
    }
}

pub async fn retry_of_a_request_is_that_of_the_rule_that_denies_longest(subject: &Subject) {
    let quotas = quotas();
    for (n, one) in quotas.iter().enumerate() {
        for (m, other) in quotas[..n].iter().enumerate() {
            let (a, b) = (format!("one-{n}-{m}"), format!("other-{n}-{m}"));
            let limiter = subject.limiter([Rule::new(&*a, *one), Rule::new(&*b, *other)]);
            for round in 0..12 {
                let checks = [
                    limiter.check(&a, "a", 1 + round % one.limit()),
                    limiter.check(&b, "a", 1 + (round + 3) % other.limit()),
                ];
                let what = (one, other);
                let _ =
                    passes_at_its_retry_and_not_earlier(subject, &limiter, &checks, &what).await;
            }
        }
    }
}

pub async fn after_reset_after_the_whole_limit_is_there(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        for cost in [1, quota.limit(), quota.limit() / 2 + 1] {
            let decision = limiter.take(&name, "a", cost).await;
            assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
            subject
                .clock()
                .advance(decision.verdicts()[0].reset_after());
            assert_eq!(limiter.left(&name, "a").await, quota.limit(), "{quota:?}");
        }
    }
}

pub async fn tickets_that_are_held_and_cancelled_lift_no_client_above_its_limit(subject: &Subject) {
    const LIMIT: u64 = 10;
    for quota in [
        Quota::fixed_window(LIMIT, MINUTE),
        Quota::sliding_window(LIMIT, MINUTE),
        Quota::sliding_buckets(LIMIT, MINUTE),
        Quota::sliding_log(LIMIT, MINUTE),
        Quota::gcra(LIMIT, MINUTE),
        // A unit takes a part of a microsecond.
        Quota::token_bucket(LIMIT).refill(7, SECOND),
    ] {
        let name = format!("{}-{}", quota.algorithm(), quota.rate());
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        let check = [limiter.check(&name, "a", 1)];
        // To the start of a window of any of them.
        let start = subject.clock().now().div_ceil(60_000_000) * 60_000_000;
        subject.clock().set(start);
        let mut held = Vec::new();
        for _ in 1..LIMIT {
            let mut taken = Vec::new();
            loop {
                let decision = limiter.acquire(&check).await;
                if !decision.is_allowed() {
                    break;
                }
                taken.push(limiter.0.ticket(&check, &decision));
            }
            // The last one is held: by its receipt, its units weigh until all have refilled.
            let before = limiter.left(&name, "a").await;
            held.extend(taken.pop());
            let given_back = taken.len() as u64;
            taken.into_iter().for_each(Ticket::cancel);
            limiter
                .settled(&name, "a", before + given_back, &quota)
                .await;
            subject
                .clock()
                .advance(quota.window() / LIMIT as u32 + TICK);
        }
        let mut kept = 0;
        while limiter.took(&name, "a", 1).await {
            kept += 1;
        }
        let held_back = held.len() as u64;
        held.into_iter().for_each(Ticket::cancel);
        let is_bucket = matches!(
            quota.algorithm(),
            AlgorithmKind::Gcra | AlgorithmKind::TokenBucket
        );
        if !is_bucket {
            limiter.settled(&name, "a", held_back, &quota).await;
        }
        while limiter.took(&name, "a", 1).await {
            kept += 1;
        }
        assert_eq!(kept, LIMIT, "{quota:?}");
    }
}

pub async fn time_that_goes_back_never_refills(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        let start = subject.clock().now();
        assert!(limiter.took(&name, "a", quota.limit()).await);
        for back in [1, 1_000, 1_000_000, 3_600_000_000] {
            subject.clock().set(start - back);
            assert_eq!(
                limiter.left(&name, "a").await,
                0,
                "{quota:?}, {back} µs ago"
            );
            assert!(
                !limiter.took(&name, "a", 1).await,
                "{quota:?}, {back} µs ago"
            );
        }
        subject.clock().set(start);
    }
}

pub async fn after_time_went_back_a_denial_is_no_longer_than_a_window(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        assert!(limiter.took(&name, "a", quota.limit()).await);
        let start = subject.clock().now();
        subject.clock().set(start - 40 * 86_400_000_000);
        went_back(subject, &limiter, &name, quota).await;
        subject.clock().set(start);
    }
}

pub async fn after_a_denial_time_that_goes_back_is_repaired(subject: &Subject) {
    for back in [HOUR, 40 * DAY] {
        for (n, quota) in quotas().into_iter().enumerate() {
            let name = format!("rule-{n}-{}", back.as_secs());
            let limiter = subject.limiter([Rule::new(&*name, quota)]);
            assert!(limiter.took(&name, "a", quota.limit()).await);
            // A deny cache may hold it.
            assert!(!limiter.took(&name, "a", 1).await);
            let start = subject.clock().now();
            subject.clock().set(start - back.as_micros() as u64);
            went_back(subject, &limiter, &name, quota).await;
            subject.clock().set(start);
        }
    }
}

async fn went_back(subject: &Subject, limiter: &TestLimiter, name: &str, quota: Quota) {
    let check = [limiter.check(name, "a", 1)];
    let denied = limiter.peek(&check).await;
    let Retry::After(delay) = denied.retry() else {
        panic!("{quota:?}: {denied:?}");
    };
    // A window of two counters takes a second one to slide out.
    assert!(delay <= 2 * quota.window(), "{quota:?}: {delay:?}");
    let _ = passes_at_its_retry_and_not_earlier(subject, limiter, &check, &quota).await;
}

pub async fn a_refund_that_comes_late_gives_back_nothing_that_time_gave(subject: &Subject) {
    for (n, quota) in quotas().into_iter().enumerate() {
        let name = format!("rule-{n}");
        let limiter = subject.limiter([Rule::new(&*name, quota)]);
        let check = [limiter.check(&name, "a", quota.limit())];
        let decision = limiter.acquire(&check).await;
        assert!(decision.is_allowed());
        let ticket = limiter.0.ticket(&check, &decision);
        subject
            .clock()
            .advance(decision.verdicts()[0].reset_after());
        assert!(limiter.took(&name, "a", quota.limit()).await, "{quota:?}");
        ticket.cancel();
        assert_eq!(limiter.left(&name, "a").await, 0, "{quota:?}");
        assert!(!limiter.took(&name, "a", 1).await, "{quota:?}");
    }
}

pub async fn a_cost_that_never_fits_never_fits_later(subject: &Subject) {
    for (limiter, name, quota) in subject.each(3) {
        for _ in 0..3 {
            assert_eq!(
                limiter.take(name, "a", 4).await.retry(),
                Retry::Never,
                "{quota:?}"
            );
            subject.clock().advance(2 * quota.window());
        }
    }
}

/// A key of a rule that may owe 25 units, and owes what was charged.
async fn charged(limiter: &TestLimiter, rule: &str, charged: u64) {
    let check = [limiter.check(rule, "a", 1)];
    let decision = limiter.acquire(&check).await;
    limiter.0.ticket(&check, &decision).settle(1 + charged);
    let look = [limiter.check(rule, "a", 0)];
    for _ in 0..60_000 {
        if limiter.peek(&look).await.verdicts()[0].debt() > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{rule} owes nothing");
}

pub async fn what_is_owed_is_paid_back_before_anything_fits(subject: &Subject) {
    let quotas = quotas().into_iter().filter(may_be_owed);
    for (number, quota) in quotas.enumerate() {
        let name = format!("rule-{number}");
        let limit = quota.limit();
        let limiter = subject.limiter([Rule::new(&*name, quota).debt(limit * 2 + 5)]);
        charged(&limiter, &name, limit * 2 + limit / 2 + 2).await;
        for cost in [1, limit / 2 + 1, limit] {
            let check = [limiter.check(&name, "a", cost)];
            let _ = passes_at_its_retry_and_not_earlier(subject, &limiter, &check, &quota).await;
        }
        subject.clock().advance(4 * quota.window());
        assert_eq!(limiter.left(&name, "a").await, limit, "{quota:?}");
    }
}

pub async fn a_lowered_limit_keeps_what_is_owed(subject: &Subject) {
    for (number, quota) in [
        Quota::fixed_window(10, MINUTE),
        Quota::sliding_window(10, MINUTE),
        Quota::gcra(10, MINUTE),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("rule-{number}");
        let rule = Rule::new(&*name, quota).variable_quota().debt(30);
        let limiter = subject.limiter([rule]);
        let start = subject.clock().now();
        charged(&limiter, &name, 24).await;
        let lowered = match quota.algorithm() {
            AlgorithmKind::FixedWindow => Quota::fixed_window(5, MINUTE),
            AlgorithmKind::SlidingWindow => Quota::sliding_window(5, MINUTE),
            _ => Quota::gcra(5, MINUTE),
        };
        // The quota that wrote the state has it paid back: 15 units, of 10 a minute.
        let check = [limiter.with_quota(&name, lowered, "a", 1)];
        let _ = passes_at_its_retry_and_not_earlier(subject, &limiter, &check, &quota).await;
        assert!(subject.clock().now() - start >= 60_000_000, "{quota:?}");
    }
}

/// Each request takes 100 units and turns out to cost 9 000, for ten minutes of 10 000 each, one request after another or ten at once.
#[expect(clippy::print_stdout, reason = "the guide has these figures")]
pub async fn a_client_that_costs_90_times_its_estimate_uses_what_the_quota_allows_and_the_debt(
    subject: &Subject,
) {
    const DEBT: u64 = 100_000;
    let (a_minute, minutes) = (10_000, 10);
    // How much of the quota lies in ten minutes, wherever they begin.
    let cases = [
        (Quota::gcra(a_minute, MINUTE), minutes + 1),
        (
            Quota::token_bucket(a_minute).refill(a_minute, MINUTE),
            minutes + 1,
        ),
        (
            Quota::leaky_bucket(a_minute).leak(a_minute, MINUTE),
            minutes + 1,
        ),
        (Quota::fixed_window(a_minute, MINUTE), minutes + 1),
        (Quota::calendar(60 * a_minute, CalendarUnit::Day), 120),
        (Quota::sliding_window(a_minute, MINUTE), minutes + 1),
    ];
    for (number, (quota, quotas)) in cases.into_iter().enumerate() {
        for at_once in [1, 10] {
            let name = format!("rule-{number}-{at_once}");
            let limiter = subject.limiter([Rule::new(&*name, quota).cost(100).debt(DEBT)]);
            let end = subject.clock().now() + 600_000_000;
            let mut used = 0;
            while subject.clock().now() < end {
                let (mut tickets, mut retry) = (Vec::new(), None);
                for _ in 0..at_once {
                    let check = [limiter.check(&name, "a", 100)];
                    let decision = limiter.acquire(&check).await;
                    match decision.is_allowed() {
                        true => tickets.push(limiter.0.ticket(&check, &decision)),
                        false => retry = decision.retry().delay(),
                    }
                }
                for ticket in tickets {
                    let before = owed_and_left(&limiter, &name).await;
                    ticket.settle(9_000);
                    used += 9_000;
                    while owed_and_left(&limiter, &name).await == before {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                subject.clock().advance(retry.unwrap_or(TICK));
            }
            let most = quotas * a_minute + DEBT;
            println!("| {quota} | {at_once} | {used} | {most} |");
            assert!(used <= most, "{quota:?}, {at_once} at once: {used}");
            // Not much less either: what was paid back is there again.
            let least = (quotas - 1).min(minutes) * a_minute;
            assert!(used >= least, "{quota:?}, {at_once} at once: {used}");
        }
    }
}

async fn owed_and_left(limiter: &TestLimiter, rule: &str) -> (u64, u64) {
    let look = limiter.peek(&[limiter.check(rule, "a", 0)]).await;
    (look.verdicts()[0].debt(), look.verdicts()[0].remaining())
}

/// Whether a rule with the quota can have debt.
fn may_be_owed(quota: &Quota) -> bool {
    !matches!(
        quota.algorithm(),
        AlgorithmKind::SlidingLog | AlgorithmKind::SlidingBuckets
    )
}
