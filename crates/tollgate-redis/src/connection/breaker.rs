//! The breaker of a node: while its server fails, requests fail at once, without I/O.
//!
//! A request reads one word of a [`Breaker`]. Only the node's supervisor writes it, after it has passed the outcome of calls and probes to
//! the [`Machine`], which takes the time as an argument.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use fastrand::Rng;
use tokio::{sync::Notify, time::Instant};
use tollgate_core::sync::{Mutex, lock};

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Every request goes to the server, whether it answers or not: enough of them have to fail before it opens.
    Closed,
    /// No request goes to the server.
    Open,
    /// No request goes to the server, and probes are answered.
    Probing,
    /// Probes were answered, and a share of the requests goes to the server.
    #[non_exhaustive]
    Ramping {
        /// The share.
        percent: u8,
    },
}

impl BreakerState {
    /// The share of requests that goes to the server, in percent.
    #[must_use]
    pub fn share(&self) -> u8 {
        match self {
            Self::Closed => 100,
            Self::Open | Self::Probing => 0,
            Self::Ramping { percent } => *percent,
        }
    }
}

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

/// The shares of requests, in percent, that are let through after the probes, one after the other.
const SHARES: [u8; 2] = [10, 50];

impl BreakerOptions {
    /// The time within which failures count as one.
    fn slice(&self) -> Duration {
        (self.window / SLICES).max(Duration::from_millis(1))
    }
}

/// Times are since any one origin. A time that goes back makes nothing sooner.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    options: BreakerOptions,
    phase: Phase,
    /// The calls since requests were last let through.
    recent: Recent,
    /// The moments with failures since the last answer.
    row: u32,
    /// The last pause that an opening began with.
    pause: Duration,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed {
        since: Duration,
    },
    Open {
        since: Duration,
        /// When it is probed next.
        until: Duration,
        /// The probes in a row that were answered.
        answered: u32,
    },
    Ramping {
        step: usize,
        until: Duration,
    },
}

/// A pause is at least this part of the time for which it has been open.
const PART_OF_OUTAGE: u32 = 16;

/// While shares are let through, failures at this many moments open it again.
const MOMENTS_OF_RAMP: u32 = 2;

impl Machine {
    pub(super) fn new(options: BreakerOptions, seed: u64) -> Self {
        Self {
            options,
            phase: Phase::Closed {
                since: Duration::ZERO,
            },
            recent: Recent::default(),
            row: 0,
            // Nothing to double yet.
            pause: Duration::ZERO,
            rng: Rng::with_seed(seed),
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { answered: 0, .. } => BreakerState::Open,
            Phase::Open { .. } => BreakerState::Probing,
            Phase::Ramping { step, .. } => BreakerState::Ramping {
                percent: SHARES[step],
            },
        }
    }

