//! What is measured in one run.

use tollgate_core::Tick;

/// The figures of one workload under one consistency.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests that arrived.
    pub requests: u64,
    /// Queries that went to the store: requests, reports, leases.
    pub calls: u64,
    /// Requests that were answered with no query.
    pub alone: u64,
    /// Requests that got no answer: their process died, or a message was lost.
    pub failed: u64,
    /// Requests refused though the exact counter had room.
    pub falsely_refused: u64,
    /// The most units that lay in leases at a false refusal, as a part of the burst.
    pub tracked_then: f64,
    /// The most room that the exact counter had at a false refusal, as a part of the burst: what lay in leases, and what was
    /// lost of them.
    pub room_then: f64,
    /// The worst over-admission, as a part of the burst.
    pub over: f64,
    /// Units admitted.
    pub admitted: u64,
    /// Units that an exact limiter would have admitted of the same arrivals.
    pub ideal: u64,
    latencies: Vec<Tick>,
    /// By process: units requested, and units admitted.
    shares: Vec<(u64, u64)>,
}

impl Figures {
    pub(crate) fn waited(&mut self, time: Tick) {
        self.latencies.push(time);
    }

    pub(crate) fn requested_of(&mut self, process: u16, units: u64) {
        self.share(process).0 += units;
    }

    pub(crate) fn admitted_by(&mut self, process: u16, units: u64) {
        self.admitted += units;
        self.share(process).1 += units;
    }

    fn share(&mut self, process: u16) -> &mut (u64, u64) {
        let place = usize::from(process);
        if self.shares.len() <= place {
            self.shares.resize(place + 1, (0, 0));
        }
        &mut self.shares[place]
    }

    pub(crate) fn finish(&mut self) {
        self.latencies.sort_unstable();
    }

    /// Queries for each request.
    #[must_use]
    pub fn calls_per_request(&self) -> f64 {
        part(self.calls, self.requests)
    }

    /// The part of the requests that was answered with no query.
    #[must_use]
    pub fn alone_part(&self) -> f64 {
        part(self.alone, self.requests)
    }

    /// The part of the requests that was refused though there was room.
    #[must_use]
    pub fn false_part(&self) -> f64 {
        part(self.falsely_refused, self.requests)
    }

    /// The part of the requests that got no answer.
    #[must_use]
    pub fn failed_part(&self) -> f64 {
        part(self.failed, self.requests)
    }

    /// What was admitted, against what an exact limiter would have admitted.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        part(self.admitted, self.ideal)
    }

    /// How alike the processes are: the part of the requested units that the least generous one admits, against that of the
    /// most generous one.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let parts = self.shares.iter().filter(|(requested, _)| *requested > 0);
        let parts = parts.map(|(requested, admitted)| part(*admitted, *requested));
        let (least, most) = parts.fold((f64::MAX, 0.0), |(least, most), part| {
            (f64::min(least, part), f64::max(most, part))
        });
        if most > 0.0 { least / most } else { 1.0 }
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
