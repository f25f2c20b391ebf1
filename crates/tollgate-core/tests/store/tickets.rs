//! Tickets of requests that took units of several kinds.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate_conformance::{Fault, Fault::Refused, RemoteStore};
use tollgate_core::{
    Block, Check, Clock, Decision, Limiter, ManualClock, MemoryStore, OnStoreError, Quota, Reason,
    Rule, RuleSet, SECOND, Source, Store as _,
    algorithm::{GcraState, Taken},
    observe::Timer,
    store::{Hold, RuleStore, Settlement},
};

use crate::{LONG, at_once, check, left};

#[test]
fn a_request_counts_towards_the_block_of_a_rule_whose_part_of_the_ticket_is_dropped() {
    let rules = [
        Rule::new("log-in", Quota::gcra(10, LONG)).block(Block::after(2).count_settled()),
        Rule::new("bytes", Quota::gcra(10_000, LONG)).block(Block::after(9).count_settled()),
    ];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
    let checks = ["log-in", "bytes"].map(|rule| check(&limiter, rule, "ann", 1));
    for of in ["bytes", "log-in", "bytes"] {
        let decision = at_once(limiter.acquire(&checks));
        assert!(decision.is_allowed(), "{of}");
        let ticket = limiter.ticket(&checks, &decision);
        ticket.of_rule(of).expect("the rule is there").cancel();
    }
    let decision = at_once(limiter.acquire(&checks));
    assert_eq!(decision.reason(), Some(Reason::Blocked));
    assert_eq!(left(&limiter, "bytes", "ann"), 9_999);
}

#[test]
fn a_ticket_of_a_rule_that_is_not_there_says_which_are() {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [Rule::new("bytes", Quota::gcra(10, LONG))],
    )
    .expect("valid");
    let checks = [check(&limiter, "bytes", "ann", 1)];
    let decision = at_once(limiter.acquire(&checks));
    let unknown = limiter.ticket(&checks, &decision).of_rule("octets");
    let message = unknown.expect_err("there is none").to_string();
    assert!(
        message.contains("octets") && message.contains("bytes"),
        "{message}"
    );
}

#[test]
fn each_rule_of_a_ticket_is_settled_once_to_a_cost_of_its_own() {
    let names = ["requests", "bytes", "rows", "pages"];
    let rules = names.map(|name| Rule::new(name, Quota::fixed_window(100, LONG)));
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
    let checks = names.map(|rule| check(&limiter, rule, "ann", 10));
    // Two of them give as much back, one takes more, and one is left as it is.
    for _ in 0..2 {
        let decision = at_once(limiter.acquire(&checks));
        let ticket = limiter.ticket(&checks, &decision);
        ticket.settle_each(|check| [Some(4), Some(12), Some(4), None][usize::from(check.rule())]);
    }
    let left = names.map(|rule| left(&limiter, rule, "ann"));
    assert_eq!(left, [92, 76, 92, 80]);
}

#[tokio::test]
async fn checks_that_cost_alike_are_settled_in_one_call_and_what_cost_as_much_as_it_took_in_none() {
    let store = RemoteStore::new(MemoryStore::new());
    let rules = ["one", "two", "asks"].map(|name| Rule::new(name, Quota::gcra(100, LONG)));
    let limiter = Limiter::new(store.clone(), rules).expect("valid");
    for (costs, settlements) in [
        ([Some(3), Some(3)], 0),
        ([None, Some(3)], 0),
        ([Some(1), Some(1)], 1),
        ([Some(5), Some(5)], 1),
        ([Some(0), Some(0)], 1),
        ([Some(0), Some(3)], 1),
        ([Some(1), Some(2)], 2),
    ] {
        // The third takes nothing, whatever it is said to have cost.
        let checks = [("one", 3), ("two", 3), ("asks", 0)];
        let checks = checks.map(|(rule, cost)| check(&limiter, rule, "ann", cost));
        let decision = limiter.acquire(&checks).await;
        let before = store.settlements();
        let ticket = limiter.ticket(&checks, &decision);
        ticket.settle_each(|check| match check.rule() {
            2 => Some(7),
            rule => costs[usize::from(rule)],
        });
        assert_eq!(store.settlements() - before, settlements, "{costs:?}");
    }
}

// Units that are settled by a rule set which another one has taken the place of.

const START: u64 = 1_700_000_000_000_000;

struct Service {
    clock: ManualClock,
    store: MemoryStore,
}

impl Service {
    fn new() -> Self {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(&clock).build();
        Self { clock, store }
    }

