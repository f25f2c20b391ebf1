//! The number of requests in flight that a service can take, found from its latency.
//!
//! The gradient of Netflix' concurrency-limits and of Envoy's adaptive concurrency: while latency stays at its baseline there is no
//! queue, and the number grows, by a quarter in each window until a first queue was seen, then by half of its square root. Once a queue makes
//! requests slower, it shrinks in proportion. By Little's law it settles a little above what the service can do at once, which keeps
//! the service busy and its queue short.
//!
//! The baseline drifts if it is only ever measured under load. So each half minute the number is halved for two windows, one for
//! the queue to drain and one to measure.
//!
//! The simulation in `lab` compares this with Vegas, AIMD and Gradient2; the guide has the figures.

use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_core::{
    Tick,
    sync::{BriefMutex, try_lock},
};

/// A window has at least this length, and at least [`SAMPLES`] requests, unless [`LONGEST`] is over.
const WINDOW: Tick = 250_000;
const SAMPLES: u64 = 10;
const LONGEST: Tick = 5_000_000;
/// From one measurement of the baseline to the next.
const PROBE_INTERVAL: Tick = 30_000_000;
/// By how much latency may exceed its baseline before the number shrinks.
const TOLERANCE: f64 = 1.1;
/// By how many standard errors the mean of a window may be off, which is more where few requests vary much.
const ERRORS: f64 = 1.0;
/// How much of its baseline a faster window takes away at most: one lucky window is no baseline.
const FASTER: f64 = 0.8;

/// The limit in force, and how it is found.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    in_force: AtomicUsize,
    window: BriefMutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    least: f64,
    most: f64,
    phase: Phase,
    /// Between measurements of the baseline. Not rounded: the square root of a small number is a fraction.
    limit: f64,
    /// Whether a queue was seen: until then the limit grows fast.
    has_queued: bool,
    /// What the mean latency without a queue is at most, in ticks.
    baseline: Option<f64>,
    probe_at: Tick,
    began: Tick,
    samples: u64,
    latencies: u64,
    /// The sum of the squares of the latencies.
    squares: f64,
    /// The most requests in flight.
    busiest: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The limit follows latency.
    #[default]
    Follow,
    /// The limit is halved, and the queue drains.
    Drain,
    /// The limit is halved, and the baseline is measured.
    Measure,
}

impl AdaptiveLimit {
    /// From `least` to `most`, both at least 1. It begins with `least`.
    pub(super) fn new(least: usize, most: usize) -> Self {
        Self {
            in_force: AtomicUsize::new(least),
            window: BriefMutex::new(Window {
                least: least as f64,
                most: most as f64,
                limit: least as f64,
                ..Window::default()
            }),
        }
    }

    /// The number in force.
    pub(super) fn get(&self) -> usize {
        self.in_force.load(Ordering::Relaxed)
    }

    /// A request has taken this time, with as many in flight when it began. One that was not served says something only where that is
    /// more than a request without a queue takes. A sample that meets another one is left out.
    pub(super) fn sample(&self, latency: Tick, in_flight: usize, now: Tick, is_served: bool) {
        let Some(mut window) = try_lock(&self.window) else {
            return;
        };
        if !is_served && window.baseline.is_none_or(|usual| latency as f64 <= usual) {
            return;
        }
        if window.samples == 0 {
            window.began = now;
        }
        window.samples += 1;
        window.latencies = window.latencies.saturating_add(latency);
        window.squares += (latency as f64).powi(2);
        window.busiest = window.busiest.max(in_flight);
        let length = now.saturating_sub(window.began);
        if length >= LONGEST || (length >= WINDOW && window.samples >= SAMPLES) {
            let limit = window.close(now);
            self.in_force
                .store(limit.round() as usize, Ordering::Relaxed);
        }
    }
}

impl Window {
    /// The limit of the next window.
    fn close(&mut self, now: Tick) -> f64 {
        let samples = self.samples as f64;
        let mean = self.latencies as f64 / samples;
        let variance = (self.squares / samples - mean * mean).max(0.0);
        let error = ERRORS * (variance / samples).sqrt();
        let means = [(mean - error).max(1.0), (mean + error).max(1.0)];
        let halved = (self.limit / 2.0).max(self.least);
        // Half of the limit would not lower another load, and there is no queue.
        let is_busy = self.busiest as f64 * 2.0 >= self.limit;
        let is_due = now >= self.probe_at && self.baseline.is_some();
        (self.samples, self.latencies, self.squares, self.busiest) = (0, 0, 0.0, 0);
        match self.phase {
            Phase::Follow if !is_due => {
                self.follow(means, is_busy, now);
                self.limit
            }
            Phase::Follow if is_busy => {
                self.phase = Phase::Drain;
                halved
            }
            Phase::Drain => {
                self.phase = Phase::Measure;
                halved
            }
            Phase::Follow | Phase::Measure => {
                self.phase = Phase::Follow;
                self.baseline = Some(means[1]);
                self.probe_at = now + PROBE_INTERVAL;
                self.limit
            }
        }
    }

