//! A change of secrets beside one memory store: processes of all its steps share one budget.

use std::sync::Arc;

use crate::{
    Keys,
    keys::keyspace::{Keyspace, Partition},
    script::{args::ScriptCall, encoder::Encoder},
};
use tollgate_core::{
    Check, Decision, Key, KeyBuf, ManualClock, MemoryStore, Outcome, Quota, Rule, RuleSet, SECOND,
    Source, Store as _,
    algorithm::Taken,
    store::{Hold, RuleStore, Settlement},
};
use tollgate_test_servers::numbers::Numbers;

use crate::internal_tests::keys::{MARGIN, NOW, secret, server::Server};

/// The longest time from used to fresh: twice the window of the sliding counters.
const LONGEST: u64 = 20_000_000;

const STEPS: u64 = 400;

#[derive(Debug)]
struct History {
    numbers: Numbers,
    clock: ManualClock,
    memory: Arc<dyn RuleStore>,
    server: Server,
    held: Vec<(KeyBuf, Hold)>,
    allowed: u64,
    denied: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let quotas = [
            Quota::token_bucket(7).refill(3, SECOND),
            Quota::fixed_window(10, 7 * SECOND),
            Quota::sliding_window(12, 10 * SECOND),
            Quota::sliding_log(6, 5 * SECOND),
            Quota::sliding_buckets(9, 8 * SECOND).buckets(7),
        ];
        let rules = quotas
            .iter()
            .enumerate()
            .map(|(place, quota)| Rule::new(format!("rule-{place}"), *quota));
        let rules = Arc::new(RuleSet::new(rules).expect("valid rules"));
        let clock = ManualClock::new(NOW);
        let memory = MemoryStore::builder().clock(&clock).build();
        Self {
            numbers: Numbers(seed),
            clock,
            memory: memory.bind(rules).expect("valid rules"),
            server: Server::start(),
            held: Vec::new(),
            allowed: 0,
            denied: 0,
        }
    }

    fn process(&self, keys: Keys, partition: &Partition) -> Encoder {
        let keyspace = Keyspace::new("shop", partition.clone()).expect("letters");
        Encoder::new(self.memory.rules(), keyspace.with_keys(keys)).expect("few plans")
    }

    /// Requests, settlements and time, each at one of these processes.
    fn run(&mut self, processes: &[&Encoder]) {
        for _ in 0..STEPS {
            let process = processes[self.numbers.below(processes.len() as u64) as usize];
            match self.numbers.below(20) {
                0..14 => self.request(process),
                14..16 => self.settle(process),
                16 if self.numbers.one_in(4) => self.reset(process),
                _ => {
                    let passed = self.numbers.below(1_500_000);
                    self.clock.set(self.clock.now() + passed);
                }
            }
        }
    }

    fn key(&mut self) -> KeyBuf {
        let who = self.numbers.below(4).to_string();
        Key::of(["client", &who]).into()
    }

    fn request(&mut self, process: &Encoder) {
        let many = self.numbers.of(&[1, 1, 2, 3]);
        let wanted: Vec<(u16, KeyBuf, u64)> = (0..many)
            .map(|_| {
                (
                    self.numbers.below(5) as u16,
                    self.key(),
                    self.numbers.below(4),
                )
            })
            .collect();
        let in_memory: Vec<Check> = wanted
            .iter()
            .map(|(rule, key, cost)| Check::new(*rule, self.memory.fingerprint(*rule, key), *cost))
            .collect();
        let on_server: Vec<Check> = wanted
            .iter()
            .map(|(rule, key, cost)| Check::new(*rule, process.fingerprint(*rule, key), *cost))
            .collect();
        let mut call = ScriptCall::at(self.clock.now(), MARGIN);
        let peek = self.numbers.one_in(6);
        let (layout, by_memory) = if peek {
            (call.peek(process, &on_server), self.memory.peek(&in_memory))
        } else {
            (
                call.acquire(process, &on_server),
                self.memory.acquire(&in_memory),
            )
        };
        let layout = layout.expect("there is room");
        let reply = self.server.send(&call);
        let by_script = reply.decision(&layout, &on_server, self.memory.rules());
        let by_memory = by_memory.ready().expect("memory answers at once");
        assert_eq!(by_script, without_source(&by_memory), "{in_memory:?}");
        if by_memory.is_allowed() {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
        if !peek && by_memory.is_allowed() {
            self.hold(&wanted, &in_memory, &by_memory);
        }
    }

    fn hold(&mut self, wanted: &[(u16, KeyBuf, u64)], checks: &[Check], decision: &Decision) {
        for ((check, verdict), (_, key, _)) in checks.iter().zip(decision.verdicts()).zip(wanted) {
            if check.cost() > 0 && verdict.outcome() == Outcome::Allow {
                let taken = Taken::new(
                    decision.at(),
                    decision.at() + verdict.reset_after().as_micros() as u64,
                );
                let check = *check;
                self.held.push((key.clone(), Hold::of_store(check, taken)));
            }
        }
    }

    /// By a process that may be another than that which took the units.
    fn settle(&mut self, process: &Encoder) {
        if self.held.is_empty() {
            return;
        }
        let place = self.numbers.below(self.held.len() as u64) as usize;
        let (key, holding) = self.held.swap_remove(place);
        let how = self.numbers.of(&[
            Settlement::Cancel,
            Settlement::Charge(1),
            Settlement::Refund(1),
        ]);
        self.memory.settle(&[holding], how);
        let rule = holding.check.rule();
        let check = Check::new(rule, process.fingerprint(rule, &key), holding.check.cost());
        let mut call = ScriptCall::at(self.clock.now(), MARGIN);
        let taken = holding.taken;
        assert!(call.settle(process, &Hold::of_store(check, taken), how));
        self.server.send(&call);
    }

    fn reset(&mut self, process: &Encoder) {
        let (rule, key) = (self.numbers.below(5) as u16, self.key());
        let check = Check::new(rule, self.memory.fingerprint(rule, &key), 1);
        let done = self.memory.reset(&[check]);
        assert!(matches!(done.ready(), Some(Ok(_))));
        let mut call = ScriptCall::new();
        assert!(call.reset(process, rule, process.fingerprint(rule, &key)));
        self.server.send(&call);
        self.held.clear();
    }
}

