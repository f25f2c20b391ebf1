//! The virtual network between the processes and the store.

use tollgate_core::Tick;

/// Ways of half a round trip with a tail: one in a hundred is several times as long, one in a thousand some twenty times.
/// Messages overtake each other.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    round_trip: Tick,
}

impl Network {
    /// A network with this round trip in µs at the median, or nearly.
    #[must_use]
    pub const fn new(round_trip: Tick) -> Self {
        Self { round_trip }
    }

    /// How long one message takes.
    pub(crate) fn way(&self, rng: &mut fastrand::Rng) -> Tick {
        let times = match rng.u32(0..1_000) {
            0 => 10.0 + exponential(rng, 20.0),
            1..10 => 2.0 + exponential(rng, 3.0),
            _ => 0.85 + exponential(rng, 0.2),
        };
        ((self.round_trip as f64 / 2.0 * times) as Tick).max(1)
    }
}

/// A time between two events of a Poisson stream.
pub(crate) fn exponential(rng: &mut fastrand::Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}
