//! Invented clients, and a cap on the keys that are made for them.

use std::{collections::HashSet, sync::Arc};

use tokio::time::Instant;

use crate::{
    Keys, RedisStore,
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder, reply::NewKey},
    store::new_key_cap::NewKeyCap,
};
use tollgate_core::{
    Check, DAY, HOUR, Key, KeyBuf, Limiter, ManualClock, MemoryStore, PartKind, Quota, Rule,
    RuleSet, SECOND, Source, Store as _,
    algorithm::Taken,
    store::{Receipt, Settlement},
};
use tollgate_test_servers::{
    eventually::eventually,
    numbers::Numbers,
    redis_server::{PATIENCE, RedisServer},
};

use crate::internal_tests::keys::{MARGIN, NOW, secret, server::Server};

fn encoder(rules: &RuleSet, keys: Keys) -> Encoder {
    let keyspace = Keyspace::new("shop", Partition::One).expect("letters");
    let keyspace = keyspace.with_keys(keys);
    let mut encoder = Encoder::new(rules, keyspace).expect("few plans");
    for rule in rules.given() {
        encoder = encoder.with_overflow(rule.name()).expect("it is there");
    }
    encoder
}

fn client(number: u64) -> KeyBuf {
    Key::of([number.to_le_bytes()]).into()
}

#[test]
fn a_flood_of_invented_clients_makes_as_many_keys_as_it_may() {
    const RATE: u32 = 100;
    const FLOOD: u64 = 100_000;
    const LIMIT: u64 = 1_000;

    let mut server = Server::start();
    let rules = RuleSet::new([Rule::new("api", Quota::fixed_window(LIMIT, DAY))]).expect("valid");
    let encoder = encoder(&rules, Keys::hashed(secret(1)));
    let cap = NewKeyCap::per_second(RATE);
    cap.share_among(1, NOW);
    let (mut now, mut made, mut refused, mut overflowed) = (NOW, 0, 0, 0);
    let send = |server: &mut Server, now, clients: std::ops::Range<u64>| {
        let mut call = Call::at(now, MARGIN);
        let layout: Vec<_> = clients
            .map(|number| {
                let checks = [Check::new(0, encoder.fingerprint(0, &client(number)), 1)];
                let layout = call.acquire_within(&encoder, &checks, u64::MAX, |_| cap.take(now));
                (layout.expect("there is room"), checks)
            })
            .collect();
        let reply = server.send(&call);
        let answers = layout.into_iter().map(|(layout, checks)| {
            let reported = reply.new_keys(&layout).next().expect("the rule has a cap");
            if reported.may_make && reported.new_key != NewKey::Made {
                cap.give_back();
            }
            (reported.new_key, reply.decision(&layout, &checks, &rules))
        });
        answers.collect::<Vec<_>>()
    };

    // A hundred who are known.
    for (new_key, _) in send(&mut server, now, 0..100) {
        assert_eq!(new_key, NewKey::Made);
        made += 1;
    }
    let before = server.memory();
    let mut rounds = 0;
    for begin in (1_000..1_000 + FLOOD).step_by(250) {
        now += 5_000;
        for (new_key, decision) in send(&mut server, now, begin..begin + 250) {
            match new_key {
                NewKey::Made => made += 1,
                NewKey::Refused => {
                    refused += 1;
                    overflowed += u64::from(decision.is_allowed());
                }
                NewKey::No => panic!("an invented client is known"),
            }
        }
        // Those who are known go on, with no permit left.
        rounds += 1;
        if rounds % 10 == 0 {
            for (new_key, decision) in send(&mut server, now, 0..100) {
                assert_eq!(new_key, NewKey::No);
                let left = decision.verdicts()[0].remaining();
                assert_eq!(left, LIMIT - 1 - rounds / 10);
            }
        }
    }
    let passed = (now - NOW) * u64::from(RATE) / 1_000_000;
    assert!(made <= u64::from(RATE) + passed, "{made}");
    // The cap is no lower than it says.
    assert!(made + 1 >= u64::from(RATE) + passed, "{made}");
    assert_eq!(made + refused, FLOOD + 100);
    // All that were refused share the quota of one client.
    assert_eq!(overflowed, LIMIT);
    assert_eq!(server.size() as u64, made + 1);
    let grown = server.memory().saturating_sub(before);
    assert!(grown < (made + 1) * 400, "{grown} bytes for {made} keys");
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
            let mut call = Call::at(clock.now(), MARGIN);
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
            for (reported, (rule, who, _, may_make)) in reply.new_keys(&layout).zip(&wanted) {
                assert_eq!((reported.rule, reported.may_make), (*rule, *may_make));
                let is_known = known.contains(&(*rule, *who));
                match reported.new_key {
                    NewKey::Made => assert!(*may_make && known.insert((*rule, *who))),
                    NewKey::Refused => assert!(!may_make && !is_known),
                    NewKey::No => assert!(is_known || *may_make),
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
        let mut call = Call::at(NOW, MARGIN);
        let layout = call.acquire_within(&encoder, &[check], u64::MAX, |_| may_make);
        let reply = server.send(&call);
        let decision = reply.decision(&layout.expect("there is room"), &[check], &rules);
        let verdict = decision.verdicts()[0];
        let reset = verdict.reset_after().as_micros() as u64;
        let taken = Taken::new(NOW, NOW + reset);
        (verdict.remaining(), Receipt::of_store(check, taken))
    };
    let settle = |server: &mut Server, now, holding: &Receipt, how| {
        let mut call = Call::at(now, MARGIN);
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
    let mut forget = Call::new();
    assert!(forget.reset(&encoder, 0, known.check.key()));
    server.send(&forget);
    let later = known.taken.fresh_at;
    settle(&mut server, later, &known, Settlement::Charge(2));
    assert_eq!(server.size(), 2);
    assert_eq!(take(&mut server, check(3, 1), false).0, 4);
}

#[tokio::test]
async fn processes_share_a_cap_on_new_keys() {
    const CAP: u32 = 40;
    let server = RedisServer::start(&[]).await;
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::builder(server.url(), "shop", Keys::plain())
            .cap_new_keys("api", CAP)
            .deadline(PATIENCE)
            .connect()
            .expect("a runtime");
        let rules = [Rule::new("api", Quota::fixed_window(1_000, DAY))];
        limiters.push((store.clone(), Limiter::new(store, rules).expect("valid")));
    }
    eventually("they know of each other", || async {
        let all = limiters.iter().all(|(store, _)| store.instances() == 2);
        all.then_some(())
    })
    .await;
    let began = Instant::now();
    for (place, (_, limiter)) in limiters.iter().enumerate() {
        for number in 0..4 * CAP {
            let key = Key::of([format!("{place}-{number}")]);
            let check = limiter.check("api", &key).expect("the rule is there");
            let decision = limiter.acquire(&[check]).await;
            assert_eq!(decision.verdicts()[0].source(), Source::Store);
        }
    }
    let keys = server.command(&["KEYS", "{shop}:*:api:*"]).await;
    // One of them is the bucket of those that came too late.
    let made = keys.matches("{shop}:").count() - 1;
    let most = f64::from(CAP) * (1.0 + began.elapsed().as_secs_f64());
    assert!(
        made as f64 <= most && made >= CAP as usize,
        "{made}, at most {most}"
    );
}
