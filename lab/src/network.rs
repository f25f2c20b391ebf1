//! The virtual network between the processes and the store.

use tollgate_core::Tick;

/// When a query over a short way is given up, in µs.
const DEADLINE: Tick = 50_000;

/// Ways of half a round trip with a tail: one in a hundred is several times as long, one in a thousand some twenty times.
/// Messages overtake each other.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    round_trip: Tick,
    far: Option<Far>,
}

/// Another region than that of the store.
#[derive(Clone, Copy, Debug)]
struct Far {
    /// Its first process; the others follow.
    from: u16,
    round_trip: Tick,
    /// Between these two times nothing gets through.
    cut: (Tick, Tick),
}

impl Network {
    /// A network with this round trip in µs at the median, or nearly.
    #[must_use]
    pub const fn new(round_trip: Tick) -> Self {
        let far = None;
        Self { round_trip, far }
    }

    /// With the processes from that one on in another region, with that round trip, which is cut off between two times, in µs.
    /// Queries from there have a deadline of three round trips.
    #[must_use]
    pub const fn with_region(self, from: u16, round_trip: Tick, cut: (Tick, Tick)) -> Self {
        let far = Some(Far {
            from,
            round_trip,
            cut,
        });
        Self { far, ..self }
    }

    fn far(&self, process: u16) -> Option<Far> {
        self.far.filter(|far| process >= far.from)
    }

    /// How long one message takes.
    pub(crate) fn way(&self, process: u16, rng: &mut fastrand::Rng) -> Tick {
        // Over a long way, most of the time is that of light.
        let (round_trip, times) = match (self.far(process), rng.u32(0..1_000)) {
            (Some(far), 0..10) => (far.round_trip, 1.0 + exponential(rng, 0.5)),
            (Some(far), _) => (far.round_trip, 0.98 + exponential(rng, 0.03)),
            (None, 0) => (self.round_trip, 10.0 + exponential(rng, 20.0)),
            (None, 1..10) => (self.round_trip, 2.0 + exponential(rng, 3.0)),
            (None, _) => (self.round_trip, 0.85 + exponential(rng, 0.2)),
        };
        ((round_trip as f64 / 2.0 * times) as Tick).max(1)
    }

    /// Whether a message of a process is swallowed.
    pub(crate) fn is_cut(&self, process: u16, now: Tick) -> bool {
        self.far(process)
            .is_some_and(|far| (far.cut.0..far.cut.1).contains(&now))
    }

    /// When a query is given up.
    pub(crate) fn deadline(&self, process: u16) -> Tick {
        self.far(process).map_or(DEADLINE, |far| 3 * far.round_trip)
    }
}

/// A time between two events of a Poisson stream.
pub(crate) fn exponential(rng: &mut fastrand::Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}
