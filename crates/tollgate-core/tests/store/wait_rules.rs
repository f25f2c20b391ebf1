//! Requests that wait by their rules: in the store for units, in the process for slots.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tollgate_conformance::SwitchedStore;
use tollgate_core::{
    Check, Clock, Consistency, Decision, Key, KeyBuf, Limiter, MINUTE, ManualClock, MemoryStore,
    Outcome, Pending, Quota, Reason, Rule, RuleError, RuleErrorKind, RuleSet, SECOND, Step, Store,
    StoreError, WaitError, WaitErrorKind,
    store::{Checks, Fingerprint, Receipt, RuleRegistry, RuleStore, Settlement},
};

use crate::{at_once, check, layered, left};

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
async fn workers_of_several_limiters_start_in_the_order_of_the_store() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    // 200 events a second into 5 a second, from three processes' worth of limiters.
    for n in 0..200_u32 {
        let limiter = Limiter::new(store.clone(), [provider()]).expect("one budget");
        let starts = Arc::clone(&starts);
        tasks.spawn(async move {
            sleep(SECOND * n / 200).await;
            let check = [check(&limiter, "provider", "a", 1)];
            let decision = limiter.acquire_within(&check, MINUTE).await;
            assert!(decision.expect("there is room").is_allowed());
            starts.lock().await.push((begin.elapsed(), n));
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a worker");
    }
    let starts = starts.lock().await.clone();
    let order: Vec<u32> = starts.iter().map(|(_, n)| *n).collect();
    assert!(order.is_sorted(), "{order:?}");
    for (index, (at, _)) in starts.iter().enumerate() {
        let due = SECOND * index as u32 / 5;
        // Timers of the runtime tick in milliseconds.
        assert!(
            *at >= due && *at < due + Duration::from_millis(5),
            "{index}: {at:?}"
        );
    }
}

/// A memory store whose commands take this long to arrive, and whose replies come as much later.
#[derive(Clone, Debug)]
struct FarAway<T> {
    memory: T,
    way: Duration,
}

impl Store for FarAway<MemoryStore> {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        let (memory, way) = (self.memory.bind(rules)?, self.way);
        Ok(Arc::new(FarAway { memory, way }))
    }

    fn registry(&self) -> &RuleRegistry {
        self.memory.registry()
    }
}

impl RuleStore for FarAway<Arc<dyn RuleStore>> {
    fn rules(&self) -> &Arc<RuleSet> {
        self.memory.rules()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.memory.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.acquire_within(checks, Duration::MAX)
    }

    fn acquire_within(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        let (store, checks) = (self.clone(), Checks::from_slice(checks));
        Step::Wait(Pending::new(async move {
            sleep(store.way).await;
            let decision = store.memory.acquire_within(&checks, patience).await;
            sleep(store.way).await;
            decision
        }))
    }

    fn supports_wait(&self) -> bool {
        true
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.memory.peek(checks)
    }

