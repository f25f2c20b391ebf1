//! Two processes whose rules are swapped fifty times a second while they are asked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::sleep};
use tollgate_core::{
    Consistency, Key, LeaseShare, Limiter, LiveLimiter, MAX_PERIOD, OnStoreError, Outcome, Quota,
    Rule,
};
use tollgate_test_servers::{
    blocking_server::{POLLS, RedisServer},
    process::{self, Process},
};
use tollgate_test_services::{
    child::{acquire, patient_store},
    quotas::{ALGORITHMS, GCRA, WINDOWS, every_algorithm},
};

const PROCESSES: u64 = 2;
const TASKS: usize = 8;
/// Fifty a second.
const PAUSE: Duration = Duration::from_millis(20);
const SWAPS: usize = 100;
/// A client is asked about for so many swaps, and then the next one.
const SWAPS_OF_A_CLIENT: usize = 25;
const CLIENTS: usize = SWAPS / SWAPS_OF_A_CLIENT;

const SMALLER: u64 = 25;
const LARGER: u64 = 60;
/// Units of a key that a process may admit before it reports them.
const UNREPORTED: u64 = 5;

const CONSISTENCIES: [Consistency; 3] = [
    Consistency::Exact,
    Consistency::Leased {
        share: LeaseShare::percent(20),
    },
    Consistency::Eventual {
        interval: Duration::from_millis(50),
        max_unreported: UNREPORTED,
    },
];

/// The algorithms with states of their own: the other two are GCRA in other words.
const STATES: usize = GCRA + 1;

/// The rules of each consistency: one of each algorithm, and one whose algorithm changes.
const RULES: usize = ALGORITHMS + 1;

/// A rule that is a budget of its own: the one whose algorithm changes has one for each algorithm.
const BUDGETS: usize = ALGORITHMS + STATES;

/// What a process is started for.
#[derive(Serialize, Deserialize)]
struct Role {
    swaps_on: String,
}

#[derive(Serialize, Deserialize)]
enum Job {
    /// Ask while rules are swapped, beginning with this variant.
    Swap { first: usize },
    /// Ask for every budget until it denies.
    Drain,
}

/// The units that a process was allowed, by consistency, budget and client.
#[derive(Debug, Default)]
struct Counted(Vec<AtomicU64>);

impl Counted {
    fn new() -> Self {
        let budgets = CONSISTENCIES.len() * BUDGETS * CLIENTS;
        Self((0..budgets).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, consistency: usize, budget: usize, client: usize) {
        let index = (consistency * BUDGETS + budget) * CLIENTS + client;
        self.0[index].fetch_add(1, Ordering::SeqCst);
    }

    fn values(&self) -> Vec<u64> {
        let values = self.0.iter();
        values.map(|units| units.load(Ordering::SeqCst)).collect()
    }
}

/// What is in force after so many swaps: smaller, larger, shadow and off, each rule at another time.
fn variant(step: usize) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (number, consistency) in CONSISTENCIES.into_iter().enumerate() {
        for rule in 0..RULES {
            let phase = step + rule + number;
            let limit = [LARGER, SMALLER, LARGER, SMALLER, LARGER, LARGER][phase % 6];
            let algorithm = if rule < ALGORITHMS {
                rule
            } else {
                phase % STATES
            };
            let rule = rule_of(number, rule, algorithm, limit, consistency);
            rules.push(match phase % 6 {
                2 => rule.shadow(),
                4 => rule.off(),
                _ => rule,
            });
        }
    }
    rules
}

/// Everything is enforced with the larger limit; what changes its algorithm has this one.
fn last(state: usize) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (number, consistency) in CONSISTENCIES.into_iter().enumerate() {
        for rule in 0..RULES {
            let algorithm = if rule < ALGORITHMS { rule } else { state };
            rules.push(rule_of(number, rule, algorithm, LARGER, consistency));
        }
    }
    rules
}

fn rule_of(
    number: usize,
    rule: usize,
    algorithm: usize,
    limit: u64,
    consistency: Consistency,
) -> Rule {
    let quotas: [Quota; ALGORITHMS] = every_algorithm(limit, MAX_PERIOD);
    Rule::new(format!("rule-{number}-{rule}"), quotas[algorithm])
        .consistency(consistency)
        .on_store_error(OnStoreError::Deny)
}

/// Asks once under the rules of this limiter, and counts what was taken. Returns whether something was.
async fn ask(
    limiter: &Limiter,
    (number, rule): (usize, usize),
    client: usize,
    counted: &Counted,
) -> bool {
    let given = &limiter.rules().given()[number * RULES + rule];
    let check = limiter.check(given.name(), &Key::of([format!("client-{client}")]));
    let decision = acquire(limiter, &[check.expect("the rule is always there")]).await;
    let verdict = decision.verdicts()[0];
    // A rule that is off is not decided; one in shadow takes what fits.
    let takes = verdict.outcome() == Outcome::Allow && verdict.has_numbers();
    if takes {
        let budget = match rule {
            ALGORITHMS => ALGORITHMS + state_of(given.quota()),
            rule => rule,
        };
        counted.add(number, budget, client);
    }
    takes
}

