//! Growing blocks in memory, against an oracle that keeps all that was ever counted; and blocked keys under a flood.

use std::{
    collections::HashMap,
    time::{Duration, UNIX_EPOCH},
};

use tollgate_conformance::RemoteStore;
use tollgate_core::{
    Block, Check, DAY, HOUR, Key, Limiter, MINUTE, ManualClock, MemoryStore, Outcome, Quota,
    Reason, Retry, Rule, SECOND, algorithm as a, algorithm::Algorithm, store::Fingerprint,
};

use crate::{LONG, Numbers, at_once, check, left};

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
fn a_block_outlives_its_limiter_and_another_limit() {
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
    let second = Limiter::new(store, rule(Quota::gcra(9, SECOND))).expect("valid");
    let is_blocked = |limiter: &Limiter| {
        clock.advance(20 * MINUTE);
        let denied = limiter.try_acquire("rule", &ann).expect("memory");
        assert_eq!(denied.reason(), Some(Reason::Blocked));
    };
    is_blocked(&second);
    is_blocked(&second);
    clock.advance(20 * MINUTE);
    assert!(
        second
            .try_acquire("rule", &ann)
            .expect("memory")
            .is_allowed()
    );
}

// Limits of none: whom they block, for how long, and what is asked of the store meanwhile.

const START: u64 = 1_700_000_000_000_000;

fn of_plan(limiter: &Limiter, rule: &str, plan: &str) -> tollgate_core::Check {
    let check = limiter.check_with_plan(rule, plan, &Key::of(["a"]));
    check.expect("it has the plan")
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_none_calls_no_store_and_nothing_else_counts_the_request() {
    let store = RemoteStore::new(MemoryStore::new());
    let quota = Quota::fixed_window(5, LONG);
    let rules = [
        Rule::new("counted", quota),
        Rule::new("trial", quota).shadow(),
        Rule::new("blocking", quota).plan("revoked", Quota::none()),
        Rule::new("blocking-trial", Quota::none()).shadow(),
        Rule::new("slots", Quota::concurrent(1)).wait(SECOND),
    ];
    let limiter = Limiter::new(store.clone(), rules).expect("valid rules");
    let mut checks = vec![
        check(&limiter, "counted", "a", 1),
        check(&limiter, "trial", "a", 1),
        of_plan(&limiter, "blocking", "revoked"),
        check(&limiter, "blocking-trial", "a", 1),
        check(&limiter, "slots", "a", 1),
    ];
    for cost in [0, 1, 9] {
        checks[2] = checks[2].with_cost(cost);
        let in_queue = limiter.acquire_within(&checks, SECOND).await;
        for decision in [
            limiter.acquire(&checks).await,
            limiter.peek(&checks).await,
            in_queue.expect("it does not wait"),
            limiter.attempt(&checks).decide().await,
            limiter.acquire_up_to(&checks, 3).await.decision,
        ] {
            assert_eq!(decision.reason(), Some(Reason::Blocked));
            assert_eq!(decision.retry(), Retry::Never);
            let outcomes = decision.verdicts().iter().map(|verdict| verdict.outcome());
            let undecided = Outcome::NotDecided;
            let expected = [undecided, undecided, Outcome::Deny, undecided, undecided];
            assert!(outcomes.eq(expected), "{decision:?}");
        }
    }
    assert_eq!(store.calls(), 0);
    // The shadow of none denies nothing, and the others count as without it.
    checks.remove(2);
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    assert!(decision.verdicts()[2].is_blocked());
    assert_eq!(decision.verdicts()[0].remaining(), 4);
    let alone = limiter.acquire(&[checks[2]]).await;
    assert!(alone.is_allowed() && alone.verdicts()[0].is_blocked());
    assert_eq!(store.calls(), 1);
}

#[test]
fn a_place_in_a_queue_behind_a_shadow_of_none_goes_back() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(&clock).build();
    let rules = [
        Rule::new("trial", Quota::none()).shadow(),
        Rule::new("waits", Quota::per_second(1)).wait(9 * SECOND),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let checks = ["trial", "waits"].map(|rule| check(&limiter, rule, "a", 1));
    assert!(at_once(limiter.acquire(&checks)).delay().is_zero());
    for _ in 0..3 {
        let second = at_once(limiter.acquire(&checks));
        assert_eq!(second.delay(), SECOND);
        limiter.ticket(&checks, &second).cancel();
    }
    clock.advance(SECOND);
    let second = at_once(limiter.acquire(&checks));
    let started = at_once(limiter.start(&checks, second));
    assert!(started.is_allowed() && started.verdicts()[0].is_blocked());
    assert_eq!(left(&limiter, "waits", "a"), 0);
}

#[test]
fn a_block_with_an_end_says_when_it_is_and_the_longest_of_several_counts() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().clock(&clock).build();
    let until =
        |seconds| Quota::none().until(UNIX_EPOCH + Duration::from_micros(START) + seconds * SECOND);
    let quota = Quota::fixed_window(5, LONG);
    let rules = [
        Rule::new("short", quota).plan("blocked", until(10)),
        Rule::new("long", until(20)),
        Rule::new("endless", Quota::none()),
    ];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    let short = of_plan(&limiter, "short", "blocked");
    let [long, endless] = ["long", "endless"].map(|rule| check(&limiter, rule, "a", 1));
    let retry = |checks: &[_]| at_once(limiter.acquire(checks)).retry();
    assert_eq!(retry(&[short]), Retry::After(10 * SECOND));
    assert_eq!(retry(&[short, long]), Retry::After(20 * SECOND));
    assert_eq!(retry(&[endless, short, long]), Retry::Never);
    clock.advance(10 * SECOND - Duration::from_micros(1));
    assert_eq!(retry(&[short]), Retry::After(Duration::from_micros(1)));
    clock.advance(Duration::from_micros(1));
    assert_eq!(left(&limiter, "short", "a"), 5);
    // The rule's own quota counts again; the rule that was none limits nothing.
    for left_of_five in (0..5).rev() {
        let decision = at_once(limiter.acquire(&[short]));
        assert!(decision.is_allowed());
        assert_eq!(left(&limiter, "short", "a"), left_of_five);
    }
    assert!(!at_once(limiter.acquire(&[short])).is_allowed());
    clock.advance(10 * SECOND);
    assert!(at_once(limiter.acquire(&[long])).is_allowed());
}

#[test]
fn a_limit_of_none_goes_where_it_can_be_meant_and_nowhere_else() {
    let quota = Quota::sliding_log(5, LONG);
    let new = |rule: Rule| Limiter::new(MemoryStore::new(), [rule]).map(|_| ());
    assert_eq!(new(Rule::new("rule", Quota::none()).cost(9)), Ok(()));
    let cap = tollgate_core::OnStoreError::Cap(Quota::none());
    for (rule, words) in [
        (
            Rule::new("rule", quota).on_store_error(cap),
            "OnStoreError::Deny",
        ),
        (
            Rule::new("rule", quota.until(UNIX_EPOCH)),
            "is Quota::none()",
        ),
        (
            Rule::new("rule", quota).threshold("t", Quota::none()),
            "cannot be read",
        ),
        (
            Rule::new("rule", Quota::fixed_window(0, SECOND)),
            "Quota::none(), in text \"none\"",
        ),
    ] {
        let error = new(rule).expect_err("it means nothing").to_string();
        assert!(error.contains(words), "{error}");
    }
}
