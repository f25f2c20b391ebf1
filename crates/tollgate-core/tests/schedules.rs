//! The memory store, and cells that are read without a lock, under many schedules of their threads. Deadlocks are found as well: a schedule
//! that ends in one fails.
#![cfg(tollgate_shuttle)]

use std::{
    future::{Future, IntoFuture},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Waker},
};

use shuttle::{
    Config, Runner,
    future::block_on,
    scheduler::RandomScheduler,
    thread::{JoinHandle, spawn, yield_now},
};

use tollgate_core::{
    Check, DAY, Decision, Key, Limiter, ManualClock, MemoryStore, Pending, Quota, Rule, SECOND,
    journal::Base,
    store::{Fingerprint, SeqCells},
    sync::{Mutex, lock},
};

const SCHEDULES: usize = 800;

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(scenario, SCHEDULES);
}

/// The same of scenarios with futures that wait, which are too large for the usual stack.
fn explore_futures(scenario: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new(SCHEDULES), config).run(scenario);
}

/// One algorithm for each kind of deny bound.
fn each(limit: u64) -> [Quota; 5] {
    [
        Quota::gcra(limit, DAY),
        Quota::fixed_window(limit, DAY),
        Quota::sliding_window(limit, DAY),
        Quota::sliding_buckets(limit, DAY).buckets(2),
        Quota::sliding_log(limit, DAY),
    ]
}

/// A store of one shard, so that all keys meet.
fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder()
        .clock(clock)
        .bytes_per_rule(0)
        .build()
}

fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::new(store(&ManualClock::new(1_000_000)), rules).expect("valid rules")
}

fn check(limiter: &Limiter, rule: &str, cost: u64) -> Check {
    let check = limiter.check(rule, &Key::shared());
    check.expect("the rule is there").with_cost(cost)
}

fn acquire(limiter: &Limiter, checks: &[Check]) -> Decision {
    limiter
        .acquire(checks)
        .ready()
        .expect("memory answers at once")
}

fn left(limiter: &Limiter, rule: &str) -> u64 {
    let answer = limiter.peek(&[check(limiter, rule, 0)]).ready();
    answer.expect("memory answers at once").verdicts()[0].remaining()
}

/// A thread with its own handle on the limiter.
fn on<T: Send + 'static>(
    limiter: &Limiter,
    task: impl FnOnce(&Limiter) -> T + Send + 'static,
) -> JoinHandle<T> {
    let limiter = limiter.clone();
    spawn(move || task(&limiter))
}

fn joined<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads
        .into_iter()
        .map(|thread| thread.join().expect("it ends"))
        .collect()
}

#[test]
fn exactly_the_limit_passes() {
    for quota in each(4) {
        explore(move || {
            let limiter = limiter([Rule::new("rule", quota)]);
            let threads = (0..3).map(|_| {
                on(&limiter, |limiter| {
                    let one = [check(limiter, "rule", 1)];
                    (0..3)
                        .filter(|_| acquire(limiter, &one).is_allowed())
                        .count()
                })
            });
            assert_eq!(
                joined(threads.collect()).iter().sum::<usize>(),
                4,
                "{quota:?}"
            );
        });
    }
}

#[test]
fn a_unit_that_was_given_back_is_never_denied() {
    for quota in each(3) {
        explore(move || {
            let limiter = limiter([Rule::new("rule", quota)]);
            // One unit stays taken: all three are never there, each denial teaches a bound.
            assert!(acquire(&limiter, &[check(&limiter, "rule", 1)]).is_allowed());
            let held = Arc::new(AtomicU64::new(1));
            let mut threads: Vec<_> = (0..2)
                .map(|_| {
                    let held = Arc::clone(&held);
                    on(&limiter, move |limiter| {
                        let one = [check(limiter, "rule", 1)];
                        for _ in 0..2 {
                            let decision = acquire(limiter, &one);
                            assert!(decision.is_allowed(), "{quota:?}: {decision:?}");
                            assert!(held.fetch_add(1, SeqCst) < 3);
                            held.fetch_sub(1, SeqCst);
                            limiter.ticket(&one, &decision).cancel();
                        }
                    })
                })
                .collect();
            threads.push(on(&limiter, |limiter| {
                for cost in [3, 4, 3] {
                    assert!(!acquire(limiter, &[check(limiter, "rule", cost)]).is_allowed());
                }
            }));
            joined(threads);
            assert_eq!(left(&limiter, "rule"), 2, "{quota:?}");
        });
    }
}

