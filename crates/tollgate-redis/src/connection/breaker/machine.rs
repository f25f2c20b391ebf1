//! When a breaker opens and closes: a state machine that takes the time as an argument.

use std::time::Duration;

use fastrand::Rng;

use crate::connection::{
    breaker::{
        options::{BreakerOptions, SHARES},
        recent::Recent,
    },
    breaker_state::BreakerState,
};

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Plan<T> {
    /// Nothing, until something happens.
    Nothing,
    /// A probe.
    Probe(T),
    /// [`Machine::tick`].
    Tick(T),
}

/// Times are since any one origin. A time that goes back makes nothing sooner.
#[derive(Clone, Debug)]
pub(in crate::connection) struct Machine {
    options: BreakerOptions,
    phase: Phase,
    /// The calls since requests were last let through.
    recent: Recent,
    row: Row,
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
        until: Duration,
    },
    /// It has been open since then.
    Probing {
        since: Duration,
        answered: u32,
    },
    Ramping {
        step: usize,
        until: Duration,
    },
}

/// Failures without an answer in between; those within a slice of each other are one.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    failures: u32,
    counted: Option<Duration>,
}

/// A pause is doubled once less after this time without a failure.
const DECAY: Duration = Duration::from_secs(1);

/// A pause is at least this part of the time for which it has been open.
const PART_OF_OUTAGE: u32 = 16;

/// While shares are let through, failures at this many moments open it again.
const MOMENTS_OF_RAMP: u32 = 2;

impl Machine {
    pub(in crate::connection) fn new(options: BreakerOptions, seed: u64) -> Self {
        Self {
            options,
            phase: Phase::Closed {
                since: Duration::ZERO,
            },
            recent: Recent::default(),
            row: Row::default(),
            // Nothing to double yet.
            pause: Duration::ZERO,
            rng: Rng::with_seed(seed),
        }
    }

    pub(in crate::connection) fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::Probing { .. } => BreakerState::Probing,
            Phase::Ramping { step, .. } => BreakerState::Ramping {
                percent: SHARES[step],
            },
        }
    }

    pub(in crate::connection) fn plan(&self) -> Plan<Duration> {
        match self.phase {
            Phase::Closed { .. } => Plan::Nothing,
            Phase::Open { until, .. } => Plan::Probe(until),
            Phase::Probing { .. } => Plan::Probe(Duration::ZERO),
            Phase::Ramping { until, .. } => Plan::Tick(until),
        }
    }

    /// Calls of requests. While it is open they are stragglers that were sent before, and say nothing new.
    ///
    /// Among results that became known at one time, the answers count as the earlier ones.
    pub(in crate::connection) fn record(&mut self, answered: u32, failed: u32, now: Duration) {
        if matches!(self.phase, Phase::Open { .. } | Phase::Probing { .. }) {
            return;
        }
        let slice = self.options.slice();
        self.recent.add(answered, failed, now, slice);
        if answered > 0 {
            self.row = Row::default();
        }
        if failed == 0 {
            return;
        }
        if self.row.counted.is_none_or(|last| now >= last + slice) {
            self.row.failures = self.row.failures.saturating_add(1);
            self.row.counted = Some(now);
        }
        let (options, recent) = (&self.options, &self.recent);
        let is_rate = |moments| recent.moments() >= moments && recent.fails(options.percent);
        let opens = match self.phase {
            Phase::Ramping { .. } => is_rate(MOMENTS_OF_RAMP.min(options.failures)),
            _ if recent.calls() >= options.busy => is_rate(options.failures),
            _ => self.row.failures >= options.failures,
        };
        if opens {
            self.open(now);
        }
    }

    pub(in crate::connection) fn probed(&mut self, answered: bool, now: Duration) {
        let (since, before) = match self.phase {
            Phase::Open { since, .. } => (since, 0),
            Phase::Probing { since, answered } => (since, answered),
            Phase::Closed { .. } | Phase::Ramping { .. } => return,
        };
        if !answered {
            return self.open(now);
        }
        if before + 1 < self.options.probes {
            self.phase = Phase::Probing {
                since,
                answered: before + 1,
            };
            return;
        }
        self.recent = Recent::default();
        self.row = Row::default();
        self.phase = Phase::Ramping {
            step: 0,
            until: now.saturating_add(self.step()),
        };
    }

    /// The pause need not be longer than the shortest once there is a connection: how often one is tried is spread out already.
    pub(in crate::connection) fn connected(&mut self, now: Duration) {
        if let Phase::Open { since, until } = &mut self.phase {
            let earliest = since.saturating_add(self.options.pause);
            *until = now.max(earliest).min(*until);
        }
    }

    /// A connection that was lost or could not be made is one failure, however many calls were on it.
    pub(in crate::connection) fn disconnected(&mut self, now: Duration) {
        match self.phase {
            Phase::Closed { .. } | Phase::Ramping { .. } => self.record(0, 1, now),
            Phase::Probing { .. } => self.open(now),
            Phase::Open { .. } => {}
        }
    }

    /// Lets time pass.
    pub(in crate::connection) fn tick(&mut self, now: Duration) {
        if let Phase::Ramping { step, until } = self.phase
            && now >= until
        {
            self.phase = if step + 1 < SHARES.len() {
                Phase::Ramping {
                    step: step + 1,
                    until: now.saturating_add(self.step()),
                }
            } else {
                Phase::Closed { since: now }
            };
        }
    }

    /// A part of the pause is chance, so that many processes do not come back at once.
    fn open(&mut self, now: Duration) {
        let (since, pause) = match self.phase {
            Phase::Open { since, .. } | Phase::Probing { since, .. } => {
                let part = now.saturating_sub(since) / PART_OF_OUTAGE;
                (since, self.pause.max(part))
            }
            Phase::Closed { since } => {
                let well = now.saturating_sub(since).as_secs() / DECAY.as_secs();
                let halved = u32::try_from(well)
                    .ok()
                    .and_then(|well| 1_u32.checked_shl(well));
                (now, self.begin_pause(halved.unwrap_or(u32::MAX)))
            }
            Phase::Ramping { .. } => (now, self.begin_pause(1)),
        };
        let pause = pause.min(self.options.longest_pause);
        self.phase = Phase::Open {
            since,
            until: now.saturating_add(pause.mul_f64(1.0 + 0.5 * self.rng.f64())),
        };
    }

    /// The pause of an opening: twice the last one, divided by `decay`.
    fn begin_pause(&mut self, decay: u32) -> Duration {
        let options = &self.options;
        self.pause = (self.pause.saturating_mul(2) / decay)
            .min(options.longest_pause)
            .max(options.pause);
        self.pause
    }

    /// How long each share is let through.
    fn step(&self) -> Duration {
        self.options.ramp / SHARES.len() as u32
    }
}

#[cfg(test)]
mod model;
