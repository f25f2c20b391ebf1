//! Other ways to find how many requests a service can take, to compare with that of `Capacity::adaptive`.

/// Finds a limit from the latency of each request, in seconds.
pub(super) trait LimitFinder: Send {
    fn limit(&self) -> f64;
    fn sample(&mut self, latency: f64, in_flight: usize);
}

/// Additive increase, multiplicative decrease: one more with each window of requests in time, a tenth less with one that is late.
pub(super) struct Aimd {
    limit: f64,
    late: f64,
}

impl Aimd {
    pub(super) fn new(late: f64) -> Self {
        Self { limit: 4.0, late }
    }
}

impl LimitFinder for Aimd {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn sample(&mut self, latency: f64, in_flight: usize) {
        if latency > self.late {
            self.limit = (self.limit * 0.9).max(4.0);
        } else if in_flight as f64 * 2.0 >= self.limit {
            self.limit += 1.0 / self.limit;
        }
    }
}

/// TCP Vegas, as in Netflix' concurrency-limits: the queue is what latency above its minimum says, and stays between two bounds.
pub(super) struct Vegas {
    limit: f64,
    least: f64,
}

impl Vegas {
    pub(super) fn new() -> Self {
        Self {
            limit: 4.0,
            least: f64::MAX,
        }
    }
}

impl LimitFinder for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn sample(&mut self, latency: f64, in_flight: usize) {
        self.least = self.least.min(latency);
        let queue = self.limit * (1.0 - self.least / latency);
        let scale = self.limit.log10().max(1.0);
        if queue > 6.0 * scale {
            self.limit = (self.limit - scale).max(4.0);
        } else if queue < 3.0 * scale && in_flight as f64 * 2.0 >= self.limit {
            self.limit += scale;
        }
    }
}

/// Gradient2 of Netflix' concurrency-limits: the newest latency against a mean of hundreds of requests.
pub(super) struct Gradient2 {
    limit: f64,
    mean: Option<f64>,
}

impl Gradient2 {
    pub(super) fn new() -> Self {
        Self {
            limit: 4.0,
            mean: None,
        }
    }
}

impl LimitFinder for Gradient2 {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn sample(&mut self, latency: f64, in_flight: usize) {
        let mean = self
            .mean
            .map_or(latency, |mean| mean + (latency - mean) * 2.0 / 601.0);
        self.mean = Some(if mean / latency > 2.0 {
            mean * 0.95
        } else {
            mean
        });
        if in_flight as f64 * 2.0 >= self.limit {
            let gradient = (1.5 * mean / latency).clamp(0.5, 1.0);
            let next = self.limit * gradient + 4.0;
            self.limit = (self.limit * 0.8 + next * 0.2).max(4.0);
        }
    }
}
