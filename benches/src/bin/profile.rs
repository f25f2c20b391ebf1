//! One scenario, again and again, for a profiler. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin profile -- --only hot-allowed --count 200000
//! ```
//!
//! Or two scenarios, in turns, and what one takes next to the other:
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin profile -- --only rate-and-slot --next-to two-rules --count 5000000
//! ```
//!
//! With `--instructions`, their instructions under valgrind.

use std::{
    env,
    error::Error,
    fs,
    process::{Command, ExitCode},
    time::Instant,
};

use tollgate_benches::scenario::{ALL, Scenario, Step};

/// How many operations of one scenario come before the other has its turn.
const ROUND: u64 = 1_000;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (mut only, mut next_to, mut count) = (None, None, Some(100_000));
    let mut counts_instructions = false;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = arguments.next(),
            "--next-to" => next_to = Some(arguments.next().unwrap_or_default()),
            "--count" => count = arguments.next().and_then(|count| count.parse().ok()),
            "--instructions" => counts_instructions = true,
            _ => only = None,
        }
    }
    let named = |name: &String| ALL.iter().find(|scenario| scenario.name == name);
    let scenario = only.as_ref().and_then(named);
    let other = next_to.as_ref().map(named);
    let (Some(scenario), None | Some(Some(_)), Some(count)) = (scenario, other, count) else {
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        eprintln!(
            "usage: profile --only <scenario> [--next-to <scenario> [--instructions]] [--count <operations>]"
        );
        eprintln!("scenarios: {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    let done = match other.flatten() {
        None => alone(scenario, count),
        Some(other) if counts_instructions => instructions([scenario, other], count),
        Some(other) => in_turns(scenario, other, count),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

fn alone(scenario: &Scenario, count: u64) -> Result<(), Box<dyn Error>> {
    let mut step = scenario.set_up()?;
    // What is done once (a first key, a lazy value) is not counted.
    repeat(&mut step, 1);
    measured(&mut step, count);
    Ok(())
}

/// Prints the instructions of an operation of each.
#[expect(clippy::print_stdout, reason = "it is what it counts for")]
fn instructions(scenarios: [&Scenario; 2], count: u64) -> Result<(), Box<dyn Error>> {
    let mut counted = [0.0; 2];
    for (scenario, counted) in scenarios.iter().zip(&mut counted) {
        let file = env::temp_dir().join(format!("tollgate-callgrind-{}", std::process::id()));
        let ended = Command::new("valgrind")
            .args(["--quiet", "--tool=callgrind"])
            .arg("--toggle-collect=*profile::measured*")
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(env::current_exe()?)
            .args(["--only", scenario.name, "--count", &count.to_string()])
            .status()?;
        let text = fs::read_to_string(&file)?;
        fs::remove_file(&file)?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let totals = totals.filter(|_| ended.success());
        let totals = totals.ok_or("callgrind wrote no totals")?.trim();
        *counted = totals.parse::<u64>()? as f64 / count as f64;
    }
    let ([name, next_to], [this, that]) = (scenarios.map(|it| it.name), counted);
    let ratio = this / that;
    println!("{name} {this:.0} instructions, {next_to} {that:.0}: {ratio:.3} x");
    Ok(())
}

/// Prints the least and the median of all rounds, in nanoseconds for each operation. What else the machine does disturbs both
/// scenarios alike.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it measures, and prints what it has measured"
)]
fn in_turns(one: &Scenario, other: &Scenario, count: u64) -> Result<(), Box<dyn Error>> {
    let mut steps = [one.set_up()?, other.set_up()?];
    let mut times = [Vec::new(), Vec::new()];
    for step in &mut steps {
        repeat(step, ROUND);
    }
    for _ in 0..count.div_ceil(ROUND).max(1) {
        for (step, times) in steps.iter_mut().zip(&mut times) {
            let start = Instant::now();
            measured(step, ROUND);
            times.push(start.elapsed().as_nanos() as f64 / ROUND as f64);
        }
    }
    let [one_times, other_times] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times
    });
    for (of, at) in [("least", 0), ("median", one_times.len() / 2)] {
        let (this, that) = (one_times[at], other_times[at]);
        let (name, next_to) = (one.name, other.name);
        println!(
            "{of}: {name} {this:.0} ns, {next_to} {that:.0} ns: {:.2} x",
            this / that
        );
    }
    Ok(())
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
