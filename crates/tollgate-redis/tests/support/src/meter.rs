//! What became of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Decision, Rule};

use crate::rules::{By, RULES, decided};

/// Counts every request of an instance, by rule.
#[derive(Debug, Default)]
pub(crate) struct Meter([Counts; RULES]);

#[derive(Debug, Default)]
pub(crate) struct Counts {
    admitted: AtomicU64,
    denied: AtomicU64,
    alone_admitted: AtomicU64,
    alone: AtomicU64,
}

impl Meter {
    pub(crate) fn count(&self, place: usize, rule: &Rule, decision: &Decision) {
        let counts = &self.0[place];
        let add = |count: &AtomicU64| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        match (decided(rule, decision), decision.is_allowed()) {
            (By::Redis, true) => add(&counts.admitted),
            (By::Redis, false) => add(&counts.denied),
            (By::Alone, admitted) => {
                add(&counts.alone);
                if admitted {
                    add(&counts.alone_admitted);
                }
            }
        }
    }

    pub(crate) fn rules(&self) -> &[Counts; RULES] {
        &self.0
    }

    /// Requests that Redis did not decide.
    pub(crate) fn alone(&self) -> u64 {
        self.0.iter().map(Counts::alone).sum()
    }

    /// All requests.
    pub(crate) fn requests(&self) -> u64 {
        self.alone() + self.0.iter().map(Counts::answered).sum::<u64>()
    }
}

impl Counts {
    /// Admitted by Redis.
    pub(crate) fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::SeqCst)
    }

    /// Denied by Redis.
    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::SeqCst)
    }

    /// Decided by Redis.
    pub(crate) fn answered(&self) -> u64 {
        self.admitted() + self.denied()
    }

    /// Decided without Redis.
    pub(crate) fn alone(&self) -> u64 {
        self.alone.load(Ordering::SeqCst)
    }

    /// Admitted without Redis.
    pub(crate) fn alone_admitted(&self) -> u64 {
        self.alone_admitted.load(Ordering::SeqCst)
    }
}
