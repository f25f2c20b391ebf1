//! What the numbers for operators cost: a check on the memory store, on one thread and on two, with and without top keys. Run it without
//! and with the feature `observe`, by turns: the difference is what metrics and events cost. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin observed
//! cargo run --release -p tollgate-benches --bin observed --features observe -- above 31.2 33.0
//! ```
//!
//! The numbers behind `above` are those of `allowed` without the feature.

#![expect(clippy::print_stdout, reason = "it prints its table")]

use std::{
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use tollgate_core::{Check, Key, Limiter, MINUTE, MemoryStore, Quota, Rule};

/// Checks of each thread in a round.
const CHECKS: u32 = 400_000;
const ROUNDS: usize = 21;
/// Clients of each thread, of whom the n-th comes in proportion to 1/n.
const CLIENTS: u64 = 4_096;

fn main() {
    #[cfg(feature = "observe")]
    tollgate_benches::recorder::install();
    // What a profiler counts, of one thread: `observed <allowed|denied|top> <checks>`.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, checks] = &arguments[..]
        && what != "above"
    {
        let limiter = limiter(what);
        let keys = keys(&limiter, 0);
        run(&limiter, &keys, 16);
        return measured(&limiter, &keys, checks.parse().unwrap_or(0));
    }
    println!("| check | 1 thread | 2 threads | goal |\n| --- | --- | --- | --- |");
    let [allowed, _, top] = ["allowed", "denied", "top"].map(|what| {
        let times = [1, 2].map(|threads| nanoseconds(what, threads));
        row(what, times, "");
        times
    });
    let above = |one: [f64; 2], other: [f64; 2]| [one[0] - other[0], one[1] - other[1]];
    row(
        "top keys: `top` above `allowed`",
        above(top, allowed),
        "15 ns",
    );
    let without: Vec<f64> = arguments
        .iter()
        .skip(1)
        .flat_map(|text| text.parse())
        .collect();
    match without[..] {
        [one, two] => row(
            "metrics and events: `allowed` above `allowed` without them",
            above(allowed, [one, two]),
            "30 ns",
        ),
        _ => println!(
            "\nmetrics and events, goal 30 ns: run this with --features observe -- above {:.1} {:.1}",
            allowed[0], allowed[1]
        ),
    }
}

fn row(what: &str, times: [f64; 2], goal: &str) {
    println!(
        "| {what} | {:.1} ns | {:.1} ns | {goal} |",
        times[0], times[1]
    );
}

fn limiter(what: &str) -> Limiter {
    let rule = match what {
        "denied" => Rule::new("api", Quota::fixed_window(1, 60 * MINUTE)),
        "top" => Rule::new("api", Quota::fixed_window(1_000_000_000, MINUTE)).top_keys(),
        _ => Rule::new("api", Quota::fixed_window(1_000_000_000, MINUTE)),
    };
    Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule")
}

/// The checks of a thread, in the order in which they come.
fn keys(limiter: &Limiter, thread: u64) -> Vec<Check> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let checks = (0..16_384).map(|_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let unit = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let client = (CLIENTS as f64).powf(unit) as u64;
        let key = Key::of((thread, client));
        limiter.check("api", &key).expect("there is the rule")
    });
    checks.collect()
}

#[inline(never)]
fn measured(limiter: &Limiter, keys: &[Check], checks: u32) {
    run(limiter, keys, checks);
}

#[inline(always)]
fn run(limiter: &Limiter, keys: &[Check], checks: u32) {
    for check in keys.iter().cycle().take(checks as usize) {
        let _ = black_box(limiter.acquire(black_box(&[*check])));
    }
}

/// The median of the rounds, for each check of a thread.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn nanoseconds(what: &str, threads: u64) -> f64 {
    let limiter = limiter(what);
    let keys: Vec<Vec<Check>> = (0..threads).map(|thread| keys(&limiter, thread)).collect();
    let barrier = Barrier::new(threads as usize);
    let mut rounds: Vec<Duration> = (0..=ROUNDS)
        .map(|_| {
            let of_thread = |keys: &Vec<Check>| {
                barrier.wait();
                let begin = Instant::now();
                run(&limiter, keys, CHECKS);
                begin.elapsed()
            };
            thread::scope(|scope| {
                let running: Vec<_> = keys
                    .iter()
                    .map(|keys| scope.spawn(|| of_thread(keys)))
                    .collect();
                let times = running
                    .into_iter()
                    .map(|thread| thread.join().expect("no panic"));
                times.max().unwrap_or_default()
            })
        })
        // The first one makes states and series.
        .skip(1)
        .collect();
    rounds.sort();
    rounds[ROUNDS / 2].as_nanos() as f64 / f64::from(CHECKS)
}