    fn bind(&self, quota: Quota) -> Arc<dyn RuleStore> {
        let rules = RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule");
        self.store.bind(Arc::new(rules)).expect("a valid rule")
    }

    fn check(bound: &Arc<dyn RuleStore>, cost: u64) -> Check {
        let key = bound.fingerprint(0, tollgate_core::Key::of(["client"]).as_ref());
        Check::new(0, key, cost)
    }

    fn take(&self, bound: &Arc<dyn RuleStore>, cost: u64) -> Hold {
        let check = Self::check(bound, cost);
        let decision = at_once(bound.acquire(&[check]));
        assert!(decision.is_allowed());
        let lasts = decision.verdicts()[0].reset_after().as_micros() as u64;
        let at = decision.at();
        Hold::of_store(check, Taken::new(at, at + lasts))
    }

    fn left(bound: &Arc<dyn RuleStore>) -> u64 {
        at_once(bound.peek(&[Self::check(bound, 0)])).verdicts()[0].remaining()
    }
}

/// Each algorithm, with a smaller and a larger limit of the same length.
fn pairs() -> [(Quota, Quota); 5] {
    let of = |limit| {
        [
            Quota::gcra(limit, 100 * SECOND).burst(limit),
            Quota::fixed_window(limit, 100 * SECOND),
            Quota::sliding_window(limit, 100 * SECOND),
            Quota::sliding_log(limit, 100 * SECOND),
            Quota::sliding_buckets(limit, 100 * SECOND).buckets(10),
        ]
    };
    let (ten, hundred) = (of(10), of(100));
    std::array::from_fn(|index| (ten[index], hundred[index]))
}

#[test]
fn what_the_quota_before_has_taken_goes_back_to_the_one_in_force() {
    for (small, large) in pairs() {
        let service = Service::new();
        let old = service.bind(small);
        let (six, three) = (service.take(&old, 6), service.take(&old, 3));
        let new = service.bind(large);
        // It is the new one's from now on.
        service.take(&new, 1);
        assert_eq!(Service::left(&new), 90, "{large:?}");
        service.clock.advance(SECOND / 10);
        old.settle(&[six], Settlement::Cancel);
        assert_eq!(Service::left(&new), 96, "{large:?}");
        old.settle(&[three], Settlement::Refund(2));
        assert_eq!(Service::left(&new), 98, "{large:?}");
        // It has stayed the new one's: a denial by a quota that was cut to ten would have forgotten what is more.
        let used = service.take(&new, 60);
        assert_eq!(Service::left(&new), 38, "{large:?}");
        new.settle(&[used], Settlement::Cancel);
        assert_eq!(Service::left(&new), 98, "{large:?}");
    }
}

// Slots that a decision and its clones hold.

fn one_at_a_time() -> Limiter {
    let rule = Rule::new("at-once", Quota::concurrent(1));
    Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule")
}

fn acquire(limiter: &Limiter) -> Decision {
    at_once(limiter.acquire(&[check(limiter, "at-once", "a", 1)]))
}

#[test]
fn slots_go_back_on_another_thread_and_as_a_thread_ends() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<Decision>> = const { std::cell::RefCell::new(None) };
    }
    let limiter = one_at_a_time();
    for _ in 0..3 {
        let decision = acquire(&limiter);
        assert!(decision.is_allowed());
        let ends = std::thread::spawn(move || LAST.set(Some(decision)));
        ends.join().expect("it does not panic");
    }
    assert!(acquire(&limiter).is_allowed());
}

#[test]
fn a_decision_holds_nothing_of_one_before_it() {
    let limiter = one_at_a_time();
    let check = check(&limiter, "at-once", "a", 1);
    let place = Hold::in_queue(check, Taken::new(0, 1), GcraState::default());
    drop(Decision::unlimited(0).delayed(SECOND, [place]));
    let decision = acquire(&limiter);
    assert!(decision.is_allowed());
    assert_eq!(decision.delay(), Duration::ZERO);
    assert!(decision.queue_places().is_empty());
}

