//! Two processes whose rules are swapped fifty times a second, of what comes back while they run: rates that refill, requests that
//! wait, and slots.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::sleep};
use tollgate_core::{
    Consistency, Decision, Key, LeaseShare, LiveLimiter, OnStoreError, Outcome, Quota, Rule, SECOND,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{
    blocking_server::{POLLS, RedisServer},
    process::{self, Process},
};
use tollgate_test_services::{
    child::patient_store,
    quotas::{ALGORITHMS, WINDOWS, every_algorithm},
};

const PROCESSES: u64 = 2;
/// Fifty swaps a second.
const PAUSE: Duration = Duration::from_millis(20);
const SWAPS: usize = 200;

const SMALLER: u64 = 25;
const LARGER: u64 = 60;
const FEWER_SLOTS: u64 = 10;
const MORE_SLOTS: u64 = 20;

const LEASED: Consistency = Consistency::Leased {
    share: LeaseShare::percent(20),
};
/// Under [`Consistency::Eventual`] the bound is one of each report, and no state waits: `swapped.rs` has it.
const CONSISTENCIES: [Consistency; 2] = [Consistency::Exact, LEASED];

/// Rules of each algorithm under each consistency.
const REFILLING: usize = CONSISTENCIES.len() * ALGORITHMS;
/// Only buckets have an order to wait in.
const WAITING: usize = ALGORITHMS - WINDOWS;
const AT_MOST: Duration = Duration::from_millis(200);
/// Longer than any rule lets a request wait, so that no waiter is cut off before.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tasks of a process that take units, that wait for each rule, and that hold slots of each rule.
const TAKERS: usize = 4;
const WAITERS: usize = 4;
const HOLDERS: usize = 14;

/// What a process is started for.
#[derive(Serialize, Deserialize)]
struct Role {
    swaps_in_time_on: String,
}

#[derive(Serialize, Deserialize)]
enum Job {
    /// Ask while rules are swapped, beginning with this variant.
    Swap { first: usize },
    /// Hold all the slots that are to be had, and say how many.
    HoldAll,
}

/// What a process has seen.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    /// Units that were admitted, by refilling rule.
    refilling: Vec<u64>,
    /// Requests that have started, by waiting rule.
    started: Vec<u64>,
    /// How many of them were delayed.
    delayed: u64,
    /// When slots were held, from the grant to just before the return, by rule with slots.
    held: Vec<Vec<(u64, u64)>>,
}

/// A rule after so many swaps: smaller, larger, shadow and off, each rule at another time.
fn varied(phase: usize, make: impl Fn(bool) -> Rule) -> Rule {
    let is_larger = ![1, 3].contains(&(phase % 6));
    let rule = make(is_larger).on_store_error(OnStoreError::Deny);
    match phase % 6 {
        2 => rule.shadow(),
        4 => rule.off(),
        _ => rule,
    }
}

fn limit(is_larger: bool) -> u64 {
    if is_larger { LARGER } else { SMALLER }
}

/// Limiters of their own: a decision about slots does not wait for units.
struct Limiters {
    refilling: LiveLimiter,
    waiting: LiveLimiter,
    slots: LiveLimiter,
}

fn refilling(step: usize) -> Vec<Rule> {
    let rule = |index: usize| {
        let (number, algorithm) = (index / ALGORITHMS, index % ALGORITHMS);
        varied(step + index, |is_larger| {
            let quotas: [Quota; ALGORITHMS] = every_algorithm(limit(is_larger), SECOND);
            Rule::new(format!("refill-{index}"), quotas[algorithm])
                .consistency(CONSISTENCIES[number])
        })
    };
    (0..REFILLING).map(rule).collect()
}

fn waiting(step: usize) -> Vec<Rule> {
    let rule = |index: usize| {
        varied(step + index, |is_larger| {
            let quotas: [Quota; ALGORITHMS] = every_algorithm(limit(is_larger), SECOND);
            Rule::new(format!("wait-{index}"), quotas[WINDOWS + index]).wait(AT_MOST)
        })
    };
    (0..WAITING).map(rule).collect()
}

fn slots(step: usize) -> Vec<Rule> {
    let rule = |index: usize| {
        varied(step + index, |is_larger| {
            let slots = if is_larger { MORE_SLOTS } else { FEWER_SLOTS };
            Rule::new(format!("slots-{index}"), Quota::concurrent(slots))
                .consistency(CONSISTENCIES[index])
        })
    };
    (0..CONSISTENCIES.len()).map(rule).collect()
}

