//! Balances in memory against sums, and in a table that is full.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate_core::{
    HOUR, Key, Limiter, ManualClock, MemoryStore, Outcome, Quota, Rule, SECOND, Source,
    StoreErrorKind, Tick,
};

use crate::{LONG, Numbers, at_once, check, left};

const LIMIT: u64 = 50;

fn time(tick: Tick) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(tick)
}

/// What a key has, by addition alone.
#[derive(Default)]
struct Sums {
    used: u64,
    owed: u64,
    balance: u64,
    end: Tick,
    /// The units of each id, and its end.
    ids: HashMap<String, (u64, Tick)>,
}

/// Any order and repetition of take, charge, refund, cancel, grant, revoke, reset, swap and end.
#[test]
fn any_order_and_repetition_gives_the_sums() {
    for seed in 0..60 {
        let debt = seed % 2 * 40;
        let (mut numbers, mut sums) = (Numbers(seed), Sums::default());
        let clock = ManualClock::new(1_700_000_123_456_789);
        let store = MemoryStore::builder().clock(&clock).build();
        let rule = |n: u64| {
            let rule = Rule::new("rule", Quota::fixed_window(LIMIT, LONG)).credits();
            let rule = if debt > 0 { rule.debt(debt) } else { rule };
            [rule.cost(n)]
        };
        let mut limiter = Limiter::new(store.clone(), rule(1)).expect("a valid rule");
        let (key, mut tickets) = (Key::of(["ann"]), Vec::new());
        for step in 0..2_000 {
            let now = clock.now();
            if sums.end <= now {
                sums.balance = 0;
            }
            let id = format!("id-{}", numbers.below(40));
            match numbers.below(20) {
                0..8 => {
                    let cost = 1 + numbers.below(30);
                    let checks = [check(&limiter, "rule", "ann", cost)];
                    let decision = at_once(limiter.acquire(&checks));
                    let of_quota = sums.owed == 0 && sums.used + cost <= LIMIT;
                    let source = decision.verdicts()[0].source();
                    match (of_quota, cost <= sums.balance) {
                        (true, _) => sums.used += cost,
                        (false, true) => sums.balance -= cost,
                        (false, false) => assert!(!decision.is_allowed(), "{seed}, {step}"),
                    }
                    assert_eq!(
                        source == Source::Credits,
                        !of_quota && decision.is_allowed()
                    );
                    if decision.is_allowed() {
                        tickets.push((limiter.ticket(&checks, &decision), cost, source));
                    }
                }
                8..12 if !tickets.is_empty() => {
                    let index = numbers.below(tickets.len() as u64) as usize;
                    let (ticket, cost, source) = tickets.swap_remove(index);
                    let real = numbers.below(2 * cost);
                    ticket.settle(real);
                    match source {
                        _ if real >= cost => {
                            let mut more = real - cost;
                            for (from, room) in [
                                (&mut sums.used, LIMIT),
                                (&mut sums.balance, 0),
                                (&mut sums.owed, debt),
                            ] {
                                let part = more.min(from.abs_diff(room));
                                *from = if room == 0 {
                                    *from - part
                                } else {
                                    *from + part
                                };
                                more -= part;
                            }
                        }
                        Source::Credits if sums.end > now => sums.balance += cost - real,
                        Source::Store => {
                            let back = cost - real;
                            let paid = back.min(sums.owed);
                            sums.owed -= paid;
                            sums.used = sums.used.saturating_sub(back - paid);
                        }
                        _ => {}
                    }
                }
                12..15 => {
                    let (units, end) = (1 + numbers.below(60), now + numbers.below(20_000_000));
                    let known = sums.ids.get(&id).is_some_and(|(_, end)| *end > now);
                    let granted = limiter.grant("rule", &key, units, time(end), &id);
                    let granted = at_once(granted.expect("a grant"));
                    match (known, end > now) {
                        (true, _) => assert_eq!(granted.expect("known").changed, 0),
                        (false, true) => {
                            assert_eq!(granted.expect("new").changed, units);
                            (sums.balance, sums.end) = (sums.balance + units, sums.end.max(end));
                            sums.ids.insert(id, (units, end));
                        }
                        (false, false) => assert!(granted.is_err()),
                    }
                }
                15 => {
                    let known = sums.ids.get_mut(&id).filter(|(_, end)| *end > now);
                    let units = known.map_or(0, |(units, _)| std::mem::take(units));
                    let revoked = at_once(limiter.revoke("rule", &key, &id).expect("the rule"));
                    let taken = units.min(sums.balance);
                    assert_eq!(revoked.expect("a balance").changed, taken, "{seed}, {step}");
                    sums.balance -= taken;
                }
                16 => {
                    // Tickets of before would give back what the reset has.
                    tickets.clear();
                    at_once(limiter.reset("rule", &key).expect("the rule")).expect("memory");
                    (sums.used, sums.owed) = (0, 0);
                }
                17 => {
                    let next = Limiter::replacing(&[&limiter], store.clone(), rule(1 + step % 2));
                    limiter = next.expect("a valid rule");
                }
                _ => clock.advance(SECOND * numbers.below(8) as u32),
            }
            let balance = at_once(limiter.balance("rule", &key).expect("the rule"));
            let is_live = sums.end > clock.now();
            let expected = if is_live { sums.balance } else { 0 };
            assert_eq!(
                balance.expect("a balance").units,
                expected,
                "{seed}, {step}"
            );
            assert_eq!(
                left(&limiter, "rule", "ann"),
                LIMIT - sums.used,
                "{seed}, {step}"
            );
        }
    }
}

