//! One drawn instance of a workload.

use tollgate_core::{Quota, Tick};

use crate::network::exponential;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// In µs since the start.
    pub at: Tick,
    /// The process that it reaches.
    pub process: u16,
    /// Whom it counts against.
    pub key: u32,
    /// Its units.
    pub cost: u32,
    /// Whether another rule denies it, which only the store knows.
    pub is_denied: bool,
}

/// One drawn instance of a workload.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The limit of each key.
    pub quota: Quota,
    /// How many processes there are.
    pub processes: u16,
    /// All requests, by their time.
    pub requests: Vec<Request>,
    /// When which process dies, in µs since the start. It is there again at once and knows nothing.
    pub deaths: Vec<(Tick, u16)>,
    /// Of a thousand messages so many are lost.
    pub loss: u32,
}

impl Scene {
    pub(crate) fn new(quota: Quota, processes: u16) -> Self {
        Self {
            quota,
            processes,
            requests: Vec::new(),
            deaths: Vec::new(),
            loss: 0,
        }
    }

    /// A Poisson stream of `rate` requests a second, between two times in seconds.
    pub(crate) fn stream(
        &mut self,
        rng: &mut fastrand::Rng,
        rate: f64,
        from: f64,
        to: f64,
        mut draw: impl FnMut(&mut fastrand::Rng) -> (u16, u32, u32),
    ) {
        let mut at = from;
        loop {
            at += exponential(rng, 1.0 / rate);
            if at >= to {
                return;
            }
            let (process, key, cost) = draw(rng);
            self.requests.push(Request {
                at: (at * 1e6) as Tick,
                process,
                key,
                cost,
                is_denied: false,
            });
        }
    }

    /// So many requests at once that another rule denies, each of a unit.
    pub(crate) fn denied(&mut self, at: f64, process: u16, key: u32, requests: usize) {
        let denied = Request {
            at: (at * 1e6) as Tick,
            process,
            key,
            cost: 1,
            is_denied: true,
        };
        self.requests.extend(std::iter::repeat_n(denied, requests));
    }

    pub(crate) fn sorted(mut self) -> Self {
        self.requests.sort_by_key(|request| request.at);
        self.deaths.sort_unstable();
        self
    }
}

/// Keys, the `n`-th drawn `1/n` as often as the first.
pub(crate) struct Zipf(Vec<f64>);

impl Zipf {
    pub(crate) fn new(keys: u32) -> Self {
        let mut sum = 0.0;
        Self(
            (1..=keys)
                .map(|rank| {
                    sum += 1.0 / f64::from(rank);
                    sum
                })
                .collect(),
        )
    }

    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> u32 {
        let at = rng.f64() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|sum| *sum <= at) as u32
    }
}