impl Limiters {
    fn new(store: &RedisStore) -> Self {
        let live = |rules| LiveLimiter::new(store.clone(), rules).expect("valid rules");
        Self {
            refilling: live(refilling(0)),
            waiting: live(waiting(0)),
            slots: live(slots(0)),
        }
    }

    fn swap(&self, step: usize) {
        for (limiter, rules) in [
            (&self.refilling, refilling(step)),
            (&self.waiting, waiting(step)),
            (&self.slots, slots(step)),
        ] {
            limiter.replace(rules).expect("valid rules");
        }
    }
}

/// Whether the store has let the request pass and taken something: a rule that is off does neither, one in shadow takes what fits.
fn has_taken(decision: &Decision) -> bool {
    let verdict = &decision.verdicts()[0];
    let is_answered = verdict.outcome() == Outcome::NotDecided || verdict.has_numbers();
    assert!(is_answered, "the store has not answered: {decision:?}");
    verdict.outcome() == Outcome::Allow && verdict.has_numbers()
}

/// One clock for both processes, in µs.
#[expect(
    clippy::disallowed_methods,
    reason = "what is compared was seen by two processes"
)]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_micros() as u64
}

/// Plays the role, if this process was started for it.
pub(crate) fn play() {
    let Some(role) = process::role::<Role>() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let store = runtime.block_on(patient_store(&role.swaps_in_time_on));
    let limiters = Arc::new(Limiters::new(&store));
    for job in process::loads() {
        match job {
            Job::Swap { first } => process::reply(&runtime.block_on(swap(&limiters, first))),
            Job::HoldAll => process::reply(&runtime.block_on(hold_all(&limiters))),
        }
    }
}

async fn swap(limiters: &Arc<Limiters>, first: usize) -> Seen {
    let counts = |rules: usize| -> Arc<Vec<AtomicU64>> {
        Arc::new((0..rules).map(|_| AtomicU64::new(0)).collect())
    };
    let (refilling, started, delayed) = (counts(REFILLING), counts(WAITING), counts(1));
    let held = [(); CONSISTENCIES.len()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for taker in 0..TAKERS {
        let (limiters, is_over) = (Arc::clone(limiters), Arc::clone(&is_over));
        let refilling = Arc::clone(&refilling);
        tasks.spawn(async move {
            for index in (0..REFILLING).cycle().skip(taker * 3) {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let limiter = limiters.refilling.limiter();
                let check = limiter.check(&format!("refill-{index}"), &Key::shared());
                let decision = limiter.acquire(&[check.expect("it is always there")]).await;
                refilling[index].fetch_add(u64::from(has_taken(&decision)), Ordering::SeqCst);
                if index == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
    for waiter in 0..WAITING * WAITERS {
        let (limiters, is_over) = (Arc::clone(limiters), Arc::clone(&is_over));
        let (started, delayed) = (Arc::clone(&started), Arc::clone(&delayed));
        let index = waiter % WAITING;
        tasks.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let limiter = limiters.waiting.limiter();
                let check = limiter.check(&format!("wait-{index}"), &Key::shared());
                let check = check.expect("it is always there");
                let decision = limiter.acquire_within(&[check], PATIENCE).await;
                let decision = decision.expect("there is room");
                if has_taken(&decision) {
                    started[index].fetch_add(1, Ordering::SeqCst);
                    let was_delayed = !decision.waited().is_zero();
                    delayed[0].fetch_add(u64::from(was_delayed), Ordering::SeqCst);
                } else {
                    sleep(Duration::from_millis(2)).await;
                }
            }
        });
    }
    for holder in 0..CONSISTENCIES.len() * HOLDERS {
        let (limiters, is_over) = (Arc::clone(limiters), Arc::clone(&is_over));
        let index = holder % CONSISTENCIES.len();
        let held = Arc::clone(&held[index]);
        tasks.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let limiter = limiters.slots.limiter();
                let check = limiter.check(&format!("slots-{index}"), &Key::shared());
                let decision = limiter.acquire(&[check.expect("it is always there")]).await;
                let begin = now();
                sleep(Duration::from_millis(3 + holder as u64 % 5)).await;
                if has_taken(&decision) {
                    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                    held.push((begin, now()));
                }
                // Its slot goes back, after what was noted.
                drop(decision);
            }
        });
    }
    for step in 0..SWAPS {
        limiters.swap(first + step);
        sleep(PAUSE).await;
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no request fails");
    }
    let values = |counts: &[AtomicU64]| {
        counts
            .iter()
            .map(|count| count.load(Ordering::SeqCst))
            .collect()
    };
    Seen {
        refilling: values(&refilling),
        started: values(&started),
        delayed: delayed[0].load(Ordering::SeqCst),
        held: held
            .iter()
            .map(|held| std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner)))
            .collect(),
    }
}

