//! A store in one region, and half of the processes in another.

use std::fmt;

use crate::{
    consistency::Consistency, figures::Figures, network::Network, workload::Workload, world,
};

/// The round trip within the region of the store, in µs.
const NEAR: u64 = 500;
/// When the cut begins and ends, in µs.
const CUT: (u64, u64) = (20_000_000, 40_000_000);
const SECONDS: f64 = 60.0;

/// One run, without a cut and with one.
#[derive(Clone, Debug)]
pub struct Row {
    /// Between the regions, in ms.
    pub round_trip: u64,
    /// The traffic.
    pub workload: Workload,
    /// How the limit is counted.
    pub consistency: Consistency,
    /// Where the way is whole.
    pub whole: Figures,
    /// Where the other region is cut off for twenty of the sixty seconds.
    pub cut: Figures,
}

/// The head of the table.
pub const HEAD: &str = "\
| round trip | traffic | counted | without a wait | 99 % within | above the limit | least of a process | no answer in a cut |
| --- | --- | --- | --- | --- | --- | --- | --- |";

/// Runs all rows from a seed.
pub fn rows(seed: u64) -> impl Iterator<Item = Row> {
    let traffics = ["hot", "global"].map(|name| name.parse::<Workload>());
    let consistencies = [
        Consistency::Exact,
        Consistency::Leased(100),
        Consistency::Eventual,
    ];
    [80, 150].into_iter().flat_map(move |round_trip| {
        // Both are names of workloads.
        let traffics = traffics.clone().into_iter().flatten();
        traffics.flat_map(move |workload| {
            let scene = workload.draw(seed, SECONDS);
            consistencies.into_iter().filter_map(move |consistency| {
                let far = scene.processes / 2;
                let run = |cut| {
                    let network = Network::new(NEAR).with_region(far, round_trip * 1_000, cut);
                    world::run(&scene, consistency, network, seed)
                };
                Some(Row {
                    round_trip,
                    workload,
                    consistency,
                    whole: run((0, 0))?,
                    cut: run(CUT)?,
                })
            })
        })
    })
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: f64| format!("{:.0} %", part * 100.0);
        let Self { whole, cut, .. } = self;
        let cells = [
            format!("{} ms", self.round_trip),
            self.workload.to_string(),
            self.consistency.to_string(),
            percent(whole.alone_part()),
            format!("{:.0} ms", whole.latency(990) as f64 / 1e3),
            percent(whole.over),
            percent(whole.fairness()),
            percent(cut.failed_part()),
        ];
        write!(f, "| {} |", cells.join(" | "))
    }
}
