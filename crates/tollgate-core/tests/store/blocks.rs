//! Growing blocks in memory, against an oracle that keeps all that was ever counted; and blocked keys under a flood.

use std::{collections::HashMap, time::Duration};

use tollgate_core::{
    Block, Check, DAY, HOUR, Key, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Reason, Rule,
    SECOND, algorithm as a, algorithm::Algorithm, store::Fingerprint,
};

use crate::{Numbers, at_once};

const TIMES: [Duration; 3] = [MINUTE, Duration::from_secs(600), HOUR];

/// All that was counted of a key, and the end of each block with its level.
#[derive(Default)]
struct Oracle {
    counted: Vec<u64>,
    blocks: Vec<(u64, usize)>,
}

impl Oracle {
    fn micros(time: Duration) -> u64 {
        time.as_micros() as u64
    }

    fn until(&self, now: u64) -> Option<(u64, u8)> {
        let (until, level) = *self.blocks.last()?;
        (until > now).then_some((until, level as u8))
    }

    fn count(&mut self, now: u64) {
        if self.until(now).is_some() {
            return;
        }
        self.counted.push(now);
        let since = now.saturating_sub(Self::micros(10 * MINUTE));
        let recent = self.counted.iter().filter(|at| **at > since);
        if recent.count() >= 3 {
            self.counted.clear();
            let last = self.blocks.last();
            let level = match last {
                Some((until, level)) if until + Self::micros(DAY) > now => 3.min(level + 1),
                _ => 1,
            };
            let until = now + Self::micros(TIMES[level - 1]);
            self.blocks.push((until, level));
        }
    }
}

fn holds<A: Algorithm>(quota: Quota, is_settled: bool, is_shadow: bool) {
    let model = A::new(&quota).expect("a valid quota");
    let mut blocks = 0;
    for seed in 0..30 {
        let mut numbers = Numbers(seed);
        let clock = ManualClock::new(1_700_000_123_456_789);
        let store = MemoryStore::builder().clock(&clock).build();
        let block = Block::after(3).within(10 * MINUTE).for_each(TIMES);
        let block = match is_settled {
            true => block.count_settled(),
            false => block,
        };
        let rule = Rule::new("rule", quota).block(block.forget_after(DAY));
        let rule = if is_shadow { rule.shadow() } else { rule };
        let limiter = Limiter::new(store, [rule]).expect("a valid rule");
        let mut states: HashMap<u64, (A::State, Oracle)> = HashMap::new();
        let mut held = Vec::new();
        for step in 0..2_000 {
            let who = numbers.below(2) * numbers.below(20);
            let key = u128::from(Numbers(who).next()) << 64 | u128::from(Numbers(!who).next());
            let key = Fingerprint::from_bits(key);
            let (state, oracle) = states.entry(who).or_default();
            let now = clock.now();
            match numbers.below(20) {
                0..13 => {
                    let check = [Check::new(0, key, numbers.below(quota.limit() + 2))];
                    let cost = check[0].cost();
                    let expected = model.assess(state, now, cost);
                    let was_blocked = oracle.until(now);
                    if was_blocked.is_none() && expected.fits {
                        model.take(state, now, cost);
                    } else if was_blocked.is_none() {
                        model.repair(state, now);
                        if !is_settled && cost <= quota.limit() {
                            oracle.count(now);
                        }
                    }
                    let blocked = oracle.until(now);
                    let decision = at_once(limiter.acquire(&check));
                    let verdict = decision.verdicts()[0];
                    let text = format!("{quota:?}, seed {seed}, step {step}: {verdict:?}");
                    assert_eq!(verdict.block_level(), blocked.map(|it| it.1), "{text}");
                    let fits = cost == 0 || expected.fits && blocked.is_none();
                    assert_eq!(
                        verdict.outcome() == tollgate_core::Outcome::Allow,
                        fits,
                        "{text}"
                    );
                    assert_eq!(decision.is_allowed(), fits || is_shadow, "{text}");
                    if let Some((until, _)) = blocked.filter(|_| expected.fits && cost > 0) {
                        let retry = verdict.retry().delay().map(|it| it.as_micros() as u64);
                        assert_eq!(retry, Some(until - now), "{text}");
                        blocks += 1;
                    }
                    if fits && cost > 0 {
                        held.push((who, check, decision));
                    }
                }
                13 => {
                    let reset = limiter.rule_store().reset(&[Check::new(0, key, 1)]);
                    assert!(reset.ready().expect("at once").is_ok());
                    (*state, *oracle) = Default::default();
                    held.retain(|(holder, ..)| *holder != who);
                }
                14..17 if !held.is_empty() => {
                    let n = numbers.below(held.len() as u64) as usize;
                    let (who, check, decision) = held.swap_remove(n);
                    // A shadow is settled by layers alone.
                    drop(limiter.ticket(&check, &decision));
                    if is_settled && !is_shadow {
                        states.entry(who).or_default().1.count(now);
                    }
                }
                _ => {
                    let span = [SECOND, 4 * MINUTE, HOUR, 2 * DAY][numbers.below(4) as usize];
                    clock.advance(Duration::from_micros(numbers.below(Oracle::micros(span))));
                }
            }
        }
    }
    assert_eq!(blocks == 0, is_settled && is_shadow, "{quota:?}");
}