/// How many slots of the exact rule are to be had at once, under the larger limit.
async fn hold_all(limiters: &Limiters) -> u64 {
    let rule =
        Rule::new("slots-0", Quota::concurrent(MORE_SLOTS)).on_store_error(OnStoreError::Deny);
    limiters.slots.replace([rule]).expect("a valid rule");
    let limiter = limiters.slots.limiter();
    let check = limiter.check("slots-0", &Key::shared()).expect("the rule");
    let mut held = Vec::new();
    loop {
        let decision = limiter.acquire(&[check]).await;
        if !has_taken(&decision) {
            return held.len() as u64;
        }
        held.push(decision);
    }
}

/// How many of these were there at once at most. One that ends when another begins is not there with it.
fn most_at_once(mut held: Vec<(u64, u64)>) -> u64 {
    held.sort_unstable();
    let mut ends: Vec<u64> = held.iter().map(|(_, end)| *end).collect();
    ends.sort_unstable();
    let ended = |at: u64| ends.partition_point(|end| *end <= at);
    let begun = held.iter().enumerate();
    let at_once = begun.map(|(before, (begin, _))| (before + 1 - ended(*begin).min(before)) as u64);
    at_once.max().unwrap_or(0)
}

/// The most that the larger quota admits in so long, from a fresh state. None of the smaller ones admits more.
fn most(algorithm: usize, took: Duration) -> u64 {
    match algorithm < WINDOWS {
        // Both the first and the last one are counted in part.
        true => LARGER * (took.as_secs() + 2),
        false => LARGER + (LARGER as f64 * took.as_secs_f64()).ceil() as u64,
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "what may be admitted depends on how long it took"
)]
fn rules_that_are_swapped_admit_no_more_than_the_larger_quota_brings_back_and_hold_no_more_slots() {
    let server = RedisServer::start(&[]);
    let role = Role {
        swaps_in_time_on: format!("redis://{}", server.address()),
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&role)).collect();
    let begun = Instant::now();
    for (number, process) in processes.iter_mut().enumerate() {
        // They are not in step.
        process.begin(&Job::Swap { first: number * 2 });
    }
    let seen: Vec<Seen> = processes
        .iter_mut()
        .map(|process| process.finish().expect("no request fails"))
        .collect();
    let took = begun.elapsed();

    let sum = |of: fn(&Seen) -> &Vec<u64>, index: usize| -> u64 {
        seen.iter().map(|seen| of(seen)[index]).sum()
    };
    for index in 0..REFILLING {
        let (units, most) = (
            sum(|seen| &seen.refilling, index),
            most(index % ALGORITHMS, took),
        );
        let what = format!("{units} of {most} in {took:?}, refilling rule {index}");
        assert!(units > 0 && units <= most, "{what}");
    }
    for index in 0..WAITING {
        let (started, most) = (
            sum(|seen| &seen.started, index),
            most(WINDOWS + index, took),
        );
        let what = format!("{started} of {most} in {took:?}, waiting rule {index}");
        assert!(started > 0 && started <= most, "{what}");
    }
    let delayed: u64 = seen.iter().map(|seen| seen.delayed).sum();
    assert!(delayed > 0, "no request has waited");
    for (index, consistency) in CONSISTENCIES.iter().enumerate() {
        let held = seen
            .iter()
            .flat_map(|seen| seen.held[index].iter().copied());
        let most = most_at_once(held.collect());
        let what = format!("{most} slots at once, {consistency:?}");
        assert!(most > 0 && most <= MORE_SLOTS, "{what}");
    }
    // None is lost. The last of them may be on its way back.
    for poll in 1.. {
        processes[0].begin(&Job::HoldAll);
        let held: u64 = processes[0].finish().expect("it lives");
        assert!(held <= MORE_SLOTS, "{held} slots");
        if held == MORE_SLOTS {
            break;
        }
        assert!(poll < POLLS / 100, "{held} of {MORE_SLOTS} slots are there");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
