//! What a server's processor does for a request that passes and for one that is denied, behind each limiter.

use std::io;

use crate::{
    harness::{Compared, median},
    server::Limiter,
    table::Row,
};

const ROUNDS: usize = 5;

/// A server behind a limiter, with its clients.
pub(crate) trait Served: Sized {
    fn start(limiter: Limiter) -> io::Result<Self>;

    /// The server's processor time for each request under the wide or the tight limit, in microseconds. With `pass` all of them
    /// pass, otherwise none.
    fn processor_time(&mut self, tight: bool, pass: bool) -> io::Result<f64>;
}

/// What the rows are about.
pub(crate) struct Requests {
    pub(crate) passed: &'static str,
    pub(crate) denied: &'static str,
    pub(crate) protocol: &'static str,
    /// The most that a denied request may be of one that passes.
    pub(crate) gate: f64,
}

/// The rows.
pub(crate) fn rows<S: Served>(requests: &Requests, print: &mut dyn FnMut(Row)) -> io::Result<()> {
    let sides = Limiter::ALL.map(|(limiter, _)| S::start(limiter));
    let mut sides = sides.into_iter().collect::<io::Result<Vec<_>>>()?;
    let mut rounds = Vec::new();
    for _ in 0..=ROUNDS {
        let mut round = Vec::new();
        for (side, (limiter, _)) in sides.iter_mut().zip(Limiter::ALL) {
            let passed = side.processor_time(false, true)?;
            let denied = side.processor_time(true, limiter == Limiter::Bare)?;
            round.push((passed, denied));
        }
        rounds.push(round);
    }
    // The first round warms up.
    let rounds = &rounds[1..];
    let [bare, ours, theirs, reference] = [0, 1, 2, 3];
    let Requests {
        passed,
        denied,
        protocol,
        gate,
    } = requests;
    print(Row::alone(
        format!("server CPU of {passed}, {protocol}, no limiter"),
        "µs",
        median(rounds.iter().map(|round| round[bare].0)),
    ));
    let row = |what: String, unit, other: usize, figure: fn((f64, f64)) -> f64| {
        let figures = rounds
            .iter()
            .map(|round| (figure(round[ours]), figure(round[other])));
        let compared = Compared::of(&figures.collect::<Vec<_>>());
        Row::compared(what, unit, Limiter::ALL[other].1, compared)
    };
    for other in [theirs, reference] {
        let what = format!("server CPU of {passed}, {protocol}");
        print(row(what, "µs", other, |(passed, _)| passed));
        let what = format!("server CPU of {denied}, {protocol}");
        print(row(what, "µs", other, |(_, denied)| denied));
        let what = format!("CPU of {denied} / {passed}, {protocol}");
        let parts = row(what, "x", other, |(passed, denied)| denied / passed);
        print(if other == theirs {
            parts.gate_on_ours(*gate)
        } else {
            parts
        });
    }
    Ok(())
}
