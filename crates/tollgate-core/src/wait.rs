//! Acquires that wait in a queue until their units are there.

use std::time::Duration;

use crate::{
    check::Check, decision::Decision, key::Key, limiter::Limiter, observe::Timer,
    wait_queue::WaitError,
};

impl Limiter {
    /// Takes the units of one check of the rule with this name as soon as they are there, at the rule's fixed cost:
    /// [`acquire_within`](Self::acquire_within) in short. The decision may be a denial: when the unit does not come in time, and at
    /// once where a rule denies while its store fails. A loop that only repeats it would spin then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Clock, Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rules = [Rule::new("provider", Quota::per_second(10).burst(1))];
    /// let store = MemoryStore::builder().clock(Clock::tokio()).build();
    /// let limiter = Limiter::new(store, rules)?;
    /// for _ in 0..3 {
    ///     let decision = limiter.wait("provider", &Key::shared(), Duration::from_secs(1)).await?;
    ///     assert!(decision.is_allowed());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// There is no rule of this name, or those of [`acquire_within`](Self::acquire_within). Nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire_within`](Self::acquire_within).
    ///
    /// # Panics
    ///
    /// As [`acquire_within`](Self::acquire_within).
    pub async fn wait(
        &self,
        rule: &str,
        key: &Key,
        at_most: Duration,
    ) -> Result<Decision, WaitError> {
        let check = self.check(rule, key)?;
        self.acquire_within(&[check], at_most).await
    }

    /// Takes the units as soon as they are there, and waits for them for at most `patience`, in the order of arrival
    /// among those that wait for the same rules and keys. In memory, so it does when a ticket or a reset brings units back;
    /// on a remote store it takes them when they have refilled.
    ///
    /// The decision is a denial if waiting would take longer than `patience`, which is known in front of the queue at
    /// once, or if the cost can never fit. When [slots](crate::Quota::concurrent) come back is not known: it waits for one until
    /// `patience` is over. Where rules [wait](crate::Rule::wait), those that do not deny at once.
    ///
    /// # Errors
    ///
    /// It would have to wait, and the queue of a rule is [full](crate::Rule::max_waiting), or too many requests wait
    /// on this limiter: at most 16 384 wait in all, and at most 8 192 of them behind others, or more
    /// where the rule says so. Or `patience` ran out before the
    /// front of the queue was reached. Nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the queue; where the store is remote, units may have been taken.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timer enabled, when there is something to wait for.
    pub async fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
    ) -> Result<Decision, WaitError> {
        let started = Timer::start();
        let decision = self.attempt(checks).within(patience).run().await?;
        self.report(checks, &decision, started, "");
        Ok(decision)
    }
}
