//! Slots that a decision and its clones hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tollgate_conformance::{Fault, RemoteStore};
use tollgate_core::{
    Check, Decision, KeyBuf, Limiter, ManualClock, MemoryStore, Quota, Rule, RuleError, RuleSet,
    SECOND, Source, Step, Store, StoreError,
    algorithm::{GcraState, Taken},
    store::{Fingerprint, HeldSlot, QueuePlace, Receipt, RuleRegistry, RuleStore, Settlement},
};

use crate::{at_once, check, left};

fn one_at_a_time() -> Limiter {
    let rule = Rule::new("at-once", Quota::concurrent(1));
    Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule")
}

fn acquire(limiter: &Limiter) -> Decision {
    at_once(limiter.acquire(&[check(limiter, "at-once", "a", 1)]))
}

#[test]
fn slots_go_back_with_the_last_clone() {
    let limiter = one_at_a_time();
    for last in 0..3 {
        let first = acquire(&limiter);
        let (second, third) = (first.clone(), first.clone());
        let mut clones = vec![first, second, third];
        let last = clones.swap_remove(last);
        for clone in clones {
            drop(clone);
            assert!(!acquire(&limiter).is_allowed());
        }
        drop(last);
        assert!(acquire(&limiter).is_allowed());
    }
}

#[test]
fn slots_that_were_taken_out_of_a_clone_go_back_once() {
    let limiter = one_at_a_time();
    let mut first = acquire(&limiter);
    let mut second = first.clone();
    let slots = second.take_slots().expect("it holds one");
    assert!(first.take_slots().is_none());
    drop((first, second));
    assert!(!acquire(&limiter).is_allowed());
    drop(slots);
    let _running = acquire(&limiter);
    assert!(!acquire(&limiter).is_allowed());
}

#[test]
fn slots_that_a_ticket_has_taken_out_are_not_taken_out_again() {
    let limiter = one_at_a_time();
    let mut decision = acquire(&limiter);
    let ticket = limiter.ticket(&[check(&limiter, "at-once", "a", 1)], &decision);
    assert!(decision.take_slots().is_none());
    drop(decision);
    assert!(!acquire(&limiter).is_allowed());
    drop(ticket);
    assert!(acquire(&limiter).is_allowed());
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
    let place = QueuePlace::new(0, 1, Taken::new(0, 1), GcraState::default());
    drop(Decision::unlimited(0).delayed(SECOND, [place]));
    let decision = acquire(&one_at_a_time());
    assert!(decision.is_allowed());
    assert_eq!(decision.delay(), Duration::ZERO);
    assert!(decision.queue_places().is_empty());
}

