//! Invented clients, and a cap on the keys that are made for them.

use std::{collections::HashSet, sync::Arc};

use crate::{
    Keys,
    keys::keyspace::{Keyspace, Partition},
    script::{
        args::ScriptCall,
        encoder::{Encoder, SLOT_TERM},
        reply::NewKey,
    },
};
use tollgate_core::{
    Check, DAY, HOUR, Key, KeyBuf, ManualClock, MemoryStore, PartKind, Quota, Rule, RuleSet,
    SECOND, Source, Store as _,
    algorithm::Taken,
    store::{Hold, Settlement},
};
use tollgate_test_servers::numbers::Numbers;

use crate::internal_tests::keys::{MARGIN, NOW, secret, server::Server};

fn encoder(rules: &RuleSet, keys: Keys) -> Encoder {
    let keyspace = Keyspace::new("shop", Partition::One).expect("letters");
    let keyspace = keyspace.with_keys(keys);
    Encoder::with_caps(rules, keyspace, SLOT_TERM, false, |_| true).expect("few plans")
}

fn client(number: u64) -> KeyBuf {
    Key::of([number.to_le_bytes()]).into()
}

#[test]
fn who_has_no_leave_is_counted_in_the_bucket_of_the_rule_as_in_memory() {
    for seed in 1..20 {
        let mut numbers = Numbers(seed);
        let mut server = Server::start();
        let rules = RuleSet::new([
            Rule::new("api", Quota::gcra(30, HOUR).burst(20)),
            Rule::new("log-in", Quota::sliding_log(12, HOUR)),
            Rule::new("search", Quota::sliding_buckets(15, HOUR)),
            Rule::new("shadow", Quota::fixed_window(9, HOUR)).shadow(),
        ]);
        let rules = Arc::new(rules.expect("valid rules"));
        // One process, or two in the middle of a change of secrets.
        let (old, new) = (Keys::hashed(secret(1)), Keys::hashed(secret(2)));
        let encoders = if seed % 2 == 0 {
            vec![encoder(&rules, old)]
        } else {
            let first = old.next(secret(2)).expect("another");
            let second = new.previous(secret(1)).expect("another");
            vec![encoder(&rules, first), encoder(&rules, second)]
        };
        let clock = ManualClock::new(NOW);
        let memory = MemoryStore::builder().clock(&clock).build();
        let memory = memory.bind(Arc::clone(&rules)).expect("valid rules");
        let mut overflow = KeyBuf::new();
        overflow.push(PartKind::SHARED, b"overflow");
        let mut known = HashSet::new();
        for _ in 0..300 {
            clock.set(clock.now() + numbers.below(3 * SECOND.as_micros() as u64));
            let encoder = &encoders[numbers.below(encoders.len() as u64) as usize];
            let many = numbers.of(&[1, 1, 2, 3]);
            let wanted: Vec<(u16, u64, u64, bool)> = (0..many)
                .map(|_| {
                    let rule = numbers.below(4) as u16;
                    (
                        rule,
                        numbers.below(30),
                        1 + numbers.below(2),
                        numbers.one_in(3),
                    )
                })
                .collect();
            // Two of one rule in the bucket of all are told one after the other, and in memory together.
            let places: HashSet<u16> = wanted.iter().map(|(rule, ..)| *rule).collect();
            let apart = places.len() == wanted.len();
            if !apart && wanted.iter().filter(|(rule, ..)| *rule == 3).count() > 1 {
                // Of two in a shadow the first may count and the other not.
                continue;
            }
            let mut may_make = wanted.iter().map(|(.., may_make)| *may_make);
            let checks = |fingerprint: &dyn Fn(u16, u64) -> _| -> Vec<Check> {
                let checks = wanted.iter();
                let checks = checks
                    .map(|(rule, who, cost, _)| Check::new(*rule, fingerprint(*rule, *who), *cost));
                checks.collect()
            };
            let on_server = checks(&|rule, who| encoder.fingerprint(rule, &client(who)));
            let mut leave = Vec::new();
            let mut call = ScriptCall::at(clock.now(), MARGIN);
            let layout = call.acquire_within(encoder, &on_server, u64::MAX, |rule| {
                let may_make = may_make.next().expect("at most one for each check");
                leave.push((rule, may_make));
                may_make
            });
            let layout = layout.expect("there is room");
            if leave.len() < wanted.len() {
                // Checks on one state were folded: who has leave is another then.
                continue;
            }
            let in_memory: Vec<Check> = wanted
                .iter()
                .map(|(rule, who, cost, may_make)| {
                    let own = *may_make || known.contains(&(*rule, *who));
                    let key = if own { client(*who) } else { overflow.clone() };
                    Check::new(*rule, memory.fingerprint(*rule, &key), *cost)
                })
                .collect();
            let by_memory = memory.acquire(&in_memory).ready().expect("at once");
            let reply = server.send(&call);
            let by_script = reply.decision(&layout, &on_server, &rules);
            assert_eq!(
                by_script.is_allowed(),
                by_memory.is_allowed(),
                "seed {seed}: {wanted:?}"
            );
            if apart {
                for (script, memory) in by_script.verdicts().iter().zip(by_memory.verdicts()) {
                    assert_eq!(*script, memory.from_source(Source::Store), "seed {seed}");
                }
            }
            for ((index, capped), (rule, who, _, may_make)) in layout.sent().zip(&wanted) {
                let new_key = reply.new_key(capped, &on_server[index], &rules, false);
                assert_eq!((capped.rule, capped.may_make), (*rule, Some(*may_make)));
                let is_known = known.contains(&(*rule, *who));
                match new_key {
                    Some(NewKey::Made) => assert!(*may_make && known.insert((*rule, *who))),
                    Some(NewKey::Refused) => assert!(!may_make && !is_known),
                    None => assert!(is_known || *may_make),
                }
            }
        }
        let overflows = 4;
        assert!(server.size() <= known.len() as i64 + overflows);
    }
}