#[test]
fn a_full_table_refuses_a_grant_and_evicts_none() {
    let clock = ManualClock::new(1_700_000_123_456_789);
    let store = MemoryStore::builder().clock(&clock).bytes_per_rule(0);
    let rule = Rule::new("rule", Quota::gcra(1, HOUR)).credits();
    let limiter = Limiter::new(store.build(), [rule]).expect("a valid rule");
    let grant = |n: u64, end: Tick| {
        let granted = limiter.grant("rule", &Key::of([n]), 5, time(end), "id");
        at_once(granted.expect("a grant"))
    };
    let (soon, later) = (clock.now() + 1_000_000, clock.now() + 3_600_000_000);
    let mut granted = 0;
    let refused = loop {
        match grant(granted, if granted < 10 { soon } else { later }) {
            Ok(_) => granted += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused}");
    assert!(
        (100..1_000).contains(&granted),
        "{granted} have room in 64 KiB"
    );
    // Keys that are counted take none of them away either.
    for n in 0..20_000_u64 {
        assert!(limiter.try_acquire("rule", &Key::of([n])).is_ok());
    }
    let units = |n: u64| {
        let balance = at_once(limiter.balance("rule", &Key::of([n])).expect("the rule"));
        balance.expect("a balance").units
    };
    assert_eq!((0..granted).map(units).sum::<u64>(), 5 * granted);
    clock.advance(SECOND);
    assert!(
        grant(granted, later).is_ok(),
        "those that have ended make room"
    );
}

#[test]
fn what_was_taken_from_a_balance_comes_back_there_from_another_process_too() {
    let store = MemoryStore::new();
    let rule = Rule::new("rule", Quota::fixed_window(5, LONG)).credits();
    let limiter = Limiter::new(store, [rule]).expect("a valid rule");
    #[expect(clippy::disallowed_methods, reason = "an end that is to come")]
    let (key, end) = (Key::of(["ann"]), SystemTime::now() + HOUR);
    let balance = || {
        let balance = at_once(limiter.balance("rule", &key).expect("the rule"));
        balance.expect("a balance").units
    };
    at_once(limiter.grant("rule", &key, 20, end, "id").expect("a grant")).expect("room");
    let checks = [check(&limiter, "rule", "ann", 8)];
    let decision = at_once(limiter.acquire(&checks));
    let ticket = limiter.ticket(&checks, &decision);
    let text = at_once(ticket.into_reservation(HOUR)).expect("it is written");
    assert_eq!(balance(), 12);
    let ticket = limiter.redeem(&text).expect("it is open");
    at_once(ticket.settle(3)).expect("it is there");
    assert_eq!((balance(), left(&limiter, "rule", "ann")), (17, 5));
}

#[test]
fn a_shadow_that_turns_out_to_cost_more_leaves_the_balance_alone() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = Rule::new("rule", Quota::fixed_window(5, LONG)).credits();
    let limiter = Limiter::new(store, [rule.shadow()]).expect("a valid rule");
    let (key, end) = (Key::of(["ann"]), time(clock.now() + 1));
    at_once(limiter.grant("rule", &key, 20, end, "id").expect("a grant")).expect("room");
    let checks = [check(&limiter, "rule", "ann", 1)];
    let decision = at_once(limiter.acquire(&checks));
    let ticket = limiter.ticket_with_shadows(&checks, &decision);
    ticket.settle(9);
    let balance = at_once(limiter.balance("rule", &key).expect("the rule"));
    assert_eq!(balance.expect("a balance").units, 20);
    assert_eq!(left(&limiter, "rule", "ann"), 0);
}

#[test]
fn the_denials_of_a_trial_deny_nobody_with_a_balance_once_the_rule_is_enforced() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = || Rule::new("rule", Quota::fixed_window(1, LONG)).credits();
    let trial = Limiter::new(store.clone(), [rule().shadow()]).expect("a valid rule");
    let (key, end) = (Key::of(["ann"]), time(clock.now() + 1_000_000));
    at_once(trial.grant("rule", &key, 2, end, "id").expect("a grant")).expect("room");
    for is_left in [true, false] {
        let decision = trial.try_acquire("rule", &key).expect("memory");
        let fits = decision.verdicts()[0].outcome() == Outcome::Allow;
        assert_eq!(fits, is_left);
    }
    let limiter = Limiter::new(store, [rule()]).expect("a valid rule");
    let passes = || limiter.try_acquire("rule", &key).expect("memory");
    let sources = [(); 3].map(|()| passes().verdicts()[0].source());
    assert_eq!(sources[..2], [Source::Credits; 2]);
    // Without a balance, the next denials are remembered.
    let denied = [(); 2].map(|()| passes());
    assert_eq!(denied[1].verdicts()[0].source(), Source::DenyCache);
    assert!(!denied[1].is_allowed());
}