#[test]
fn a_request_that_has_waited_says_so_after_its_slots_are_taken_out() {
    let store = MemoryStore::builder()
        .clock(ManualClock::new(1_700_000_000_000_000))
        .build();
    let rules = [
        Rule::new("provider", Quota::per_second(10).burst(1)).wait(SECOND),
        Rule::new("at-once", Quota::concurrent(1)),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let checks = ["provider", "at-once"].map(|rule| check(&limiter, rule, "a", 1));
    drop(at_once(limiter.acquire(&checks)));
    let queued = at_once(limiter.acquire(&checks));
    let mut started = at_once(limiter.start(&checks, queued));
    let says = |decision: &Decision| (decision.waited(), decision.queue_places().to_vec());
    let before = says(&started);
    assert_eq!((before.0, before.1.len()), (SECOND / 10, 1));

    let at_once = &checks[1..];
    let runs = || !limiter.peek(at_once).ready().expect("at once").is_allowed();
    let slots = started.take_slots().expect("it holds one");
    assert_eq!(says(&started), before);
    assert!(started.take_slots().is_none());
    drop(started);
    assert!(runs());
    drop(slots);
    assert!(!runs());
    // One that does not wait says so after one that has waited.
    let queued = limiter.acquire(&checks).ready().expect("at once");
    let started = limiter.start(&checks, queued).ready().expect("at once");
    assert!(started.waited() > SECOND / 10);
    drop(started);
    let next = limiter.acquire(at_once).ready().expect("at once");
    assert_eq!(says(&next), (Duration::ZERO, Vec::new()));
}

#[test]
fn a_shadow_of_slots_counts_what_runs() {
    let rules = [
        Rule::new("rate", Quota::fixed_window(1, crate::LONG)),
        Rule::new("at-once", Quota::concurrent(2)).shadow(),
    ];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("valid rules");
    let request = |who| {
        let slots = check(&limiter, "at-once", "all", 1);
        at_once(limiter.acquire(&[check(&limiter, "rate", who, 1), slots]))
    };
    let free = || {
        let looked = at_once(limiter.peek(&[check(&limiter, "at-once", "all", 0)]));
        looked.verdicts()[0].remaining()
    };
    let first = request("ann");
    assert!(first.is_allowed());
    assert_eq!(free(), 1);
    // A request that another rule denies does not run.
    assert!(!request("ann").is_allowed());
    assert_eq!(free(), 1);
    // Two that run have both slots, and the third has none that it could return.
    let (second, third) = (request("bob"), request("eve"));
    assert!(second.is_allowed() && third.is_allowed());
    assert_eq!(free(), 0);
    drop(first);
    assert_eq!(free(), 1);
    drop(third);
    assert_eq!(free(), 1);
    drop(second);
    assert_eq!(free(), 2);
}

/// A store whose decisions come from a limiter of its own, with the slots that they hold.
#[derive(Clone, Debug)]
struct OnLimiter {
    limiter: Limiter,
    rules: Option<Arc<RuleSet>>,
    registry: RuleRegistry,
    shares_decisions: bool,
    returned: Arc<AtomicUsize>,
    /// Clones of its decisions.
    clones: Arc<std::sync::Mutex<Vec<Decision>>>,
}

impl Store for OnLimiter {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        let rules = Some(rules);
        Ok(Arc::new(Self {
            rules,
            ..self.clone()
        }))
    }

    fn registry(&self) -> &RuleRegistry {
        &self.registry
    }
}

impl RuleStore for OnLimiter {
    fn rules(&self) -> &Arc<RuleSet> {
        self.rules.as_ref().expect("it was bound")
    }

    fn can_fail(&self) -> bool {
        false
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.limiter.rule_store().fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        let made = |check: &Check| Check::new(check.rule(), check.key(), check.cost());
        let checks: Vec<_> = checks.iter().map(made).collect();
        let decision = at_once(self.limiter.acquire(&checks));
        if self.shares_decisions {
            let mut clones = self.clones.lock().expect("no panic");
            clones.push(decision.clone());
        }
        Step::Ready(decision)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.limiter.peek(checks)
    }

    fn settle(&self, _: &[Receipt], _: Settlement) {}

    fn reset(&self, _: &[Check]) -> Step<Result<bool, StoreError>> {
        Step::Ready(Ok(false))
    }

    fn supports_slots(&self) -> bool {
        true
    }

    fn release(&self, slots: &[HeldSlot]) {
        self.returned.fetch_add(slots.len(), Ordering::Relaxed);
    }
}

#[test]
fn slots_go_back_to_whom_they_are_from_where_a_store_has_a_limiter_of_its_own() {
    for shares_decisions in [false, true] {
        let rule = || Rule::new("at-once", Quota::concurrent(5));
        let inner = Limiter::new(MemoryStore::new(), [rule()]).expect("a valid rule");
        let store = OnLimiter {
            limiter: inner.clone(),
            rules: None,
            registry: RuleRegistry::default(),
            shares_decisions,
            returned: Arc::default(),
            clones: Arc::default(),
        };
        let (returned, clones) = (Arc::clone(&store.returned), Arc::clone(&store.clones));
        let limiter = Limiter::new(store, [rule()]).expect("a valid rule");
        let free = || crate::left(&inner, "at-once", "a");
        let running = acquire(&inner);
        let decision = acquire(&limiter);
        assert_eq!(returned.load(Ordering::Relaxed), 0);
        drop(decision);
        assert_eq!(returned.load(Ordering::Relaxed), 1);
        clones.lock().expect("no panic").clear();
        // One of the inner limiter's runs still.
        assert_eq!(free(), 4);
        drop(running);
        assert_eq!(free(), 5);
    }
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
    let mut denied = limiter.acquire(&checks).await;
    assert!(!denied.is_allowed());
    assert_eq!(left(&behind, "stored", "a"), 3);
    assert!(denied.take_slots().is_none());
}
