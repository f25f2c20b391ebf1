//! What becomes of used units when a rule's numbers change.

/// What becomes of the units that clients have used when a rule's quota is [replaced](crate::Limiter::replacing) by another.
///
/// ```
/// use tollgate_core::{Key, LiveLimiter, MINUTE, MemoryStore, OnChange, Quota, Rule};
///
/// let rule = |limit, on_change| [Rule::new("api", Quota::gcra(limit, MINUTE)).on_change(on_change)];
/// for (on_change, left) in [(OnChange::Keep, 14), (OnChange::Scale, 7), (OnChange::Reset, 19)] {
///     let limiter = LiveLimiter::new(MemoryStore::new(), rule(10, on_change))?;
///     for _ in 0..5 {
///         limiter.try_acquire("api", &Key::shared())?;
///     }
///     limiter.replace(rule(20, on_change))?;
///     let decision = limiter.try_acquire("api", &Key::shared())?;
///     // Give or take what has come back meanwhile.
///     assert!(decision.verdicts()[0].remaining().abs_diff(left) <= 2, "{on_change:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnChange {
    /// Used units stay used, as many as the new limit holds. Every store does it, key by key when a key is next asked for.
    #[default]
    Keep,
    /// Used units are scaled with the limit: of a client that has used half of it, half stays used, rounded up.
    ///
    /// The memory store goes over the rule's keys once when the rules are replaced. In windows, scaled units count as if
    /// they had just been taken.
    ///
    /// Through Redis, a state is scaled when it is next asked for, by processes with the new quota and back by those that still
    /// have the old one: between them, no more is admitted than the larger burst and the faster rate allow. Units of a window
    /// keep their times. Nothing comes back sooner than under the quota that it was taken under: a window of another length
    /// keeps its units as [`Keep`](Self::Keep) does, and of a bucket that now fills in less time, as many units stay used as
    /// would have come back in that time. Each scaling of a window rounds up by less than a unit. Both processes have to know
    /// that the rule scales, so deploy this before the first change of its quota. Quotas that checks
    /// [bring along](crate::Check::with_quota) keep used units.
    Scale,
    /// All clients begin anew. The memory store goes over the rule's keys once when the rules are replaced.
    ///
    /// Through Redis, the names of the rule's states hold a hash of its own quota, so that processes with the old and the new
    /// quota count apart for as long as both run, and no client begins anew more than once. A change of a plan alone keeps used
    /// units. A quota that comes back within its period finds what was used under it then.
    Reset,
}

impl OnChange {
    /// The name in files: `keep`, `scale`, `reset`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Scale => "scale",
            Self::Reset => "reset",
        }
    }
}