    /// When it is to be probed, or while shares are let through, [to go on](Self::tick).
    pub(super) fn due(&self) -> Option<Duration> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { until, .. } | Phase::Ramping { until, .. } => Some(until),
        }
    }

    /// Calls of requests. While it is open they are stragglers that were sent before, and say nothing new.
    ///
    /// Among results that became known at one time, the answers count as the earlier ones.
    pub(super) fn record(&mut self, answered: u32, failed: u32, now: Duration) {
        if let Phase::Open { .. } = self.phase {
            return;
        }
        let is_moment = (self.recent).add(answered, failed, now, self.options.slice());
        if answered > 0 {
            self.row = 0;
        }
        self.row = self.row.saturating_add(u32::from(is_moment));
        if failed == 0 {
            return;
        }
        let (options, recent) = (&self.options, self.recent.sum());
        let fails = recent.failed * 100 >= recent.calls * u64::from(options.percent);
        let is_rate = |moments| fails && recent.moments >= moments;
        let opens = match self.phase {
            Phase::Ramping { .. } => is_rate(MOMENTS_OF_RAMP.min(options.failures)),
            _ if recent.calls >= u64::from(options.busy) => is_rate(options.failures),
            _ => self.row >= options.failures,
        };
        if opens {
            self.open(now);
        }
    }

    pub(super) fn probed(&mut self, is_answered: bool, now: Duration) {
        let Phase::Open {
            until, answered, ..
        } = &mut self.phase
        else {
            return;
        };
        if !is_answered {
            return self.open(now);
        }
        (*until, *answered) = (now, *answered + 1);
        if *answered == self.options.probes {
            self.recent = Recent::default();
            self.row = 0;
            self.ramp(0, now);
        }
    }

    /// A connection was made. The pause need not be longer than the shortest then: how often one is tried is spread out already.
    pub(super) fn connected(&mut self, now: Duration) {
        if let Phase::Open { since, until, .. } = &mut self.phase {
            let earliest = since.saturating_add(self.options.pause);
            *until = now.max(earliest).min(*until);
        }
    }

    /// A connection that was lost or could not be made is one failure, however many calls were on it.
    pub(super) fn disconnected(&mut self, now: Duration) {
        match self.phase {
            Phase::Open { answered: 0, .. } => {}
            Phase::Open { .. } => self.open(now),
            _ => self.record(0, 1, now),
        }
    }

    /// Lets time pass.
    pub(super) fn tick(&mut self, now: Duration) {
        if let Phase::Ramping { step, until } = self.phase
            && now >= until
        {
            self.ramp(step + 1, now);
        }
    }

    /// Lets the share of this number through, or all.
    fn ramp(&mut self, step: usize, now: Duration) {
        let until = now.saturating_add(self.options.ramp / SHARES.len() as u32);
        self.phase = match step < SHARES.len() {
            true => Phase::Ramping { step, until },
            false => Phase::Closed { since: now },
        };
    }

    /// A part of the pause is chance, so that many processes do not come back at once.
    fn open(&mut self, now: Duration) {
        let options = &self.options;
        let (since, least) = match self.phase {
            Phase::Open { since, .. } => (since, now.saturating_sub(since) / PART_OF_OUTAGE),
            phase => {
                // Twice the last one, halved for each second without a failure.
                let well = match phase {
                    Phase::Closed { since } => now.saturating_sub(since).as_secs(),
                    _ => 0,
                };
                let pause = self.pause.saturating_mul(2) / (1 << well.min(31));
                self.pause = pause.min(options.longest_pause).max(options.pause);
                (now, Duration::ZERO)
            }
        };
        let pause = self.pause.max(least).min(options.longest_pause);
        self.phase = Phase::Open {
            since,
            until: now.saturating_add(pause.mul_f64(1.0 + 0.5 * self.rng.f64())),
            answered: 0,
        };
    }
}

#[cfg(test)]
mod model;

// What became of the calls of the last moments.

/// The parts of a window. Failures within one part of another count as one.
const SLICES: u32 = 8;

/// The whole slices of a window, and that which goes on.
const KEPT: usize = SLICES as usize + 1;

/// The calls of a window that moves with the time, in slices.
#[derive(Clone, Debug, Default)]
struct Recent {
    slices: [Slice; KEPT],
    /// The number of the slice that goes on.
    at: u64,
    /// When a failure was last counted as a moment.
    counted: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    calls: u64,
    failed: u64,
    /// Moments with failures: those within a slice of each other are one.
    moments: u32,
}

impl Recent {
    /// Adds calls at this time; a time that goes back counts as the last one. Says whether this is another moment with failures.
    fn add(&mut self, answered: u32, failed: u32, now: Duration, slice: Duration) -> bool {
        // A slice is a millisecond at least.
        let micros = |time: Duration| time.as_micros() as u64;
        let number = micros(now) / micros(slice).max(1);
        let passed = number.saturating_sub(self.at).min(KEPT as u64);
        self.at = self.at.max(number);
        let place = |back: u64| ((self.at - back) % KEPT as u64) as usize;
        for back in 0..passed {
            self.slices[place(back)] = Slice::default();
        }
        let is_moment = failed > 0 && self.counted.is_none_or(|last| now >= last + slice);
        if is_moment {
            self.counted = Some(now);
        }
        let slice = &mut self.slices[place(0)];
        slice.calls += u64::from(answered) + u64::from(failed);
        slice.failed += u64::from(failed);
        slice.moments += u32::from(is_moment);
        is_moment
    }

