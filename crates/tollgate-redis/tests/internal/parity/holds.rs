//! Many histories, one after the other.
//!
//! `TOLLGATE_PARITY_STEPS` is the number of steps of each test, `TOLLGATE_PARITY_SEED` the seed of the first history. The seeds
//! in `regressions.txt` run first; one that fails is printed and added there.

use crate::internal_tests::parity::{
    history::{History, Time},
    quotas::Family,
    regressions::Regressions,
    server::Server,
};

/// Steps of each test, where nothing else was said.
const STEPS: u64 = 20_000;

/// Histories of each test by a clock that runs by itself.
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
    for seed in 1..=REAL {
        History::new(seed, families, Time::Real, &mut server).run();
    }
}

fn holds_by(time: Time, steps: u64, server: &mut Server, test: &str, families: &[Family]) {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => default,
    };
    let steps = number("TOLLGATE_PARITY_STEPS", steps);
    let first = number("TOLLGATE_PARITY_SEED", 1);
    let regressions = Regressions::of(test);
    for seed in regressions.seeds() {
        History::new(seed, families, time, server).run();
    }
    let mut done = 0;
    for seed in first.. {
        if done >= steps {
            break;
        }
        let _guard = regressions.guard(seed);
        done += History::new(seed, families, time, server).run();
    }
}