#[tokio::test(start_paused = true)]
async fn slots_of_the_store_and_of_a_share_go_back_each_to_where_they_are_from() {
    let memory = MemoryStore::new();
    // A call for each rule, and only the first one is answered.
    let store = RemoteStore::new(memory.clone()).partitioned();
    let store = store.faults(|call| (call > 1).then_some(Fault::Refused));
    let rules = ["stored", "shared"].map(|name| Rule::new(name, Quota::concurrent(3)));
    let limiter = Limiter::new(store, rules.clone()).expect("valid rules");
    let behind = Limiter::new(memory, rules).expect("valid rules");
    let in_store = || ["stored", "shared"].map(|rule| left(&behind, rule, "a"));

    let checks = ["stored", "shared"].map(|rule| check(&limiter, rule, "a", 1));
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    let sources = [0, 1].map(|index: usize| decision.verdicts()[index].source());
    assert_eq!(sources, [Source::Store, Source::Fallback]);
    assert_eq!(in_store(), [2, 3]);
    let all_of_the_share = [checks[1].with_cost(3)];
    assert!(!limiter.acquire(&all_of_the_share).await.is_allowed());

    drop(decision);
    assert_eq!(in_store(), [3, 3]);
    assert!(limiter.acquire(&all_of_the_share).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_holds_no_slot_that_the_store_has_given_it_before_it_failed() {
    let memory = MemoryStore::new();
    let store = RemoteStore::new(memory.clone()).partitioned();
    let store = store.faults(|call| (call > 1).then_some(Fault::Refused));
    let fails = Rule::new("fails", Quota::concurrent(3));
    let rules = [
        Rule::new("stored", Quota::concurrent(3)),
        fails.on_store_error(tollgate_core::OnStoreError::Deny),
    ];
    let limiter = Limiter::new(store, rules.clone()).expect("valid rules");
    let behind = Limiter::new(memory, rules).expect("valid rules");
    let checks = ["stored", "fails"].map(|rule| check(&limiter, rule, "a", 1));
    let denied = limiter.acquire(&checks).await;
    assert!(!denied.is_allowed());
    assert_eq!(left(&behind, "stored", "a"), 3);
    assert!(denied.take_slots().is_none());
}

// Partial grants.

#[tokio::test]
async fn a_grant_of_two_checks_on_one_state_is_found_in_a_few_steps() {
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let clock = Clock::custom(move || {
        count.fetch_add(1, Ordering::Relaxed);
        1_000_000
    });
    let store = MemoryStore::builder().clock(clock).build();
    let limiter = Limiter::new(
        store,
        [Rule::new("rule", Quota::fixed_window(200_000, LONG))],
    )
    .expect("valid");
    let one = check(&limiter, "rule", "ann", 1);
    reads.store(0, Ordering::Relaxed);
    let grant = limiter.acquire_up_to(&[one, one], 200_000).await;
    // Both take as much, and there is room for a hundred thousand each.
    assert_eq!(grant.units, 100_000);
    assert!(grant.decision.is_allowed());
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 10, "the clock was read {reads} times");
}

#[tokio::test]
async fn a_grant_of_two_keys_of_one_rule_is_all_that_the_tighter_one_has_left() {
    let rule = Rule::new("rule", Quota::fixed_window(10, LONG));
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
    let [ann, bob] = ["ann", "bob"].map(|who| check(&limiter, "rule", who, 1));
    assert_eq!(limiter.acquire_up_to(&[bob], 5).await.units, 5);
    assert_eq!(limiter.acquire_up_to(&[ann, bob], 8).await.units, 5);
}

#[tokio::test(start_paused = true)]
async fn a_grant_calls_a_failing_store_once() {
    let store =
        RemoteStore::new(MemoryStore::new()).faults(|_| Some(tollgate_conformance::Fault::Refused));
    let rule = Rule::new("rule", Quota::gcra(10, LONG));
    let rule = rule.on_store_error(tollgate_core::OnStoreError::Deny);
    let limiter = Limiter::new(store.clone(), [rule]).expect("valid");
    let grant = limiter
        .acquire_up_to(&[check(&limiter, "rule", "ann", 1)], 9)
        .await;
    assert_eq!((grant.units, store.calls()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_grant_while_the_store_fails_is_what_the_share_of_this_process_has_left() {
    let store = RemoteStore::new(MemoryStore::new()).faults(|_| Some(Refused));
    let rule = Rule::new("rule", Quota::fixed_window(10, LONG));
    let limiter = Limiter::new(store.clone(), [rule]).expect("valid");
    let two = NonZeroU32::new(2).expect("not 0");
    let limiter = limiter.shared_by(two).expect("a share of five");
    let one = [check(&limiter, "rule", "ann", 1)];
    for (units, calls, reason) in [(5, 2, None), (0, 4, Some(Reason::Quota))] {
        let grant = limiter.acquire_up_to(&one, 9).await;
        assert_eq!((grant.units, store.calls()), (units, calls));
        assert_eq!(grant.decision.reason(), reason);
    }
}

#[tokio::test]
async fn a_grant_is_what_the_tightest_enforced_rule_has_left_and_never_more_than_was_asked_for() {
    for (enforced, shadow, most, units) in [
        (&[10, 5][..], None, 10, 5),
        (&[5, 10], None, 10, 5),
        (&[10, 5], Some(1), 10, 5),
        (&[5, 10], Some(100), 10, 5),
        (&[10], Some(3), 10, 10),
        (&[10], Some(3), 20, 10),
        (&[100], Some(100), 5, 5),
        (&[100], None, 5, 5),
    ] {
        let rule = |(n, limit): (usize, &u64)| {
            Rule::new(format!("rule-{n}"), Quota::fixed_window(*limit, LONG))
        };
        let mut rules: Vec<Rule> = enforced.iter().enumerate().map(rule).collect();
        rules.extend(shadow.map(|limit| rule((9, &limit)).shadow()));
        let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid");
        let names: Vec<&str> = limiter.rules().rules().iter().map(Rule::name).collect();
        let checks: Vec<_> = names
            .iter()
            .map(|name| check(&limiter, name, "ann", 1))
            .collect();
        let case = format!("{enforced:?} {shadow:?} {most}");
        let grant = limiter.acquire_up_to(&checks, most).await;
        assert_eq!(grant.units, units, "{case}");
        assert!(grant.decision.is_allowed(), "{case}");
        let ticket = limiter.ticket(&grant.checks, &grant.decision);
        for (name, limit) in names.iter().zip(enforced) {
            assert_eq!(crate::left(&limiter, name, "ann"), limit - units, "{case}");
        }
        ticket.settle(1);
        for (name, limit) in names.iter().zip(enforced) {
            assert_eq!(crate::left(&limiter, name, "ann"), limit - 1, "{case}");
        }
    }
}

#[test]
fn a_denial_by_mistake_is_one_more_request_of_its_key() {
    let quota = Quota::fixed_window(10, LONG);
    let rule = Rule::new("rule", quota).plan("plan", quota).top_keys();
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("valid");
    let check = check(&limiter, "rule", "ann", 1);
    for _ in 0..5 {
        assert!(at_once(limiter.acquire(&[check])).is_allowed());
        assert!(!at_once(limiter.acquire(&[check, check.with_plan(1)])).is_allowed());
    }
    let top = limiter.top_keys("rule", 9).expect("a rule");
    assert_eq!((top[0].at_least, top[0].denials), (15, 10));
}

#[tokio::test(start_paused = true)]
async fn each_way_to_acquire_counts_one_request_among_the_top_keys() {
    let rule = || Rule::new("rule", Quota::fixed_window(10, LONG)).top_keys();
    let limiter = Limiter::new(MemoryStore::new(), [rule()]).expect("valid");
    let seen = |limiter: &Limiter| {
        let top = limiter.top_keys("rule", 9).expect("a rule");
        (top[0].at_least, top[0].denials, top[0].cost)
    };
    let one = [check(&limiter, "rule", "ann", 1)];
    // Granted whole, in part, and not at all, which is a denial of one unit.
    for (max, units, expected) in [(4, 4, (1, 0, 4)), (20, 6, (2, 0, 10)), (3, 0, (3, 1, 11))] {
        assert_eq!(limiter.acquire_up_to(&one, max).await.units, units);
        assert_eq!(seen(&limiter), expected);
    }
    let decision = limiter.acquire_within(&one, Duration::ZERO).await;
    let decision = decision.expect("there is room");
    assert_eq!(seen(&limiter), (4, 2, 12));
    limiter.report(&one, &decision, Timer::start(), "");
    assert_eq!(seen(&limiter), (5, 3, 13));

    let store = RemoteStore::new(MemoryStore::new()).faults(|call| (call > 2).then_some(Refused));
    let rule = rule().on_store_error(OnStoreError::Deny);
    let limiter = Limiter::new(store, [rule]).expect("valid");
    let two = [check(&limiter, "rule", "ann", 2)];
    assert!(limiter.acquire(&two).await.is_allowed());
    assert_eq!(seen(&limiter), (1, 0, 2));
    assert!(limiter.acquire_within(&two, LONG).await.is_ok());
    assert_eq!(seen(&limiter), (2, 0, 4));
    assert_eq!(limiter.acquire_up_to(&two, 5).await.units, 0);
    assert_eq!(seen(&limiter), (3, 1, 9));
}