fn state_of(quota: &Quota) -> usize {
    let of_all: [Quota; ALGORITHMS] = every_algorithm(LARGER, MAX_PERIOD);
    let mut of_all = of_all.iter();
    let state = of_all.position(|one| one.algorithm() == quota.algorithm());
    state.expect("every algorithm is there")
}

/// Plays the role, if this process was started for it.
pub(crate) fn play() {
    let Some(Role { swaps_on }) = process::role() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let limiter = runtime.block_on(async {
        let store = patient_store(&swaps_on).await;
        LiveLimiter::new(store, last(0)).expect("valid rules")
    });
    for job in process::loads() {
        let counted = runtime.block_on(async {
            match job {
                Job::Swap { first } => swap(&limiter, first).await,
                Job::Drain => drain(&limiter).await,
            }
        });
        process::reply(&counted);
    }
}

async fn swap(limiter: &LiveLimiter, first: usize) -> Vec<u64> {
    let (counted, swapped) = (Arc::new(Counted::new()), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (limiter, counted) = (limiter.clone(), Arc::clone(&counted));
        let swapped = Arc::clone(&swapped);
        tasks.spawn(async move {
            // Tasks begin with different rules.
            for place in (0..CONSISTENCIES.len() * RULES).cycle().skip(task * 3) {
                let swapped = swapped.load(Ordering::SeqCst);
                if swapped >= SWAPS {
                    break;
                }
                let place = (place / RULES, place % RULES);
                ask(
                    &limiter.limiter(),
                    place,
                    swapped / SWAPS_OF_A_CLIENT,
                    &counted,
                )
                .await;
                if place.1 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
    for step in 0..SWAPS {
        limiter.replace(variant(first + step)).expect("valid rules");
        sleep(PAUSE).await;
        swapped.fetch_add(1, Ordering::SeqCst);
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no request fails");
    }
    counted.values()
}

async fn drain(limiter: &LiveLimiter) -> Vec<u64> {
    let counted = Arc::new(Counted::new());
    for state in 0..STATES {
        limiter.replace(last(state)).expect("valid rules");
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            let (limiter, counted) = (limiter.limiter(), Arc::clone(&counted));
            tasks.spawn(async move {
                for number in 0..CONSISTENCIES.len() {
                    // What keeps its algorithm is asked about once.
                    let first = if state == 0 { 0 } else { ALGORITHMS };
                    for rule in first..RULES {
                        while ask(&limiter, (number, rule), client, &counted).await {}
                    }
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no request fails");
        }
    }
    counted.values()
}

/// The fewest and the most units that a budget may have admitted when nothing more is to be had.
fn bounds(consistency: usize, budget: usize) -> (u64, u64) {
    let algorithm = if budget < ALGORITHMS {
        budget
    } else {
        budget - ALGORITHMS
    };
    let is_bucket = algorithm >= WINDOWS;
    match CONSISTENCIES[consistency] {
        Consistency::Eventual { .. } => (LARGER, LARGER + PROCESSES * UNREPORTED),
        // A bucket rounds against clients when a lease of other numbers comes back.
        Consistency::Leased { .. } if is_bucket => (LARGER - LARGER / 20, LARGER),
        _ => (LARGER, LARGER),
    }
}

#[test]
fn rules_that_are_swapped_under_load_admit_the_larger_limit_and_lose_no_unit() {
    let server = RedisServer::start(&[]);
    let role = Role {
        swaps_on: format!("redis://{}", server.address()),
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&role)).collect();
    let mut admitted = Counted::new().values();
    let mut run = |job: fn(usize) -> Job, admitted: &mut Vec<u64>| {
        for (number, process) in processes.iter_mut().enumerate() {
            process.begin(&job(number));
        }
        for process in &mut processes {
            let by_process: Vec<u64> = process.finish().expect("no request fails");
            for (all, units) in admitted.iter_mut().zip(by_process) {
                *all += units;
            }
        }
    };
    // The processes are not in step.
    run(|number| Job::Swap { first: number * 2 }, &mut admitted);
    let while_swapped: u64 = admitted.iter().sum();
    assert!(
        while_swapped > 0,
        "nothing was admitted while rules were swapped"
    );
    // Unused leases go back after a while, and can then be granted again.
    for poll in 1.. {
        run(|_| Job::Drain, &mut admitted);
        let mut lost = Vec::new();
        for (index, units) in admitted.iter().enumerate() {
            let (budget, client) = (index / CLIENTS, index % CLIENTS);
            let (consistency, budget) = (budget / BUDGETS, budget % BUDGETS);
            let (fewest, most) = bounds(consistency, budget);
            let what = format!(
                "{units} of {fewest} to {most} for client {client}, budget {budget}, {:?}",
                CONSISTENCIES[consistency]
            );
            assert!(*units <= most, "{what}");
            if *units < fewest {
                lost.push(what);
            }
        }
        if lost.is_empty() {
            break;
        }
        assert!(poll < POLLS / 100, "{lost:#?}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
