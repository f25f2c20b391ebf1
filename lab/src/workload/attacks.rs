//! Clients that know how the limit is shared.

use tollgate_core::{MINUTE, Quota};

use crate::workload::scene::Scene;

/// 4 keys of 600 a minute. Each sends 4 800 requests in turn to all 16 processes within 100 ms, and again every 15 seconds.
pub(crate) fn sweep(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(600, MINUTE), 16);
    for key in 0..4 {
        let mut from = f64::from(key);
        while from < seconds {
            let mut process = 0;
            scene.stream(rng, 48_000.0, from, from + 0.1, |_| {
                process = (process + 1) % 16;
                (process, key, 1)
            });
            from += 15.0;
        }
    }
    scene.sorted()
}

/// 5 keys of 6 000 a minute. Each is used by 16 processes at 90 % for eight seconds, so that all of them take leases. Then one
/// request a second reaches each process, so that no lease lies idle, while the bucket fills up, for up to 25 seconds. Then
/// 8 000 requests come within 100 ms.
pub(crate) fn hoarding(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(6_000, MINUTE), 16);
    for key in 0..5 {
        let mut from = f64::from(key);
        while from < seconds {
            let drip = from + 8.0;
            let attack = drip + f64::from(rng.u32(0..250)) / 10.0;
            scene.stream(rng, 90.0, from, drip, |rng| (rng.u16(0..16), key, 1));
            scene.stream(rng, 16.0, drip, attack, |rng| (rng.u16(0..16), key, 1));
            scene.stream(rng, 80_000.0, attack, attack + 0.1, |rng| {
                (rng.u16(0..16), key, 1)
            });
            from = attack + 20.0;
        }
    }
    scene.sorted()
}
