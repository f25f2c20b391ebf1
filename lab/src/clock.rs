//! The clock of a virtual process.

use tollgate_core::Tick;

/// A clock that starts anywhere and runs a little fast or slow. No two clocks are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessClock {
    offset: Tick,
    /// In millionths: a common quartz is within a hundred.
    drift: i64,
}

impl ProcessClock {
    pub(crate) fn random(rng: &mut fastrand::Rng) -> Self {
        Self {
            offset: rng.u64(1_000_000..1_000_000_000_000),
            drift: rng.i64(-200..=200),
        }
    }

    /// What it shows at a time of the world.
    pub(crate) fn shows(&self, at: Tick) -> Tick {
        let gained = at as i64 / 1_000 * self.drift / 1_000;
        (self.offset + at).saturating_add_signed(gained)
    }
}