    fn settle(&self, receipts: &[Receipt], how: Settlement) {
        self.memory.settle(receipts, how);
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        self.memory.reset(checks)
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_counts_from_when_its_reply_comes() {
    let store = FarAway {
        memory: MemoryStore::builder().clock(Clock::tokio()).build(),
        way: SECOND / 100,
    };
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

#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_once() {
    let window = Rule::new("window", Quota::fixed_window(1, MINUTE));
    let limiter = limiter([provider(), window]);
    let checks = [
        check(&limiter, "provider", "a", 1),
        check(&limiter, "window", "a", 1),
    ];
    let lapsed = || limiter.rule_store().lapsed_units(0);
    let waiting = at_once(limiter.acquire(&checks[..1]));
    assert!(waiting.delay().is_zero());
    // A client that goes away.
    for give_up in [true, false] {
        let waiting = at_once(limiter.acquire(&checks[..1]));
        let place = limiter.ticket(&checks[..1], &waiting);
        match give_up {
            true => place.cancel(),
            false => drop(place.cancel_on_drop()),
        }
        assert_eq!(lapsed(), 0);
    }
    // A second call that is denied.
    let waiting = at_once(limiter.acquire(&checks));
    assert!(at_once(limiter.acquire(&checks[1..])).is_allowed());
    sleep(waiting.delay() / 2).await;
    let started = at_once(limiter.start(&checks, waiting));
    assert!(!started.is_allowed());
    limiter.ticket(&checks, &started).cancel();
    assert_eq!(lapsed(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_returns_the_last_place_and_no_other() {
    let limiter = limiter([provider()]);
    let check = [check(&limiter, "provider", "a", 1)];
    let first = at_once(limiter.acquire(&check));
    assert!(first.delay().is_zero());
    // Cut off while it waits, with no request behind it.
    let cut = timeout(SECOND / 20, limiter.acquire_within(&check, SECOND)).await;
    assert!(cut.is_err());
    let second = at_once(limiter.acquire(&check));
    assert_eq!(second.delay(), SECOND / 5 - SECOND / 20);
    let third = at_once(limiter.acquire(&check));
    // The second has somebody behind it, so its place lapses.
    limiter.ticket(&check, &second).cancel();
    assert_eq!(limiter.rule_store().lapsed_units(0), 1);
    assert_eq!(
        at_once(limiter.acquire(&check)).delay(),
        third.delay() + SECOND / 5
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_does_not_wait_is_charged_at_the_start() {
    let window = Rule::new("window", Quota::fixed_window(2, MINUTE));
    let limiter = limiter([provider(), window]);
    let checks = [
        check(&limiter, "provider", "a", 1),
        check(&limiter, "window", "a", 1),
    ];
    let first = at_once(limiter.acquire(&checks));
    assert_eq!(first.verdicts()[1].remaining(), 1);
    let waiting: Vec<_> = (0..2).map(|_| at_once(limiter.acquire(&checks))).collect();
    // Nothing of the window is taken while they wait.
    for decision in &waiting {
        assert!(decision.is_allowed() && !decision.delay().is_zero());
        assert_eq!(decision.verdicts()[1].remaining(), 1);
    }
    let [second, third] = waiting.try_into().expect("two wait");
    sleep(third.delay()).await;
    let second = at_once(limiter.start(&checks, second));
    assert!(second.is_allowed());
    assert_eq!(second.waited(), SECOND / 5);
    assert_eq!(second.verdicts()[1].remaining(), 0);
    let third = at_once(limiter.start(&checks, third));
    assert_eq!(
        (third.outcome(), third.reason()),
        (Outcome::Deny, Some(Reason::Quota))
    );
    // What it waited for has gone back: it is the next one's, at once.
    let alone = [checks[0]];
    assert!(at_once(limiter.acquire(&alone)).delay().is_zero());
}

#[test]
fn a_threshold_above_the_burst_observes_the_queue() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let quota = Quota::gcra(1, SECOND);
    let rule = Rule::new("api", quota).wait(10 * SECOND);
    let rule = rule.threshold("queue", quota.burst(3));
    let limiter = Limiter::new(store, [rule]).expect("valid rules");
    let api = [check(&limiter, "api", "a", 1)];
    for n in 0..6_u32 {
        let decision = at_once(limiter.acquire(&api));
        assert_eq!(decision.delay(), n * SECOND);
        let threshold = decision.verdicts()[1];
        let is_above = threshold.outcome() == Outcome::Deny;
        assert_eq!(is_above, n >= 3, "{n}: {threshold:?}");
    }
}

#[test]
fn a_shadow_is_decided_at_the_start_and_moves_nothing() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let enforced = Rule::new("api", Quota::gcra(1, SECOND)).wait(10 * SECOND);
    let slower = Rule::new("slower", Quota::gcra(1, 2 * SECOND))
        .wait(10 * SECOND)
        .shadow();
    let limiter = Limiter::new(store, [enforced, slower]).expect("valid rules");
    let checks = [
        check(&limiter, "api", "a", 1),
        check(&limiter, "slower", "a", 1),
    ];
    // The shadow lets every second one pass, as of the instant at which it starts.
    for n in 0..6_u32 {
        let decision = at_once(limiter.acquire(&checks));
        assert_eq!(decision.delay(), n * SECOND);
        let outcome = decision.verdicts()[1].outcome();
        assert_eq!(outcome == Outcome::Allow, n % 2 == 0, "{n}");
    }
}

#[test]
fn a_state_lives_until_its_queue_is_paid_back() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("api", Quota::gcra(1, SECOND)).wait(10 * SECOND);
    let limiter = Limiter::new(store, [rule]).expect("valid rules");
    let api = [check(&limiter, "api", "a", 1)];
    for _ in 0..5 {
        assert!(at_once(limiter.acquire(&api)).is_allowed());
    }
    let keys = || limiter.rule_store().usage(0).map(|usage| usage.keys);
    clock.advance(5 * SECOND - Duration::from_micros(1));
    assert_eq!(keys(), Some(1));
    clock.advance(Duration::from_micros(1));
    assert_eq!(keys(), Some(0));
}

#[test]
fn a_wait_that_cannot_work_is_refused_with_what_would() {
    let refused = |rule: Rule, words: &[&str]| {
        let error = RuleSet::new([rule]).expect_err("it cannot work");
        assert_eq!(error.kind(), RuleErrorKind::Wait, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{error} lacks {word:?}");
        }
    };
    for quota in [
        Quota::fixed_window(5, SECOND),
        Quota::sliding_window(5, SECOND),
        Quota::sliding_buckets(5, SECOND),
        Quota::sliding_log(5, SECOND),
    ] {
        let name = quota.algorithm().name();
        refused(
            Rule::new("log-in", quota).wait(SECOND),
            &[name, "Quota::leaky_bucket"],
        );
    }
    let rate = Rule::new("rate", Quota::gcra(1, SECOND));
    refused(rate.clone().wait(Duration::ZERO), &["0ns", "5 * SECOND"]);
    refused(
        rate.clone().wait(Duration::from_nanos(1_500)),
        &["1.5µs", "microseconds"],
    );
    let long = tollgate_core::MAX_PERIOD;
    let slow = Quota::gcra(1, long).burst(10);
    refused(
        Rule::new("slow", slow).wait(long),
        &["represent", "smaller burst"],
    );
    let fast = Quota::gcra(2_000_000, SECOND);
    refused(
        Rule::new("fast", fast).wait(SECOND),
        &["microsecond", "larger units"],
    );
    let eventual = Consistency::Eventual {
        interval: SECOND,
        max_unreported: 1,
    };
    refused(
        rate.consistency(eventual).wait(SECOND),
        &["Eventual", "Consistency::Exact"],
    );
}

#[test]
fn another_wait_under_a_name_in_use_is_refused() {
    let store = MemoryStore::new();
    let _first = Limiter::new(store.clone(), [provider()]).expect("valid");
    for rule in [
        provider().wait(SECOND),
        Rule::new("provider", *provider().quota()),
    ] {
        let error = Limiter::new(store.clone(), [rule]).expect_err("one name, one queue");
        assert_eq!(error.kind(), RuleErrorKind::Conflict);
        assert!(error.to_string().contains("wait"), "{error}");
    }
}

fn exports(wait: Duration) -> Rule {
    Rule::new("exports", Quota::concurrent(1)).wait(wait)
}

#[tokio::test(start_paused = true)]
async fn slots_are_waited_for_in_a_queue() {
    let limiter = limiter([exports(MINUTE)]);
    let ran = Arc::new(Mutex::new(Vec::new()));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..10_u32 {
        let (limiter, ran) = (limiter.clone(), Arc::clone(&ran));
        tasks.spawn(async move {
            sleep(n * SECOND / 100).await;
            let check = [check(&limiter, "exports", "a", 1)];
            let decision = limiter.acquire_within(&check, MINUTE).await;
            let decision = decision.expect("there is room");
            let ticket = limiter.ticket(&check, &decision);
            assert!(decision.is_allowed() && ticket.slot_number("exports").is_some());
            ran.lock().await.push((n, begin.elapsed()));
            sleep(SECOND).await;
            drop(ticket);
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("a worker");
    }
    for (index, (n, at)) in ran.lock().await.iter().enumerate() {
        assert_eq!(*n as usize, index);
        let due = index as u32 * SECOND;
        assert!(
            *at >= due && *at < due + Duration::from_millis(20),
            "{n} at {at:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_overtake_those_who_wait_for_slots() {
    let limiter = limiter([exports(MINUTE)]);
    let check = [check(&limiter, "exports", "a", 1)];
    let running = at_once(limiter.acquire(&check));
    let first = {
        let (limiter, check) = (limiter.clone(), check);
        tokio::spawn(async move {
            let held = limiter.acquire_within(&check, MINUTE).await;
            assert!(held.as_ref().is_ok_and(Decision::is_allowed));
            sleep(SECOND).await;
            drop(held);
        })
    };
    sleep(SECOND).await;
    let begin = Instant::now();
    // The slot is free before the one in front knows it.
    drop(running);
    let second = limiter.acquire_within(&check, MINUTE).await;
    assert!(second.expect("there is room").is_allowed());
    assert_eq!(begin.elapsed(), SECOND);
    first.await.expect("a task");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_slots_ends_with_its_patience_or_its_caller() {
    let limiter = limiter([exports(SECOND)]);
    let check = [check(&limiter, "exports", "a", 1)];
    let running = at_once(limiter.acquire(&check));
    let begin = Instant::now();
    let expired = limiter
        .acquire_within(&check, MINUTE)
        .await
        .expect("it queues");
    assert_eq!(expired.reason(), Some(Reason::WaitExpired));
    assert_eq!(begin.elapsed(), SECOND);
    // One that is cut off leaves the line to the next.
    let cut = timeout(SECOND / 2, limiter.acquire_within(&check, MINUTE)).await;
    assert!(cut.is_err());
    let next = {
        let (limiter, check) = (limiter.clone(), check);
        tokio::spawn(async move { limiter.acquire_within(&check, MINUTE).await })
    };
    sleep(SECOND / 4).await;
    drop(running);
    let next = next.await.expect("a task").expect("it queues");
    assert!(next.is_allowed());
    assert_eq!(begin.elapsed(), SECOND + SECOND / 2 + SECOND / 4);
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
async fn no_more_wait_than_may() {
    let limiter = limiter([Rule::new("provider", Quota::per_second(100).burst(1)).wait(MINUTE)]);
    let check = [limiter.check("provider", &Key::shared()).expect("a rule")];
    let mut tasks = JoinSet::new();
    for _ in 0..300 {
        let limiter = limiter.clone();
        tasks.spawn(async move { limiter.acquire_within(&check, MINUTE).await });
    }
    let (mut allowed, mut full) = (0, 0);
    while let Some(task) = tasks.join_next().await {
        match task.expect("a task") {
            Ok(decision) => allowed += u32::from(decision.is_allowed()),
            Err(error) => {
                assert_eq!(error.kind(), WaitErrorKind::QueueFull);
                full += 1;
            }
        }
    }
    assert_eq!((allowed, full), (257, 43));
}

#[tokio::test(start_paused = true)]
async fn a_plain_acquire_does_not_queue_and_the_one_in_the_queue_goes_on_waiting() {
    let slots = Rule::new("slots", Quota::concurrent(1)).wait(MINUTE);
    let limiter = limiter([slots]);
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
    assert!(layered(&limiter).acquire_unless_queued(&checks).is_none());
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
    let [provider, exports, slots] =
        ["provider", "exports", "slots"].map(|rule| check(&limiter, rule, "a", 1));
    for (checks, waits) in [
        (&[provider][..], false),
        (&[slots], false),
        (&[provider, slots], false),
        (&[exports], true),
        (&[provider, exports], true),
        (&[exports, slots], true),
        (&[], false),
    ] {
        assert_eq!(
            layered(&limiter).waits_for_slots(checks),
            waits,
            "{checks:?}"
        );
    }
    let both = [provider, slots];
    drop(at_once(limiter.acquire(&both)));
    let waiting = waits(&limiter, both, MINUTE);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    // One more gets its place in the store, behind it.
    let next = layered(&limiter).acquire_unless_queued(&both).map(at_once);
    let next = next.expect("no request waits for a slot");
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
    let mut started = at_once(limiter.start(&checks, decision));
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
async fn a_slot_is_waited_for_with_a_rule_that_does_not_wait() {
    let rate = Rule::new("rate", Quota::gcra(100, MINUTE));
    let limiter = limiter([exports(MINUTE), rate]);
    let both = ["exports", "rate"].map(|rule| check(&limiter, rule, "a", 1));
    for checks in [both, [both[1], both[0]]] {
        // The queue is empty.
        let first = layered(&limiter)
            .acquire_unless_queued(&checks)
            .map(at_once);
        let first = first.filter(Decision::is_allowed).expect("a free slot");
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire_within(&checks, MINUTE).await }
        });
        sleep(SECOND).await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.expect("a task").expect("room");
        assert!(second.is_allowed());
    }
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
    assert!(!layered(&limiter).waits_for_slots_after(&denied));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    drop(running);
    // The other one is waited for.
    let running = at_once(limiter.acquire(&[check(&limiter, "mine", "a", 5)]));
    let denied = at_once(limiter.acquire(&checks));
    assert!(layered(&limiter).waits_for_slots_after(&denied));
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_a_request_that_a_rule_does_not_let_wait_for_slots() {
    let shadow = Rule::new("shadow", Quota::sliding_log(100, MINUTE)).shadow();
    let mine = Rule::new("mine", Quota::concurrent(5)).wait(MINUTE);
    let limiter = limiter([mine, Rule::new("all", Quota::concurrent(1)), shadow]);
    let checks = ["mine", "all", "shadow"].map(|rule| check(&limiter, rule, "a", 1));
    let _running = at_once(limiter.acquire(&checks[1..2]));
    let denied = limiter.acquire_within(&checks, MINUTE).await;
    assert_eq!(denied.expect("there is room").reason(), Some(Reason::Slots));
    assert_eq!(left(&limiter, "shadow", "a"), 99);
    let denied = layered(&limiter)
        .acquire_unless_queued(&checks)
        .map(at_once);
    assert_eq!(denied.and_then(|it| it.reason()), Some(Reason::Slots));
    assert_eq!(left(&limiter, "shadow", "a"), 98);
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

#[tokio::test(start_paused = true)]
async fn a_request_of_several_rules_gives_back_what_each_of_them_took() {
    let window = Rule::new("window", Quota::fixed_window(5, MINUTE));
    let limiter = limiter([provider(), window]);
    let checks = ["provider", "window"].map(|rule| check(&limiter, rule, "a", 1));
    let alone = || at_once(limiter.acquire(&checks[..1])).delay();
    let first = at_once(limiter.acquire(&checks));
    limiter.ticket(&checks, &first).cancel();
    assert_eq!(left(&limiter, "window", "a"), 5);
    assert!(alone().is_zero());
    // One that has waited and runs.
    let waiting = at_once(limiter.acquire(&checks));
    assert_eq!(waiting.delay(), SECOND / 5);
    sleep(waiting.delay()).await;
    let started = at_once(limiter.start(&checks, waiting));
    assert!(started.is_allowed());
    assert_eq!(left(&limiter, "window", "a"), 4);
    limiter.ticket(&checks, &started).cancel();
    assert_eq!(left(&limiter, "window", "a"), 5);
    assert_eq!(limiter.rule_store().lapsed_units(0), 0);
    assert!(alone().is_zero());
}
