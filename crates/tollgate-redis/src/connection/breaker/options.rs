//! When the circuit breaker opens, and for how long.

use std::time::Duration;

/// When requests are kept from a server that fails, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct BreakerOptions {
    /// How many failures open it. Those within a [slice](Self::slice) of each other count as one, however many calls failed: a
    /// stall fails everything that was in flight. With little traffic they have to be in a row, without an answer in between.
    pub(crate) failures: u32,
    /// How far back the failure rate looks.
    pub(crate) window: Duration,
    /// From this number of calls within the window on, the failure rate decides, and no longer a row of failures.
    pub(crate) busy: u32,
    /// The failure rate: the share of calls, in percent, that have to fail within the window.
    pub(crate) percent: u32,
    /// How long no request is sent once it has opened: at least this, and up to half as long again at random, so that many
    /// processes do not come back at once. It doubles each time that it opens again soon, and halves with each second that
    /// requests are answered in between. Within a long outage it is a sixteenth of the outage, if that is longer.
    pub(crate) pause: Duration,
    pub(crate) longest_pause: Duration,
    /// How many probes in a row have to be answered before requests are let through.
    pub(crate) probes: u32,
    /// For how long only a part of the requests is let through after the probes.
    pub(crate) ramp: Duration,
}

/// The shares of requests, in percent, that are let through after the probes, one after the other.
pub(in crate::connection) const SHARES: [u8; 2] = [10, 50];

/// The parts of a window. Failures within one part of another count as one.
pub(in crate::connection) const SLICES: u32 = 8;

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 5,
            window: Duration::from_secs(1),
            busy: 20,
            percent: 50,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            probes: 2,
            ramp: Duration::from_millis(300),
        }
    }
}

impl BreakerOptions {
    /// The time within which failures count as one.
    pub(in crate::connection) fn slice(&self) -> Duration {
        (self.window / SLICES).max(Duration::from_millis(1))
    }
}
