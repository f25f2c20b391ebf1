//! The workloads by name.

use std::{fmt, str::FromStr};

use crate::workload::{attacks, crowds, denials, faults, scene::Scene};

/// A kind of traffic. It is drawn anew for each seed.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    name: &'static str,
    draw: fn(&mut fastrand::Rng, f64) -> Scene,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 15] = [
        Self::new("hot", crowds::hot),
        Self::new("hot-second", crowds::hot_second),
        Self::new("moving", crowds::moving),
        Self::new("tenants", crowds::tenants),
        Self::new("weighted", crowds::weighted),
        Self::new("zipf", crowds::zipf),
        Self::new("cold", crowds::cold),
        Self::new("bursts", crowds::bursts),
        Self::new("global", crowds::global),
        Self::new("sweep", attacks::sweep),
        Self::new("hoarding", attacks::hoarding),
        Self::new("dying", faults::dying),
        Self::new("refilled", denials::refilled),
        Self::new("daily", denials::daily),
        Self::new("sliding", denials::sliding),
    ];

    const fn new(name: &'static str, draw: fn(&mut fastrand::Rng, f64) -> Scene) -> Self {
        Self { name, draw }
    }

    /// Its name, as `--only` has it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Draws the requests of so many seconds, the same for the same seed.
    #[must_use]
    pub fn draw(&self, seed: u64, seconds: f64) -> Scene {
        (self.draw)(&mut fastrand::Rng::with_seed(seed), seconds)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|one| one.name == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(|one| one.name).join(", ");
                format!("`{name}` is no workload; there are {names}")
            })
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}
