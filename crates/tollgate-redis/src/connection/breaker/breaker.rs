//! The state of a machine, where requests read it.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::connection::{
    breaker::{
        machine::{Machine, Plan},
        options::BreakerOptions,
    },
    breaker_state::BreakerState,
    event::{EventSink, NodeEvent},
};

/// A [`Machine`] with a clock, and its state where requests can read it.
pub(in crate::connection) struct Breaker {
    /// Bits 0 to 7: the share of requests that are let through, in percent. Bit 8: probing. Bits 16 and up: requests that
    /// were counted while the share was neither 0 nor 100.
    word: AtomicU64,
    machine: Mutex<Machine>,
    origin: Instant,
    changed: Notify,
    events: EventSink,
}

const SHARE: u64 = 0xff;
const PROBING: u64 = 1 << 8;
const ONE_REQUEST: u64 = 1 << 16;

impl Breaker {
    pub(in crate::connection) fn new(
        options: BreakerOptions,
        seed: u64,
        events: EventSink,
    ) -> Self {
        Self {
            word: AtomicU64::new(100),
            machine: Mutex::new(Machine::new(options, seed)),
            origin: Instant::now(),
            changed: Notify::new(),
            events,
        }
    }

    /// Whether a request may go to the server. One relaxed load unless a share of the requests is let through.
    #[inline]
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
        let word = self.word.load(Ordering::Relaxed);
        match (word & SHARE, word & PROBING) {
            (100, _) => BreakerState::Closed,
            (0, 0) => BreakerState::Open,
            (0, _) => BreakerState::Probing,
            // The share is eight bits.
            (share, _) => BreakerState::Ramping {
                percent: share as u8,
            },
        }
    }

    /// Calls were answered, or failed in a way that weighs.
    pub(in crate::connection) fn record(&self, answered: u32, failed: u32) {
        if answered + failed > 0 {
            self.tell(|machine, now| machine.record(answered, failed, now));
        }
    }

    pub(in crate::connection) fn probed(&self, answered: bool) {
        self.tell(|machine, now| machine.probed(answered, now));
    }

    /// A connection was made: a breaker that is open wants to know at once.
    pub(in crate::connection) fn connected(&self) {
        self.tell(Machine::connected);
    }

    /// A connection was lost, or could not be made.
    pub(in crate::connection) fn disconnected(&self) {
        self.tell(Machine::disconnected);
    }

    /// What is due: now, or when it says.
    pub(in crate::connection) fn plan(&self) -> Plan<Instant> {
        self.tell(Machine::tick);
        match self.lock().plan() {
            Plan::Nothing => Plan::Nothing,
            Plan::Probe(at) => Plan::Probe(self.origin + at),
            Plan::Tick(at) => Plan::Tick(self.origin + at),
        }
    }

    /// Waits until the plan may have changed.
    pub(in crate::connection) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn tell(&self, what: impl FnOnce(&mut Machine, Duration)) {
        let now = self.origin.elapsed();
        let (from, to) = {
            let mut machine = self.lock();
            let from = machine.state();
            what(&mut machine, now);
            let to = machine.state();
            if from != to {
                self.word.store(word(to), Ordering::Relaxed);
            }
            (from, to)
        };
        if from != to {
            self.changed.notify_one();
            (self.events)(&NodeEvent::Breaker { from, to });
        }
    }

    /// The machine is whole at each of its steps, so that a poisoned lock says nothing.
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn word(state: BreakerState) -> u64 {
    match state {
        BreakerState::Closed => 100,
        BreakerState::Open => 0,
        BreakerState::Probing => PROBING,
        BreakerState::Ramping { percent } => u64::from(percent),
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Breaker").field(&self.state()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::advance;

    use super::*;

    #[tokio::test]
    async fn a_share_is_spread_evenly_over_the_requests() {
        let breaker = Breaker::new(BreakerOptions::default(), 1, Arc::new(|_| {}));
        for percent in [10, 50] {
            breaker
                .word
                .store(word(BreakerState::Ramping { percent }), Ordering::Relaxed);
            let admitted = (0..1_000).filter(|_| breaker.admits()).count();
            assert_eq!(admitted, usize::from(percent) * 10);
            assert_eq!(breaker.state(), BreakerState::Ramping { percent });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_requests_read_is_the_state_of_the_machine() {
        let breaker = Breaker::new(BreakerOptions::default(), 1, Arc::new(|_| {}));
        assert!(breaker.admits());
        // One moment, and so one failure.
        breaker.record(0, 5);
        assert_eq!(breaker.state(), BreakerState::Closed);
        for _ in 0..4 {
            advance(BreakerOptions::default().slice()).await;
            breaker.record(0, 1);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(!breaker.admits());
        breaker.connected();
        breaker.probed(true);
        assert_eq!(breaker.state(), BreakerState::Probing);
        assert!(!breaker.admits());
        breaker.probed(false);
        assert_eq!(breaker.state(), BreakerState::Open);
    }
}
