//! For authors of layers, which report, wait and replace rules by themselves. A service has no use for it: take a
//! [`Limiter`].

use std::{num::NonZeroU32, ops::Deref, time::Duration};

use crate::{
    check::Check,
    checks::Checks,
    decision::Decision,
    error::RuleError,
    limiter::Limiter,
    observe::{Observer, Timer},
    rule_set::RuleSet,
    step::{Pending, Step},
    store::rule_store::Store,
    ticket::Ticket,
    wait_queue::WaitError,
};
pub use crate::{replacement::Replacement, wait_queue::WaitPlace};

/// A [`Limiter`] with the calls of layers.
///
/// ```
/// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule, layer::LayerLimiter, observe::Timer};
///
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
/// let limiter = LayerLimiter::from(limiter);
/// let timer = Timer::start();
/// let checks = [limiter.check("api", &Key::shared())?];
/// let decision = limiter.acquire_unreported(&checks).ready().expect("memory answers at once");
/// // With what the layer knows of the request.
/// limiter.report(&checks, &decision, timer, "/users/{id}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerLimiter(Limiter);

impl From<Limiter> for LayerLimiter {
    fn from(limiter: Limiter) -> Self {
        Self(limiter)
    }
}

impl From<LayerLimiter> for Limiter {
    fn from(limiter: LayerLimiter) -> Self {
        limiter.0
    }
}

impl Deref for LayerLimiter {
    type Target = Limiter;

    #[inline]
    fn deref(&self) -> &Limiter {
        &self.0
    }
}

impl LayerLimiter {
    /// Ties a rule set to a store, [in the place](Limiter::replacing) of those of other limiters, with the least number of
    /// [instances](Limiter::with_instances).
    ///
    /// # Errors
    ///
    /// As [`Limiter::replacing`].
    pub fn bind_replacing(
        replaced: &[&Limiter],
        store: &dyn Store,
        rules: RuleSet,
        instances: NonZeroU32,
    ) -> Result<Self, RuleError> {
        Limiter::bind_replacing(replaced, store, rules, instances).map(Self)
    }

    /// These rules with the instances of `before`, and with what it has counted while the store failed: for a limiter whose
    /// settings differ from those of the one whose rules were replaced.
    ///
    /// # Errors
    ///
    /// A quota whose share cannot be counted.
    pub fn succeeding(&self, before: &Limiter) -> Result<Self, RuleError> {
        self.0.succeeding(before).map(Self)
    }

    /// The same limiter, which does not keep its rule names in use: for what outlives its limiter or layer, such as a request
    /// under way.
    #[must_use]
    pub fn unregistered(&self) -> Self {
        Self(self.0.unregistered())
    }

    /// What it tells operators.
    #[must_use]
    pub fn observer(&self) -> &std::sync::Arc<Observer> {
        self.0.observer()
    }

    /// Decides as [`acquire`](Limiter::acquire) does, and tells operators nothing of it: call [`report`](Self::report) with what
    /// the layer knows of the request.
    #[inline]
    pub fn acquire_unreported(&self, checks: &[Check]) -> Step<Decision> {
        self.0.acquire_unreported(checks)
    }

    /// The same for a request that waits for no longer than `patience`, also where its rules would let it
    /// [wait](crate::Rule::wait) longer.
    pub fn acquire_with_patience(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        self.0.acquire_with_patience(checks, patience)
    }

    /// The same for a request that does not wait and is answered by `deadline`, where a store fails later than that: what comes after
    /// it is a store failure, of an unknown outcome. Call it in a tokio runtime with a timer.
    #[cfg(feature = "tokio")]
    pub fn acquire_by(&self, checks: &[Check], deadline: tokio::time::Instant) -> Step<Decision> {
        self.0.acquire_by(checks, deadline)
    }

