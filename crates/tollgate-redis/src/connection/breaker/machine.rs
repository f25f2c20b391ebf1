//! When a breaker opens and closes: a state machine that is told the time.

use std::time::Duration;

use fastrand::Rng;

/// The thresholds of a breaker.
#[derive(Clone, Debug)]
pub(crate) struct BreakerSettings {
    /// This many failures without an answer in between open it.
    pub(crate) consecutive: u32,
    /// In a window of this length..
    pub(crate) window: Duration,
    /// ..with at least this many calls..
    pub(crate) calls: u32,
    /// ..this many failures of a hundred calls open it.
    pub(crate) percent: u32,
    /// How long it stays open the first time. Each failure after that doubles it.
    pub(crate) first_pause: Duration,
    /// How long it stays open at most.
    pub(crate) longest_pause: Duration,
    /// This many probes in a row have to be answered.
    pub(crate) probes: u32,
    /// The shares of requests, in percent, that are let through after the probes, one after the other.
    pub(crate) shares: [u8; 2],
    /// How long each share is kept.
    pub(crate) step: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            consecutive: 5,
            window: Duration::from_secs(2),
            calls: 20,
            percent: 50,
            first_pause: Duration::from_millis(250),
            longest_pause: Duration::from_secs(10),
            probes: 3,
            shares: [10, 50],
            step: Duration::from_millis(500),
        }
    }
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Every request goes to the server.
    Closed,
    /// No request goes to the server.
    Open,
    /// No request goes to the server, and probes are answered.
    Probing,
    /// Probes were answered, and a share of the requests goes to the server.
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
    settings: BreakerSettings,
    phase: Phase,
    /// How often it opened since it was last closed.
    opened: u32,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed(Counts),
    Open { until: Duration },
    Probing { answered: u32 },
    Ramping { step: usize, until: Duration },
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    since: Duration,
    calls: u32,
    failed: u32,
    consecutive: u32,
}

impl Machine {
    pub(in crate::connection) fn new(settings: BreakerSettings, seed: u64) -> Self {
        Self {
            settings,
            phase: Phase::Closed(Counts::default()),
            opened: 0,
            rng: Rng::with_seed(seed),
        }
    }

    pub(in crate::connection) fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed(_) => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::Probing { .. } => BreakerState::Probing,
            Phase::Ramping { step, .. } => BreakerState::Ramping {
                percent: self.settings.shares[step],
            },
        }
    }

    pub(in crate::connection) fn plan(&self) -> Plan<Duration> {
        match self.phase {
            Phase::Closed(_) => Plan::Nothing,
            Phase::Open { until } => Plan::Probe(until),
            Phase::Probing { .. } => Plan::Probe(Duration::ZERO),
            Phase::Ramping { until, .. } => Plan::Tick(until),
        }
    }

    /// Calls of requests. While it is open they are stragglers that were sent before, and say nothing new.
    ///
    /// Of what became known at one time the answers count as the earlier ones.
    pub(in crate::connection) fn record(&mut self, answered: u32, failed: u32, now: Duration) {
        match &mut self.phase {
            Phase::Closed(counts) => {
                if now >= counts.since.saturating_add(self.settings.window) {
                    *counts = Counts {
                        since: now,
                        consecutive: counts.consecutive,
                        ..Counts::default()
                    };
                }
                counts.calls = counts.calls.saturating_add(answered).saturating_add(failed);
                counts.failed = counts.failed.saturating_add(failed);
                let before = if answered > 0 { 0 } else { counts.consecutive };
                counts.consecutive = before.saturating_add(failed);
                let counts = *counts;
                let often = counts.calls >= self.settings.calls
                    && u64::from(counts.failed) * 100
                        >= u64::from(counts.calls) * u64::from(self.settings.percent);
                if counts.consecutive >= self.settings.consecutive || (failed > 0 && often) {
                    self.open(now);
                }
            }
            Phase::Ramping { .. } if failed > 0 => self.open(now),
            Phase::Open { .. } | Phase::Probing { .. } | Phase::Ramping { .. } => {}
        }
    }

    pub(in crate::connection) fn probed(&mut self, answered: bool, now: Duration) {
        let before = match self.phase {
            Phase::Open { .. } => 0,
            Phase::Probing { answered } => answered,
            Phase::Closed(_) | Phase::Ramping { .. } => return,
        };
        if !answered {
            return self.open(now);
        }
        self.phase = if before + 1 >= self.settings.probes {
            Phase::Ramping {
                step: 0,
                until: now.saturating_add(self.settings.step),
            }
        } else {
            Phase::Probing {
                answered: before + 1,
            }
        };
    }

    /// The pause is over once there is a connection: how often one is tried is spread out already.
    pub(in crate::connection) fn connected(&mut self, now: Duration) {
        if let Phase::Open { until } = &mut self.phase {
            *until = now.min(*until);
        }
    }

    /// A connection that was lost or could not be made is one failure, however many calls were on it.
    pub(in crate::connection) fn disconnected(&mut self, now: Duration) {
        match self.phase {
            Phase::Closed(_) | Phase::Ramping { .. } => self.record(0, 1, now),
            Phase::Probing { .. } => self.open(now),
            Phase::Open { .. } => {}
        }
    }

    /// Lets time pass.
    pub(in crate::connection) fn tick(&mut self, now: Duration) {
        if let Phase::Ramping { step, until } = self.phase
            && now >= until
        {
            if step + 1 < self.settings.shares.len() {
                self.phase = Phase::Ramping {
                    step: step + 1,
                    until: now.saturating_add(self.settings.step),
                };
            } else {
                self.opened = 0;
                self.phase = Phase::Closed(Counts {
                    since: now,
                    ..Counts::default()
                });
            }
        }
    }

    /// Half of the pause is certain and half is chance, so that many processes do not come back at once.
    fn open(&mut self, now: Duration) {
        let pause = self
            .settings
            .first_pause
            .saturating_mul(1 << self.opened.min(20))
            .min(self.settings.longest_pause);
        self.opened = self.opened.saturating_add(1);
        self.phase = Phase::Open {
            until: now.saturating_add(pause.mul_f64(0.5 + 0.5 * self.rng.f64())),
        };
    }
}

#[cfg(test)]
#[path = "model.rs"]
mod model;