/// Memory may have answered from what it has learned.
fn without_source(decision: &Decision) -> Decision {
    let verdicts = decision.verdicts().iter();
    let verdicts = verdicts.map(|verdict| verdict.from_source(Source::Store));
    Decision::new(decision.at(), verdicts, |_| true)
}

#[test]
fn one_budget_is_shared_throughout_a_change_of_secrets() {
    let partition = &Partition::One;
    for seed in 1..6 {
        let mut history = History::new(seed);
        let (old, new) = (Keys::hashed(secret(1)), Keys::hashed(secret(2)));
        let before = history.process(old.clone(), partition);
        let first = history.process(old.next(secret(2)).expect("another"), partition);
        let second = new.clone().previous(secret(1)).expect("another");
        let second = history.process(second, partition);
        let third = history.process(new, partition);

        history.run(&[&before]);
        history.run(&[&before, &first]);
        history.run(&[&first]);
        history.run(&[&first, &second]);
        // As long as it takes until no state has an old name.
        let end = history.clock.now() + LONGEST;
        while history.clock.now() < end {
            history.run(&[&second]);
        }
        history.run(&[&second, &third]);
        history.run(&[&third]);
        assert!(history.allowed > 100 && history.denied > 100, "{history:?}");
    }
}

#[test]
fn a_state_has_one_name_at_a_time() {
    let mut history = History::new(1);
    let partition = Partition::One;
    let old = Keys::hashed(secret(1)).next(secret(2)).expect("another");
    let new = Keys::hashed(secret(2))
        .previous(secret(1))
        .expect("another");
    let (old, new) = (
        history.process(old, &partition),
        history.process(new, &partition),
    );
    let key = Key::of("client").into();
    let mut take = |process: &Encoder, cost| {
        let mut call = ScriptCall::at(NOW, MARGIN);
        let checks = [Check::new(1, process.fingerprint(1, &key), cost)];
        let layout = call.acquire(process, &checks).expect("there is room");
        let reply = history.server.send(&call);
        let decision = reply.decision(&layout, &checks, history.memory.rules());
        (decision.verdicts()[0].remaining(), history.server.names())
    };
    let (left, old_name) = take(&old, 1);
    assert_eq!((left, old_name.len()), (9, 1));
    // A denial writes nothing, and moves nothing.
    assert_eq!(take(&new, 10), (9, old_name.clone()));
    let (left, new_name) = take(&new, 1);
    assert_eq!((left, new_name.len()), (8, 1));
    assert_ne!(old_name, new_name);
    // Who holds to the old secret writes it where it is now.
    assert_eq!(take(&old, 1), (7, new_name));
}
