//! Clients that mean no harm.

use tollgate_core::{MINUTE, Quota, SECOND};

use crate::workload::scene::{Scene, Zipf};

/// 20 keys at 70 % of 6 000 a minute, on 8 processes.
pub(crate) fn hot(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(6_000, MINUTE), 8);
    scene.stream(rng, 20.0 * 70.0, 0.0, seconds, |rng| {
        (rng.u16(0..8), rng.u32(0..20), 1)
    });
    scene.sorted()
}

/// 8 keys at 70 % of 1 000 a second with a burst of a second, on 8 processes: the reserve is small for the rate.
pub(crate) fn hot_second(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(1_000, SECOND), 8);
    scene.stream(rng, 8.0 * 700.0, 0.0, seconds / 2.0, |rng| {
        (rng.u16(0..8), rng.u32(0..8), 1)
    });
    scene.sorted()
}

/// 4 927 keys at 100 a minute on 8 processes. The first of them want many times that.
pub(crate) fn zipf(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(100, MINUTE), 8);
    let keys = Zipf::new(4_927);
    scene.stream(rng, 1_000.0, 0.0, seconds, |rng| {
        (rng.u16(0..8), keys.draw(rng), 1)
    });
    scene.sorted()
}

/// One key of 1 000 a second at twice its limit, on 16 processes.
pub(crate) fn global(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(1_000, SECOND), 16);
    scene.stream(rng, 2_000.0, 0.0, seconds / 2.0, |rng| {
        (rng.u16(0..16), 0, 1)
    });
    scene.sorted()
}

/// 40 keys of 600 a minute. Each comes every ten seconds or so with 20 to 400 requests at once, to one of 8 processes.
pub(crate) fn bursts(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(600, MINUTE), 8);
    let mut starts = Scene::new(scene.quota, 8);
    starts.stream(rng, 40.0 / 10.0, 0.0, seconds, |rng| {
        (rng.u16(0..8), rng.u32(0..40), 20 * rng.u32(1..=20))
    });
    for start in starts.requests {
        let from = start.at as f64 / 1e6;
        let rate = f64::from(start.cost) * 5.0;
        scene.stream(rng, rate, from, from + 0.2, |_| {
            (start.process, start.key, 1)
        });
    }
    scene.sorted()
}

/// 20 000 keys of 100 a minute, 2 000 requests a second, on 8 processes: few come twice to one process.
pub(crate) fn cold(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(100, MINUTE), 8);
    scene.stream(rng, 2_000.0, 0.0, seconds, |rng| {
        (rng.u16(0..8), rng.u32(0..20_000), 1)
    });
    scene.sorted()
}

/// 60 tenants of 6 000 a minute on 8 processes. The first want four times their limit, the last a tenth of it.
pub(crate) fn tenants(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(6_000, MINUTE), 8);
    let keys = Zipf::new(60);
    scene.stream(rng, 1_900.0, 0.0, seconds, |rng| {
        (rng.u16(0..8), keys.draw(rng), 1)
    });
    scene.sorted()
}

/// 20 keys at three times 6 000 units a minute on 8 processes, in requests of 1 to 112 units, most of them small.
pub(crate) fn weighted(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(6_000, MINUTE), 8);
    // The mean cost is 10.6.
    scene.stream(rng, 20.0 * 300.0 / 10.6, 0.0, seconds, |rng| {
        let cost = match rng.u32(0..100) {
            0..60 => 1,
            60..90 => rng.u32(2..=20),
            _ => rng.u32(21..=112),
        };
        (rng.u16(0..8), rng.u32(0..20), cost)
    });
    scene.sorted()
}

/// 20 keys at 70 % of 6 000 a minute, each on one process at a time: every five seconds or so it moves to another one.
pub(crate) fn moving(rng: &mut fastrand::Rng, seconds: f64) -> Scene {
    let mut scene = Scene::new(Quota::gcra(6_000, MINUTE), 8);
    for key in 0..20 {
        let mut process = rng.u16(0..8);
        scene.stream(rng, 70.0, 0.0, seconds, |rng| {
            if rng.u32(0..350) == 0 {
                process = rng.u16(0..8);
            }
            (process, key, 1)
        });
    }
    scene.sorted()
}