    /// The calls of the whole window.
    fn sum(&self) -> Slice {
        self.slices.iter().fold(Slice::default(), |sum, it| Slice {
            calls: sum.calls + it.calls,
            failed: sum.failed + it.failed,
            moments: sum.moments + it.moments,
        })
    }
}

// A machine with a clock, where requests read how many of them go to the server.

/// A [`Machine`] with a clock, and the share of requests that it lets through.
pub(in crate::connection) struct Breaker {
    /// Bits 0 to 7: the share, in percent. Bits 8 and up: requests that were counted while it was neither 0 nor 100.
    word: AtomicU64,
    machine: Mutex<Machine>,
    origin: Instant,
    changed: Notify,
    /// Called with each new state.
    report: Box<dyn Fn(BreakerState) + Send + Sync>,
}

const SHARE: u64 = 0xff;
const ONE_REQUEST: u64 = 1 << 8;

impl Breaker {
    pub(in crate::connection) fn new(
        options: BreakerOptions,
        seed: u64,
        report: impl Fn(BreakerState) + Send + Sync + 'static,
    ) -> Self {
        Self {
            word: AtomicU64::new(100),
            machine: Mutex::new(Machine::new(options, seed)),
            origin: Instant::now(),
            changed: Notify::new(),
            report: Box::new(report),
        }
    }

    /// Whether a request may go to the server. One relaxed load unless a share of the requests is let through.
    pub(in crate::connection) fn admits(&self) -> bool {
        // Nothing else is read on the strength of the word, so that it needs no order.
        match self.word.load(Ordering::Relaxed) & SHARE {
            100 => true,
            0 => false,
            share => {
                let request = self.word.fetch_add(ONE_REQUEST, Ordering::Relaxed) / ONE_REQUEST;
                // Spread evenly: every tenth at ten percent, every second at fifty.
                (request * share) % 100 < share
            }
        }
    }

    pub(in crate::connection) fn state(&self) -> BreakerState {
        lock(&self.machine).state()
    }

    /// Calls were answered, or failed in a way that weighs.
    pub(in crate::connection) fn record(&self, answered: u32, failed: u32) {
        if answered + failed > 0 {
            self.tell(|machine, now| machine.record(answered, failed, now));
        }
    }

    /// When the breaker wants to know more. If that is over, by a probe.
    pub(in crate::connection) fn due(&self) -> Option<Instant> {
        self.tell(Machine::tick);
        lock(&self.machine).due().map(|due| self.origin + due)
    }

    /// Waits until another time is due.
    pub(in crate::connection) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Something has happened.
    pub(in crate::connection) fn tell(&self, what: impl FnOnce(&mut Machine, Duration)) {
        let now = self.origin.elapsed();
        let mut machine = lock(&self.machine);
        let from = machine.state();
        what(&mut machine, now);
        let to = machine.state();
        if from != to {
            self.word.store(u64::from(to.share()), Ordering::Relaxed);
            drop(machine);
            self.changed.notify_one();
            (self.report)(to);
        }
    }
}

tollgate_core::debug_fields!(Breaker, it => state: it.state());

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_share_is_spread_evenly_over_the_requests() {
        let breaker = Breaker::new(BreakerOptions::default(), 1, |_| {});
        for percent in [10, 50] {
            breaker.word.store(percent, Ordering::Relaxed);
            let admitted = (0..1_000).filter(|_| breaker.admits()).count();
            assert_eq!(admitted as u64, percent * 10);
        }
    }
}