#[test]
fn after_a_reset_the_key_is_fresh_whatever_the_deny_cache_held() {
    for quota in each(2) {
        explore(move || {
            let limiter = limiter([Rule::new("rule", quota)]);
            assert!(acquire(&limiter, &[check(&limiter, "rule", 2)]).is_allowed());
            let teacher = on(&limiter, |limiter| {
                for _ in 0..3 {
                    // Never fits, and says what there is.
                    assert!(!acquire(limiter, &[check(limiter, "rule", 3)]).is_allowed());
                }
            });
            let all = [check(&limiter, "rule", 2)];
            for _ in 0..2 {
                let reset = limiter
                    .reset("rule", &Key::shared())
                    .expect("the rule is there");
                reset
                    .ready()
                    .expect("memory answers at once")
                    .expect("it is done");
                assert!(acquire(&limiter, &all).is_allowed(), "{quota:?}");
            }
            teacher.join().expect("it ends");
        });
    }
}

#[test]
fn a_charge_never_takes_more_than_is_there() {
    for quota in each(4) {
        explore(move || {
            let limiter = limiter([Rule::new("rule", quota)]);
            let threads = (0..3).map(|_| {
                on(&limiter, |limiter| {
                    let one = [check(limiter, "rule", 1)];
                    let decision = acquire(limiter, &one);
                    limiter.ticket(&one, &decision).settle(2);
                    decision.is_allowed()
                })
            });
            let passed = joined(threads.collect())
                .into_iter()
                .filter(|passed| *passed)
                .count();
            assert!((2..=3).contains(&passed), "{quota:?}");
            assert_eq!(left(&limiter, "rule"), 0, "{quota:?}");
        });
    }
}

#[test]
fn a_request_of_several_rules_is_whole_and_locks_in_one_order() {
    for quota in each(2) {
        explore(move || {
            let limiter = limiter([
                Rule::new("one", Quota::gcra(6, DAY)),
                Rule::new("two", Quota::sliding_window(6, DAY)),
                Rule::new("three", quota),
            ]);
            let threads = (0..3).map(|turn| {
                on(&limiter, move |limiter| {
                    let mut checks = ["one", "two", "three"].map(|rule| check(limiter, rule, 1));
                    checks.rotate_left(turn);
                    u64::from(acquire(limiter, &checks).is_allowed())
                })
            });
            let passed: u64 = joined(threads.collect()).iter().sum();
            assert_eq!(passed, 2, "{quota:?}");
            for rule in ["one", "two"] {
                assert_eq!(left(&limiter, rule), 6 - passed, "{quota:?}");
            }
        });
    }
}

/// A ledger has five of ten units, and both requests are the first that a memory sees of their key.
#[test]
fn what_a_ledger_has_of_a_key_is_charged_once() {
    // With credits it is asked before the store, else after it.
    for has_credits in [true, false] {
        explore_futures(move || {
            let rule = Rule::new("rule", Quota::fixed_window(10, DAY));
            let rule = rule.durable(|_| "acme".into());
            let rule = if has_credits { rule.credits() } else { rule };
            let limiter = limiter([rule]);
            limiter.journal().attach(10, |_| {
                Pending::new(async {
                    // As a ledger, which answers both at once.
                    shuttle::future::yield_now().await;
                    Some(Base {
                        used: 5,
                        ..Base::default()
                    })
                })
            });
            let threads = (0..2).map(|_| {
                on(&limiter, |limiter| {
                    let one = [check(limiter, "rule", 1)];
                    assert!(block_on(limiter.acquire(&one).into_future()).is_allowed());
                })
            });
            joined(threads.collect());
            let left = left(&limiter, "rule");
            // What another request takes before it gives it back, to ask the ledger, may be taken for a part of the five.
            let most = if has_credits { 3 } else { 4 };
            assert!((3..=most).contains(&left), "{left}");
        });
    }
}

