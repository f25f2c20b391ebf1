//! Processes that die, and messages that are lost.

use tollgate_core::Tick;

use crate::workload::{crowds, scene::Scene};

/// Hot keys at 70 % of their limit. A process dies every two seconds, and of a thousand messages five are lost.
pub(crate) fn dying(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = crowds::hot(rng, seconds);
    scene.loss = 5;
    let deaths = (seconds / 2.0) as usize;
    scene.deaths = (0..deaths)
        .map(|_| ((rng.f64() * seconds * 1e6) as Tick, rng.u16(0..8)))
        .collect();
    scene.sorted()
}
