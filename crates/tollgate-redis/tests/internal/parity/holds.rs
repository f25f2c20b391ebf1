//! Many histories, one after the other.
//!
//! `TOLLGATE_PARITY_STEPS` is the number of steps of each test, and of tests with a fixed number of histories the same part of them;
//! `TOLLGATE_PARITY_SEED` is the seed of the first history. The seeds in `regressions.txt` run first; what fails says its seed, which
//! belongs there.

use crate::internal_tests::parity::{
    history::{History, Time},
    quotas::Family,
    server::Server,
};

/// Steps of each test, where nothing else was said.
const STEPS: u64 = 10_000;

/// Histories of each test by a clock that runs by itself, where nothing else was said.
const REAL: u64 = 6;

pub(crate) fn holds(test: &str, families: &[Family]) {
    holds_by(Time::Callers, STEPS, &mut Server::start(), test, families);
}

/// The same by the server's clock.
pub(crate) fn holds_by_server(test: &str, families: &[Family]) {
    let server = &mut Server::start_standing();
    holds_by(Time::Servers, STEPS / 3, server, test, families);
}

/// The same by a clock that runs by itself.
pub(crate) fn holds_by_itself(families: &[Family]) {
    let mut server = Server::start();
    for seed in 1..=histories(REAL) {
        History::new(seed, families, Time::Real, &mut server).run();
    }
}

fn holds_by(time: Time, steps: u64, server: &mut Server, test: &str, families: &[Family]) {
    let steps = number("TOLLGATE_PARITY_STEPS").unwrap_or(steps);
    let first = number("TOLLGATE_PARITY_SEED").unwrap_or(1);
    for seed in regressions(test) {
        History::new(seed, families, time, server).run();
    }
    let mut done = 0;
    for seed in first.. {
        if done >= steps {
            break;
        }
        done += History::new(seed, families, time, server).run();
    }
}

/// The seeds of a test that failed once: a line is its name and a seed.
fn regressions(test: &str) -> impl Iterator<Item = u64> {
    let lines = include_str!("regressions.txt").lines();
    lines.filter_map(move |line| line.strip_prefix(test)?.trim().parse().ok())
}

/// As many of these histories as the steps that the environment names are of [`STEPS`], and one at least.
pub(super) fn histories(all: u64) -> u64 {
    let steps = number("TOLLGATE_PARITY_STEPS").unwrap_or(STEPS);
    (all * steps / STEPS).clamp(1, all)
}

/// The number that the environment names.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name}={text:?} is not a number"),
    }
}
