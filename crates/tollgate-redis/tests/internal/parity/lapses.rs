//! Places that lapse because the state was changed: random histories do not reach them, because a state that was fresh in between
//! may have been forgotten, and with it what lapses.

use std::{sync::Arc, time::Duration};

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder, reply::Reply},
};
use tollgate_core::{
    Check, Decision, ManualClock, MemoryStore, Quota, Rule, RuleSet, SECOND, Store as _,
    store::{Fingerprint, Receipt, RuleStore, Settlement},
};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::parity::{expected::Expected, server::Server};

const NOW: u64 = 1_700_000_000_000_000;
const MARGIN: Duration = Duration::from_secs(10_000_000_000);

#[derive(Debug)]
struct Pair {
    server: Server,
    clock: ManualClock,
    memory: MemoryStore,
}

/// The rule with a wait of its own.
#[derive(Debug)]
struct Bound {
    memory: Arc<dyn RuleStore>,
    encoder: Encoder,
}

impl Pair {
    fn new() -> Self {
        let clock = ManualClock::new(NOW);
        Self {
            server: Server::start(),
            memory: MemoryStore::builder().clock(&clock).build(),
            clock,
        }
    }

    /// A unit a second.
    fn waiting(&self, at_most: Duration) -> Bound {
        let rule = Rule::new("rule", Quota::gcra(1, SECOND)).wait(at_most);
        let rules = Arc::new(RuleSet::new([rule]).expect("a valid rule"));
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Bound {
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            memory: self.memory.bind(rules).expect("a valid rule"),
        }
    }

    /// Asks both, compares them, and gives the decision.
    fn acquire(&mut self, bound: &Bound, after: Duration) -> Decision {
        let now = NOW + after.as_micros() as u64;
        self.clock.set(now);
        let checks = vec![Check::new(0, Fingerprint::from_bits(7), 1)];
        let decision = bound.memory.acquire(&checks).ready().expect("at once");
        let mut call = Call::at(now, MARGIN);
        let layout = call.acquire(&bound.encoder, &checks);
        let layout = layout.expect("there is room");
        let value = self.server.run(&call);
        let reply = Reply::new(call.checks(), value.integers()).expect("a whole reply");
        let by_script = reply.decision(&layout, &checks, bound.memory.rules());
        let expected = Expected {
            step: now,
            checks: &checks,
            rules: bound.memory.rules(),
            decision: decision.clone(),
        };
        expected.compare(&by_script, 0);
        decision
    }

    /// Takes a place and gives it up.
    fn give_up(&mut self, bound: &Bound, after: Duration) -> Duration {
        let decision = self.acquire(bound, after);
        self.cancel(bound, &decision, after);
        decision.delay()
    }

    /// Gives a place up. Both say how many units lapse.
    fn cancel(&mut self, bound: &Bound, decision: &Decision, after: Duration) -> u64 {
        self.clock.set(NOW + after.as_micros() as u64);
        let place = decision.queue_places()[0];
        let check = Check::new(0, Fingerprint::from_bits(7), 1);
        let mut receipt = Receipt::of_store(check, place.taken);
        receipt.before = Some(place.before);
        let before = bound.memory.lapsed_units(0);
        bound.memory.settle(&[receipt], Settlement::Cancel);
        let lapsed = bound.memory.lapsed_units(0) - before;
        let mut call = Call::at(NOW + after.as_micros() as u64, MARGIN);
        assert!(call.settle(&bound.encoder, &receipt, Settlement::Cancel));
        let value = self.server.run(&call);
        let reply = Reply::new(call.checks(), value.integers()).expect("a whole reply");
        assert_eq!(reply.lapsed_units(0), lapsed);
        lapsed
    }
}

#[test]
fn a_place_goes_back_only_to_a_state_that_was_not_changed_lately() {
    let mut pair = Pair::new();
    let (minute, longer) = (pair.waiting(60 * SECOND), pair.waiting(61 * SECOND));
    let at = Duration::from_secs;
    for n in 0..3 {
        assert_eq!(pair.acquire(&minute, at(0)).delay(), at(n));
    }
    // It goes back.
    assert_eq!(pair.give_up(&minute, at(0)), at(3));
    // The quota has changed with it: it lapses.
    assert_eq!(pair.give_up(&longer, at(0)), at(3));
    assert_eq!(pair.acquire(&longer, at(0)).delay(), at(4));
    // All is paid back, and the quota changes with a unit that waits for nothing.
    assert_eq!(pair.acquire(&minute, at(10)).delay(), at(0));
    assert_eq!(pair.give_up(&minute, at(10)), at(1));
    assert_eq!(pair.acquire(&minute, at(10)).delay(), at(2));
    // Some time after a change it goes back again.
    assert_eq!(pair.give_up(&minute, at(12)), at(1));
    assert_eq!(pair.acquire(&minute, at(12)).delay(), at(1));
}

#[test]
fn a_place_goes_back_only_to_a_state_that_was_not_repaired_lately() {
    let mut pair = Pair::new();
    let minute = pair.waiting(60 * SECOND);
    let at = Duration::from_secs;
    assert_eq!(pair.acquire(&minute, at(1_000)).delay(), at(0));
    // The clock goes back, and a denial repairs the state.
    assert!(!pair.acquire(&minute, at(0)).is_allowed());
    assert_eq!(pair.give_up(&minute, at(5)), at(56));
    assert_eq!(pair.acquire(&minute, at(5)).delay(), at(57));
    // A change of the quota does not make that sooner.
    let longer = pair.waiting(61 * SECOND);
    assert_eq!(pair.acquire(&longer, at(5)).delay(), at(58));
    assert_eq!(pair.acquire(&longer, at(100)).delay(), at(0));
    assert_eq!(pair.give_up(&longer, at(100)), at(1));
    assert_eq!(pair.acquire(&longer, at(100)).delay(), at(2));
}

#[test]
fn a_place_goes_back_until_its_units_are_paid_back() {
    let at = Duration::from_secs;
    let micro = Duration::from_micros(1);
    // Its request starts after a second, and its unit is paid back a second later.
    for (then, lapses) in [(at(2) - micro, 0), (at(2), 1)] {
        let mut pair = Pair::new();
        let minute = pair.waiting(60 * SECOND);
        assert_eq!(pair.acquire(&minute, at(0)).delay(), at(0));
        let place = pair.acquire(&minute, at(0));
        assert_eq!(place.delay(), at(1));
        assert_eq!(pair.cancel(&minute, &place, then), lapses);
    }
}
