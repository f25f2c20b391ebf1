//! For authors of layers, which report, wait and replace rules by themselves. A service has no use for it: take a
//! [`Limiter`].

use std::ops::Deref;

#[cfg(feature = "tokio")]
pub use crate::attempt::Waiting;
pub use crate::{attempt::Attempt, live_limiter::Replacement};
use crate::{
    check::Check,
    decision::Decision,
    error::RuleError,
    limiter::Limiter,
    observe::{Observer, Timer},
    ticket::Ticket,
};

/// A [`Limiter`] with the calls of layers.
///
/// ```
/// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule, layer::LayerLimiter, observe::Timer};
///
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
/// let limiter = LayerLimiter::from(limiter);
/// let timer = Timer::start();
/// let checks = [limiter.check("api", &Key::shared())?];
/// let decision = limiter.attempt(&checks).decide().ready().expect("memory answers at once");
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

    /// An attempt to take what a request needs. Operators are not told of its decision: call [`report`](Self::report) with what the
    /// layer knows of the request.
    #[inline]
    pub fn attempt<'a>(&'a self, checks: &'a [Check]) -> Attempt<'a> {
        Attempt::new(&self.0, checks)
    }

    /// The denial of a request by an enforced limit of [none](crate::Quota::none), which needs no store and no other key.
    #[inline]
    #[must_use]
    pub fn blocked(&self, checks: &[Check]) -> Option<Decision> {
        self.0.blocked(checks)
    }

    /// Tells operators of a decision on these checks. `timer` was started when the work on the request began, and `route` is
    /// the pattern of its route (`/users/{id}`, never the path itself), or empty.
    #[inline]
    pub fn report(&self, checks: &[Check], decision: &Decision, timer: Timer, route: &str) {
        self.0.report(checks, decision, timer, route);
    }

    /// A [ticket](Limiter::ticket) with the units that shadows took: for what settles them as if they were enforced.
    pub fn ticket_with_shadows(&self, checks: &[Check], decision: &Decision) -> Ticket {
        let (store, durable) = (self.rule_store().clone(), self.0.durable_rules());
        Ticket::new(store, checks, decision, |_, _| true, durable)
    }
}
