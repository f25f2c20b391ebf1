//! One scenario, again and again, for a profiler. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin profile -- --only hot-allowed --count 200000
//! ```

use std::process::ExitCode;

use tollgate_benches::scenario::{ALL, Step};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut only, mut count) = (None, Some(100_000));
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = arguments.next(),
            "--count" => count = arguments.next().and_then(|count| count.parse().ok()),
            _ => only = None,
        }
    }
    let scenario = ALL
        .iter()
        .find(|scenario| Some(scenario.name) == only.as_deref());
    let (Some(scenario), Some(count)) = (scenario, count) else {
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        eprintln!("usage: profile --only <scenario> [--count <operations>]");
        eprintln!("scenarios: {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    match scenario.set_up() {
        Ok(mut step) => {
            // What is done once (a first key, a lazy value) is not counted.
            repeat(&mut step, 1);
            measured(&mut step, count);
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

/// What a profiler counts: `valgrind --tool=callgrind --toggle-collect='*profile::measured*'`.
#[inline(never)]
fn measured(step: &mut Step, count: u64) {
    repeat(step, count);
}

fn repeat(step: &mut Step, count: u64) {
    for _ in 0..count {
        step();
    }
}