#[test]
fn keys_are_blocked_exactly_as_an_oracle_says_that_forgets_nothing() {
    let log = Quota::sliding_log(3, MINUTE);
    holds::<a::SlidingLog>(log, false, false);
    holds::<a::SlidingLog>(log, true, false);
    let bucket = Quota::gcra(3, MINUTE);
    holds::<a::Gcra>(bucket, false, false);
    holds::<a::Gcra>(bucket, true, false);
    holds::<a::Gcra>(bucket, false, true);
    holds::<a::FixedWindow>(Quota::fixed_window(3, 5 * MINUTE), false, false);
}

#[test]
fn a_flood_of_invented_keys_frees_no_blocked_one_and_no_level_of_one() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).bytes_per_rule(1 << 20);
    let block = Block::after(2).within(HOUR).for_each([HOUR, 2 * HOUR]);
    let rule = Rule::new("rule", Quota::gcra(1, HOUR)).block(block);
    let limiter = Limiter::new(store.build(), [rule]).expect("a valid rule");
    let take = |key: Key| limiter.try_acquire("rule", &key).expect("memory");
    let blocked = |n: u32| take(Key::of(["blocked".as_bytes(), &n.to_le_bytes()]));
    for n in 0..500 {
        for _ in 0..3 {
            let _ = blocked(n);
        }
    }
    for n in 0..250_000_u32 {
        let stranger = || Key::of(["stranger".as_bytes(), &n.to_le_bytes()]);
        assert!(take(stranger()).is_allowed());
        // Each is on the way to a block.
        let _ = take(stranger());
        if n % 10_000 == 0 {
            let usage = limiter.rule_store().usage(0).expect("memory knows");
            assert!(usage.bytes <= 1 << 20, "{usage:?}");
            assert_eq!(usage.evicted_blocks, 0);
        }
    }
    for n in 0..500 {
        assert_eq!(blocked(n).reason(), Some(Reason::Blocked), "{n}");
    }
    clock.advance(HOUR);
    for n in 0..500 {
        let decisions = [(); 3].map(|()| blocked(n));
        assert_eq!(decisions[2].verdicts()[0].block_level(), Some(2), "{n}");
    }
}

#[test]
fn of_more_blocked_keys_than_there_is_room_for_those_go_that_end_first() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder()
        .clock(&clock)
        .bytes_per_rule(64 << 10);
    let block = Block::after(1).within(HOUR).for_each([HOUR]);
    let rule = Rule::new("rule", Quota::gcra(1, HOUR)).block(block);
    let limiter = Limiter::new(store.build(), [rule]).expect("a valid rule");
    let take = |n: u32| limiter.try_acquire("rule", &Key::of(n)).expect("memory");
    let peek = |n: u32| {
        let check = limiter.check("rule", &Key::of(n)).expect("a rule");
        at_once(limiter.peek(&[check])).reason() == Some(Reason::Blocked)
    };
    for n in 0..2_000 {
        let _ = (take(n), take(n));
        clock.advance(Duration::from_millis(1));
    }
    let usage = limiter.rule_store().usage(0).expect("memory knows");
    assert!(usage.bytes <= 64 << 10, "{usage:?}");
    let first = (0..2_000).position(peek).expect("some are blocked") as u64;
    assert!((first as u32..2_000).all(peek));
    assert_eq!((usage.evicted_blocks, 2_000 - first > 200), (first, true));
    assert!(take(5_000).is_allowed(), "there is room for states");
}

#[test]
fn a_block_outlives_its_limiter_another_limit_and_another_algorithm() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let rule = |quota| {
        let block = Block::after(2).for_each([HOUR]);
        [Rule::new("rule", quota).block(block)]
    };
    let first = Limiter::new(store.clone(), rule(Quota::gcra(1, SECOND))).expect("valid");
    let ann = Key::of("ann");
    for _ in 0..3 {
        let _ = first.try_acquire("rule", &ann);
    }
    drop(first);
    let second = Limiter::new(store.clone(), rule(Quota::gcra(9, SECOND))).expect("valid");
    let is_blocked = |limiter: &Limiter| {
        clock.advance(20 * MINUTE);
        let denied = limiter.try_acquire("rule", &ann).expect("memory");
        assert_eq!(denied.reason(), Some(Reason::Blocked));
    };
    is_blocked(&second);
    let third = Limiter::replacing(&[&second], store, rule(Quota::sliding_log(5, SECOND)));
    let third = third.expect("valid");
    is_blocked(&third);
    clock.advance(20 * MINUTE);
    assert!(
        third
            .try_acquire("rule", &ann)
            .expect("memory")
            .is_allowed()
    );
}