#[test]
fn rule_sets_of_opposite_orders_do_not_deadlock() {
    explore(|| {
        let store = store(&ManualClock::new(1_000_000));
        let rules = ["one", "two"].map(|name| Rule::new(name, Quota::gcra(2, DAY)));
        let forward = Limiter::new(store.clone(), rules.clone()).expect("valid rules");
        let backward = Limiter::new(store, rules.into_iter().rev()).expect("valid rules");
        let threads = [&forward, &backward, &forward].map(|limiter| {
            on(limiter, |limiter| {
                let rules = limiter.rules().given();
                let checks = [0, 1].map(|n| check(limiter, rules[n].name(), 1));
                acquire(limiter, &checks).is_allowed()
            })
        });
        let passed = joined(threads.into())
            .into_iter()
            .filter(|passed| *passed)
            .count();
        assert_eq!(passed, 2);
    });
}

#[test]
fn a_window_that_ends_meanwhile_is_not_used_twice() {
    for quota in [
        Quota::fixed_window(1, SECOND),
        Quota::sliding_window(1, SECOND),
    ] {
        explore(move || {
            let clock = ManualClock::new(1_999_999);
            let limiter =
                Limiter::new(store(&clock), [Rule::new("rule", quota)]).expect("a valid rule");
            let mut threads: Vec<_> = (0..2)
                .map(|_| {
                    on(&limiter, |limiter| {
                        let one = [check(limiter, "rule", 1)];
                        let decisions = [acquire(limiter, &one), acquire(limiter, &one)];
                        let passed = decisions.into_iter().filter(Decision::is_allowed);
                        passed
                            .map(|decision| decision.at() / 1_000_000)
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.push(on(&limiter, move |limiter| {
                clock.set(2_000_000);
                let decision = acquire(limiter, &[check(limiter, "rule", 1)]);
                let at = decision.at() / 1_000_000;
                if decision.is_allowed() {
                    vec![at]
                } else {
                    Vec::new()
                }
            }));
            let mut windows = joined(threads).concat();
            let passed = windows.len();
            windows.sort_unstable();
            windows.dedup();
            assert_eq!(windows.len(), passed, "{quota:?}");
        });
    }
}

#[test]
fn two_plans_on_one_state_never_pass_more_than_the_larger() {
    for (free, gold) in each(1).into_iter().zip(each(3)) {
        explore(move || {
            let limiter = limiter([Rule::new("rule", free).plan("gold", gold)]);
            let golden = limiter.check_with_plan("rule", "gold", &Key::shared());
            let golden = golden.expect("the plan is there");
            let threads = [golden, check(&limiter, "rule", 1), golden].map(|check| {
                on(&limiter, move |limiter| {
                    (0..2)
                        .filter(|_| acquire(limiter, &[check]).is_allowed())
                        .count()
                })
            });
            let passed: usize = joined(threads.into()).into_iter().sum();
            assert_eq!(passed, 3, "{free:?}");
        });
    }
}

#[test]
fn limiters_that_come_and_go_on_one_name_lose_nothing() {
    for quota in each(3) {
        explore(move || {
            let store = store(&ManualClock::new(1_000_000));
            let bind = move |store: &MemoryStore| {
                Limiter::new(store.clone(), [Rule::new("rule", quota)]).expect("a valid rule")
            };
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let store = store.clone();
                    spawn(move || {
                        (0..2)
                            .filter(|_| {
                                let limiter = bind(&store);
                                acquire(&limiter, &[check(&limiter, "rule", 1)]).is_allowed()
                            })
                            .count()
                    })
                })
                .collect();
            let passed: usize = joined(threads).into_iter().sum();
            assert_eq!(passed, 3, "{quota:?}");
            let limiter = bind(&store);
            assert!(!acquire(&limiter, &[check(&limiter, "rule", 1)]).is_allowed());
        });
    }
}

/// The timers of tokio never fire here: who misses that something came back waits for ever, which is a deadlock.
#[test]
fn those_who_wait_miss_nothing_that_comes_back() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime without I/O");
    let _timers = runtime.enter();
    let rate = Rule::new("other", Quota::fixed_window(1, DAY));
    let slots = Rule::new("other", Quota::concurrent(1)).wait(3 * DAY);
    for (other, waits) in [(rate, None), (slots, Some(3 * DAY))] {
        explore_futures(move || {
            let slots = |name, limit| {
                let rule = Rule::new(name, Quota::concurrent(limit));
                waits.map_or(rule.clone(), |it| rule.wait(it))
            };
            let limiter = limiter([slots("two", 2), slots("one", 1), other.clone()]);
            let requests = [
                [("two", 2), ("one", 1)],
                [("one", 1), ("other", 1)],
                [("two", 1), ("other", 1)],
            ];
            let mut threads: Vec<_> = requests
                .map(|request| {
                    on(&limiter, move |limiter| {
                        let checks = request.map(|(rule, cost)| check(limiter, rule, cost));
                        for _ in 0..2 {
                            let decision = block_on(limiter.acquire_within(&checks, 3 * DAY));
                            let decision = decision.expect("there is room");
                            assert!(decision.is_allowed(), "{decision:?}");
                            yield_now();
                            limiter.ticket(&checks, &decision).cancel();
                        }
                    })
                })
                .into();
            threads.push(on(&limiter, |limiter| {
                let checks = [check(limiter, "one", 1)];
                let mut gives_up = pin!(limiter.acquire_within(&checks, DAY));
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..2 {
                    if gives_up.as_mut().poll(&mut context).is_ready() {
                        return;
                    }
                    yield_now();
                }
            }));
            joined(threads);
            assert_eq!(
                ["two", "one", "other"].map(|rule| left(&limiter, rule)),
                [2, 1, 1]
            );
        });
    }
}

/// Three keys fight for two cells while a reader looks: it sees the words of its key as they were written, or nothing.
fn a_reader_never_sees_half<const WORDS: usize>() {
    let words_of =
        |writer: u64, round| std::array::from_fn(|word| (writer * (word as u64 + 1)) << 8 | round);
    shuttle::check_random(
        move || {
            let cells = Arc::new((SeqCells::<WORDS>::new(1, 1), Mutex::new(())));
            let writers: Vec<_> = (1..=3_u64)
                .map(|writer| {
                    let cells = Arc::clone(&cells);
                    spawn(move || {
                        let key = Fingerprint::from_bits(u128::from(writer) << 64);
                        for round in 0..2 {
                            let _writer = lock(&cells.1);
                            cells.0.line(0, key).insert(key, 0, words_of(writer, round));
                        }
                    })
                })
                .collect();
            for _ in 0..4 {
                let key = Fingerprint::from_bits(1 << 64);
                if let Some(words) = cells.0.line(0, key).get(key, 0) {
                    assert_eq!(words, words_of(1, words[0] & 0xff));
                }
            }
            for writer in writers {
                writer.join().expect("the writer ends");
            }
        },
        20_000,
    );
}

#[test]
fn a_reader_never_sees_half_of_two_words() {
    a_reader_never_sees_half::<2>();
}

#[test]
fn a_reader_never_sees_half_of_three_words() {
    a_reader_never_sees_half::<3>();
}
