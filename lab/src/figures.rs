//! What is measured in one run.

use tollgate_core::Tick;

/// The figures of one workload under one consistency.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests that arrived.
    pub requests: u64,
    /// Questions that went to the store: requests, reports, lots.
    pub calls: u64,
    /// Requests that were answered with no question.
    pub alone: u64,
    /// Requests that got no answer: their process died, or a message was lost.
    pub failed: u64,
    /// Requests refused though the exact counter had room.
    pub falsely_refused: u64,
    /// The most units that lay in lots at a false refusal, as a part of the burst.
    pub parked_then: f64,
    /// The most room that the exact counter had at a false refusal, as a part of the burst: what lay in lots, and what was
    /// lost of them.
    pub room_then: f64,
    /// The worst over-admission, as a part of the burst.
    pub over: f64,
    /// Units admitted.
    pub admitted: u64,
    /// Units that an exact limiter would have admitted of the same arrivals.
    pub ideal: u64,
    latencies: Vec<Tick>,
}

impl Figures {
    pub(crate) fn waited(&mut self, time: Tick) {
        self.latencies.push(time);
    }

    pub(crate) fn finish(&mut self) {
        self.latencies.sort_unstable();
    }

    /// Questions for each request.
    #[must_use]
    pub fn calls_per_request(&self) -> f64 {
        part(self.calls, self.requests)
    }

    /// The part of the requests that was answered with no question.
    #[must_use]
    pub fn alone_part(&self) -> f64 {
        part(self.alone, self.requests)
    }

    /// The part of the requests that was refused though there was room.
    #[must_use]
    pub fn false_part(&self) -> f64 {
        part(self.falsely_refused, self.requests)
    }

    /// What was admitted, against what an exact limiter would have admitted.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        part(self.admitted, self.ideal)
    }

    /// The time in µs within which so many thousandths of the requests were answered.
    #[must_use]
    pub fn latency(&self, permille: usize) -> Tick {
        let at = self.latencies.len() * permille / 1_000;
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get(at.min(last)).copied().unwrap_or(0)
    }
}

fn part(some: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        some as f64 / all as f64
    }
}
