//! What scenarios take, one after the other. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin profile
//! ```
//!
//! One scenario, for a profiler, too; or two, in turns, and what one takes next to the other:
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin profile -- --only hot-allowed --count 200000
//! cargo run --release -p tollgate-benches --bin profile -- --only rate-and-slot --next-to two-rules --count 5000000
//! ```
//!
//! With `--instructions`, their instructions under valgrind.

use std::{
    env,
    error::Error,
    fs,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use tollgate_benches::scenario::{ALL, Scenario, Step};

/// How many operations of one scenario come before the other has its turn.
const ROUND: u64 = 1_000;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (mut only, mut next_to, mut count) = (None, None, Some(100_000_u64));
    let (mut counts_instructions, mut is_understood) = (false, true);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = Some(arguments.next().unwrap_or_default()),
            "--next-to" => next_to = Some(arguments.next().unwrap_or_default()),
            "--count" => count = arguments.next().and_then(|count| count.parse().ok()),
            "--instructions" => counts_instructions = true,
            _ => is_understood = false,
        }
    }
    let named = |name: &String| ALL.iter().find(|scenario| scenario.name == name);
    let names = only.iter().chain(&next_to);
    let scenarios: Option<Vec<&Scenario>> = names.map(named).collect();
    let (Some(scenarios), Some(count), true) = (
        scenarios,
        count,
        is_understood && only.is_some() >= next_to.is_some(),
    ) else {
        let names: Vec<_> = ALL.iter().map(|scenario| scenario.name).collect();
        eprintln!(
            "usage: profile [--only <scenario> [--next-to <scenario> [--instructions]]] [--count <operations>]"
        );
        eprintln!("scenarios: {}", names.join(", "));
        return ExitCode::FAILURE;
    };
    let count = count.next_multiple_of(ROUND);
    let done = match scenarios[..] {
        [] => ALL
            .iter()
            .try_for_each(|scenario| in_turns(&[scenario], count)),
        [one, other] if counts_instructions => instructions([one, other], count),
        _ => in_turns(&scenarios, count),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
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
            .stdout(Stdio::null())
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

/// Prints the least and the median of all rounds, in nanoseconds for each operation. What else the machine does disturbs all
/// scenarios alike.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it measures, and prints what it has measured"
)]
fn in_turns(scenarios: &[&Scenario], count: u64) -> Result<(), Box<dyn Error>> {
    let steps = scenarios.iter().map(|scenario| scenario.set_up());
    let mut steps = steps.collect::<Result<Vec<Step>, _>>()?;
    let mut times = vec![Vec::new(); steps.len()];
    // What is done once (a first key, a lazy value) is not counted.
    for step in &mut steps {
        repeat(step, ROUND);
    }
    for _ in 0..(count / ROUND).max(1) {
        for (step, times) in steps.iter_mut().zip(&mut times) {
            let start = Instant::now();
            measured(step, ROUND);
            times.push(start.elapsed().as_nanos() as f64 / ROUND as f64);
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let median = times[0].len() / 2;
    for (scenario, of) in scenarios.iter().zip(&times) {
        let (name, least, median) = (scenario.name, of[0], of[median]);
        println!("{name}: {least:.0} ns at least, {median:.0} ns in the median");
    }
    if let [one, other] = &times[..] {
        let (least, median) = (one[0] / other[0], one[median] / other[median]);
        println!("the first next to the second: {least:.2} x, {median:.2} x");
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
