//! Requests that another rule denies, in bursts, after what they cost was taken from a lease.

use std::time::Duration;

use tollgate_core::{MINUTE, Quota};

use crate::workload::scene::Scene;

/// 5 000 a day, with 150 requests a second on 4 processes: more than there are. Each second 150 more come to one process, and
/// are denied.
pub(crate) fn daily(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let day = Duration::from_secs(86_400);
    between_bursts(rng, seconds, Quota::fixed_window(5_000, day), 4)
}

/// The same of 3 000 within 20 seconds, in a window that slides.
pub(crate) fn sliding(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let window = Duration::from_secs(20);
    between_bursts(rng, seconds, Quota::sliding_window(3_000, window), 4)
}

/// The same of a bucket of 12 000 a minute, which has more than is requested.
pub(crate) fn refilled(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    between_bursts(rng, seconds, Quota::gcra(12_000, MINUTE), 4)
}

fn between_bursts(rng: &mut fastrand::Rng, seconds: f64, quota: Quota, processes: u16) -> Scene {
    let mut scene = Scene::new(quota, processes);
    scene.stream(rng, 150.0, 0.0, seconds, |rng| {
        (rng.u16(0..processes), 0, 1)
    });
    let mut at = 0.5;
    while at < seconds {
        scene.denied(at, rng.u16(0..processes), 0, 150);
        at += 1.0;
    }
    scene.sorted()
}
