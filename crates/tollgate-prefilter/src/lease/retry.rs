//! When a request that was denied fits, where units are on lease.

use tollgate_core::{Tick, algorithm::Retry};

use crate::lease::bucket_grantor::{BucketGrantor, BucketState};

impl BucketGrantor {
    /// When `cost` units fit that do not fit `now`, to the tick, if nothing else is taken, granted or returned.
    ///
    /// What is on lease is held back until its generation is over, and only then does time bring it back: no cost fits before
    /// that does not fit as well.
    pub(super) fn retry(&self, state: &BucketState, now: Tick, cost: u64) -> Retry {
        let generation = state.leases.generation;
        let starts = [1, 2].map(|next| self.starts(generation.saturating_add(next)));
        let mut retry = Retry::Now;
        for at in [now].into_iter().chain(starts) {
            let mut then = *state;
            self.settle(&mut then, at);
            let answer = self.overdraft.assess(&then.arrival, at, cost);
            let wait = match answer.retry {
                _ if answer.fits => 0,
                Retry::Now => 0,
                Retry::After(wait) => u64::try_from(wait.as_micros()).unwrap_or(u64::MAX),
                never => return never,
            };
            // No sooner, as long as time alone passes. Later if what is on lease has kept it from that.
            let fits_at = at.saturating_add(wait);
            retry = Retry::after_micros(fits_at.saturating_sub(now));
            self.settle(&mut then, fits_at);
            if self.overdraft.assess(&then.arrival, fits_at, cost).fits {
                break;
            }
        }
        retry
    }
}
