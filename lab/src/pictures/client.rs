//! One client of a limit in memory.

use tollgate_core::{
    Check, Limiter, ManualClock, MemoryStore, Quota, Rule, Tick, store::Fingerprint,
};

/// When all pictures begin: at the turn of a minute.
pub(super) const START: Tick = 1_700_000_040_000_000;

/// A client with a quota of its own. It is the store in memory that decides, by a clock that the picture sets.
pub(super) struct Client {
    clock: ManualClock,
    limiter: Limiter,
}

impl Client {
    pub(super) fn new(quota: Quota) -> Self {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let limiter = Limiter::new(store, [Rule::new("picture", quota)]);
        Self {
            clock,
            limiter: limiter.expect("a picture's quota is valid"),
        }
    }

    /// Whether a request of one unit passes, `at` µs after the start.
    pub(super) fn is_admitted(&self, at: Tick) -> bool {
        self.clock.set(START + at);
        let check = Check::new(0, Fingerprint::from_bits(1), 1);
        let decision = self.limiter.acquire(&[check]).ready();
        decision.expect("memory answers at once").is_allowed()
    }

    /// The requests that pass, of those that come at these times in µs after the start.
    pub(super) fn admitted(&self, arrivals: &[Tick]) -> Vec<Tick> {
        let admitted = arrivals.iter().copied();
        admitted.filter(|at| self.is_admitted(*at)).collect()
    }
}

/// The most of these times within any span of this length in µs, its end not included. The times are in order.
pub(super) fn most_within(times: &[Tick], span: Tick) -> usize {
    let of = |first: usize| {
        let until = times[first] + span;
        times[first..].partition_point(|at| *at < until)
    };
    (0..times.len()).map(of).max().unwrap_or(0)
}