#[test]
fn what_was_taken_in_the_bucket_of_all_is_settled_there() {
    let mut server = Server::start();
    let rules = RuleSet::new([Rule::new("api", Quota::fixed_window(10, DAY))]).expect("valid");
    let encoder = encoder(&rules, Keys::hashed(secret(1)));
    let check = |who, cost| Check::new(0, encoder.fingerprint(0, &client(who)), cost);
    let take = |server: &mut Server, check: Check, may_make| {
        let mut call = ScriptCall::at(NOW, MARGIN);
        let layout = call.acquire_within(&encoder, &[check], u64::MAX, |_| may_make);
        let reply = server.send(&call);
        let decision = reply.decision(&layout.expect("there is room"), &[check], &rules);
        let verdict = decision.verdicts()[0];
        let reset = verdict.reset_after().as_micros() as u64;
        let taken = Taken::new(NOW, NOW + reset);
        (verdict.remaining(), Hold::of_store(check, taken))
    };
    let settle = |server: &mut Server, now, holding: &Hold, how| {
        let mut call = ScriptCall::at(now, MARGIN);
        assert!(call.settle(&encoder, holding, how));
        server.send(&call);
    };
    let (left, invented) = take(&mut server, check(1, 4), false);
    assert_eq!((left, server.size()), (6, 1));
    settle(&mut server, NOW, &invented, Settlement::Refund(3));
    assert_eq!(take(&mut server, check(2, 1), false).0, 8);
    settle(&mut server, NOW, &invented, Settlement::Charge(2));
    assert_eq!(take(&mut server, check(3, 1), false).0, 5);
    assert_eq!(server.size(), 1);

    // Who has a state settles in it, also when it was forgotten because it was fresh.
    let (left, known) = take(&mut server, check(4, 4), true);
    assert_eq!((left, server.size()), (6, 2));
    settle(&mut server, NOW, &known, Settlement::Refund(3));
    assert_eq!(take(&mut server, check(4, 1), false).0, 8);
    let mut forget = ScriptCall::new();
    assert!(forget.reset(&encoder, 0, known.check.key()));
    server.send(&forget);
    let later = known.taken.fresh_at;
    settle(&mut server, later, &known, Settlement::Charge(2));
    assert_eq!(server.size(), 2);
    assert_eq!(take(&mut server, check(3, 1), false).0, 4);
}