    /// The same as [`acquire_unreported`](Self::acquire_unreported), but `None` if others queue for slots of these checks, in
    /// [`acquire_within`](Limiter::acquire_within): a slot that becomes free is theirs. Always `Some` where no rule with slots
    /// [waits](crate::Rule::wait).
    #[inline]
    #[must_use]
    pub fn acquire_unless_queued(&self, checks: &[Check]) -> Option<Step<Decision>> {
        if let Some(denied) = self.blocked(checks) {
            return Some(Step::Ready(denied));
        }
        if self.waits_for_slots(checks) {
            if !self.0.wait_queues().is_free(checks) {
                return None;
            }
            if !self.rules().all_enforced() {
                return Some(self.acquire_if_slots_are_free(checks));
            }
        }
        Some(self.acquire_unreported(checks))
    }

    /// A shadow counts every attempt: a request that has to wait for a slot only looks before.
    #[cold]
    fn acquire_if_slots_are_free(&self, checks: &[Check]) -> Step<Decision> {
        match self.peek(checks) {
            Step::Ready(looked) if self.waits_for_slots_after(&looked) => Step::Ready(looked),
            Step::Ready(_) => self.acquire_unreported(checks),
            Step::Wait(looking) => {
                let (limiter, checks) = (self.clone(), Checks::from_slice(checks));
                Step::Wait(Pending::new(async move {
                    let looked = looking.await;
                    if limiter.waits_for_slots_after(&looked) {
                        return looked;
                    }
                    limiter.acquire_unreported(&checks).await
                }))
            }
        }
    }

    /// The denial of a request by an enforced limit of [none](crate::Quota::none), which needs no store and no other key.
    #[inline]
    #[must_use]
    pub fn blocked(&self, checks: &[Check]) -> Option<Decision> {
        self.0.blocked(checks)
    }

    /// Waits as [`acquire_within`](Limiter::acquire_within) does, and does not report the decision; the wait, if `reports_wait`:
    /// for layers whose requests wait nowhere else.
    ///
    /// # Errors
    ///
    /// As [`acquire_within`](Limiter::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire_within`](Limiter::acquire_within).
    ///
    /// # Panics
    ///
    /// As [`acquire_within`](Limiter::acquire_within).
    #[cfg(feature = "tokio")]
    pub async fn acquire_within_unreported(
        &self,
        checks: &[Check],
        patience: Duration,
        reports_wait: bool,
    ) -> Result<Decision, WaitError> {
        crate::wait::acquire_within(&self.0, checks, patience, reports_wait).await
    }

    /// A place for a request that waits for the [delay](Decision::delay) of its decision, which the layer waits for itself. Hold
    /// it until the wait is over.
    ///
    /// # Errors
    ///
    /// The queue is [full](crate::Rule::max_waiting). The request gives its place in the store back, and is denied.
    pub fn enter_wait(&self, checks: &[Check]) -> Result<WaitPlace<'_>, WaitError> {
        let rules = self.rules().rules();
        self.0.wait_queues().count(rules, checks)
    }

    /// Whether a request with these checks waits for slots.
    #[must_use]
    pub fn waits_for_slots(&self, checks: &[Check]) -> bool {
        self.0.waits_for_slots(checks)
    }

    /// Whether a request waits for slots after this decision about it: it is denied for want of slots, and each rule that denies
    /// it waits. A rule with slots that does not wait denies at once.
    #[inline]
    #[must_use]
    pub fn waits_for_slots_after(&self, decision: &Decision) -> bool {
        self.0.waits_for_slots_after(decision)
    }

    /// Tells operators of a decision on these checks. `timer` was started when the work on the request began, and `route` is
    /// the pattern of its route (`/users/{id}`, never the path itself), or empty.
    #[inline]
    pub fn report(&self, checks: &[Check], decision: &Decision, timer: Timer, route: &str) {
        self.0.report(checks, decision, timer, route);
    }

    /// A [ticket](Limiter::ticket) with the units that shadows took: for what settles them as if they were enforced.
    pub fn ticket_with_shadows(&self, checks: &[Check], decision: &Decision) -> Ticket {
        Ticket::with_shadows(self.rule_store().clone(), checks, decision)
    }
}