    /// `means`: the least and the most that the mean latency may be.
    fn follow(&mut self, [least_mean, most_mean]: [f64; 2], is_busy: bool, now: Tick) {
        let baseline = match self.baseline {
            None => {
                self.probe_at = now + PROBE_INTERVAL;
                most_mean
            }
            Some(baseline) if most_mean < baseline => most_mean.max(baseline * FASTER),
            Some(baseline) => baseline,
        };
        self.baseline = Some(baseline);
        let gradient = (baseline / least_mean)
            .max(baseline * TOLERANCE / most_mean)
            .clamp(0.5, 1.0);
        self.has_queued |= gradient < 1.0;
        let room = if self.has_queued {
            self.limit.sqrt() / 2.0
        } else {
            self.limit / 4.0
        };
        let next = self.limit * gradient + room;
        // A limit that no load has reached says nothing, and would grow without end.
        if next < self.limit || is_busy {
            self.limit = next.clamp(self.least, self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that can do `servers` requests at once, in `work` ticks each, under as many requests as are let in.
    fn settled(limit: &AdaptiveLimit, servers: usize, work: Tick, windows: usize, now: &mut Tick) {
        for _ in 0..windows * 40 {
            let in_flight = limit.get();
            let latency = work * in_flight.max(servers) as u64 / servers as u64;
            *now += WINDOW / 20;
            limit.sample(latency, in_flight, *now, true);
        }
    }

    #[test]
    fn the_limit_settles_above_what_the_service_can_do_at_once_and_below_twice_that() {
        for servers in [4, 20, 150] {
            let (limit, mut now) = (AdaptiveLimit::new(4, 10_000), 1);
            settled(&limit, servers, 50_000, 100, &mut now);
            for _ in 0..400 {
                settled(&limit, servers, 50_000, 1, &mut now);
                // While the baseline is measured it is half of that.
                let range = servers / 2..=2 * servers + 1;
                assert!(
                    range.contains(&limit.get()),
                    "{} for {servers}",
                    limit.get()
                );
            }
        }
    }

    #[test]
    fn the_limit_comes_back_after_the_service_was_slow() {
        let (limit, mut now) = (AdaptiveLimit::new(4, 10_000), 1);
        settled(&limit, 20, 50_000, 100, &mut now);
        settled(&limit, 20, 500_000, 40, &mut now);
        settled(&limit, 20, 50_000, 60, &mut now);
        assert!((20..=41).contains(&limit.get()), "{}", limit.get());
    }

    #[test]
    fn a_service_without_a_queue_keeps_its_limit() {
        let (limit, mut now) = (AdaptiveLimit::new(4, 10_000), 1);
        for _ in 0..30_000 {
            now += 5_000;
            limit.sample(50_000, 20, now, true);
            assert!(now < 10_000_000 || limit.get() >= 30, "{}", limit.get());
        }
    }

    #[test]
    fn latency_that_varies_is_no_queue() {
        let (limit, mut random) = (AdaptiveLimit::new(4, 10_000), 1_u64);
        for sample in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let evenly = (random >> 11) as f64 / 2_f64.powi(53);
            let latency = -50_000.0 * (1.0 - evenly).ln();
            limit.sample(latency as Tick, limit.get(), sample * WINDOW / 20, true);
        }
        assert!(limit.get() >= 16, "{}", limit.get());
    }

    #[test]
    fn requests_that_are_given_up_late_count_and_fast_failures_do_not() {
        let (limit, mut now) = (AdaptiveLimit::new(4, 10_000), 1);
        settled(&limit, 20, 50_000, 100, &mut now);
        let before = limit.get();
        let fail = |latency, now: &mut Tick| {
            for _ in 0..400 {
                *now += WINDOW / 20;
                limit.sample(latency, before, *now, false);
            }
        };
        fail(1_000, &mut now);
        assert_eq!(limit.get(), before);
        fail(500_000, &mut now);
        assert!(limit.get() <= 6, "{}", limit.get());
    }

    #[test]
    fn a_limit_that_is_not_reached_does_not_grow() {
        let (limit, mut now) = (AdaptiveLimit::new(10, 10_000), 1);
        for _ in 0..10_000 {
            now += 10_000;
            limit.sample(50_000, 2, now, true);
        }
        assert_eq!(limit.get(), 10);
    }
}
