//! A machine with a clock, where requests read how many of them go to the server.

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::{
    connection::breaker::machine::{BreakerOptions, BreakerState, Machine},
    lock::lock,
};

/// A [`Machine`] with a clock, and the share of requests that it lets through.
pub(in crate::connection) struct Breaker {
    /// Bits 0 to 7: the share, in percent. Bits 8 and up: requests that were counted while it was neither 0 nor 100.
    word: AtomicU64,
    machine: Mutex<Machine>,
    origin: Instant,
    changed: Notify,
    /// Is told of each new state.
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

    /// When the breaker wants to know more. If that is over, by a probe.
    pub(in crate::connection) fn due(&self) -> Option<Instant> {
        self.tell(Machine::tick);
        lock(&self.machine).due().map(|due| self.origin + due)
    }

    /// Waits until another time is due.
    pub(in crate::connection) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn tell(&self, what: impl FnOnce(&mut Machine, Duration)) {
        let now = self.origin.elapsed();
        let (from, to) = {
            let mut machine = lock(&self.machine);
            let from = machine.state();
            what(&mut machine, now);
            let to = machine.state();
            if from != to {
                self.word.store(u64::from(to.share()), Ordering::Relaxed);
            }
            (from, to)
        };
        if from != to {
            self.changed.notify_one();
            (self.report)(to);
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Breaker").field(&self.state()).finish()
    }
}

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
