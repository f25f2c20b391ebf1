//! How a single check differs from its rule.

use crate::{
    error::{RuleError, RuleErrorKind},
    quota::Quota,
};

/// How a single check differs from the [consistency](crate::Rule::consistency) and the
/// [answer to a store failure](crate::Rule::on_store_error) of its rule. The rule stays one budget: all its checks count on one
/// state. Default: as the rule.
///
/// ```
/// use tollgate_core::{
///     Consistency, Key, LeaseShare, Limiter, MINUTE, MemoryStore, OnStoreError, Quota, Rule,
///     types::CheckPolicy,
/// };
///
/// let rule = Rule::new("per-tenant", Quota::gcra(6_000, MINUTE))
///     .consistency(Consistency::Leased { share: LeaseShare::percent(10) })
///     .on_store_error(OnStoreError::Allow);
/// let limiter = Limiter::new(MemoryStore::new(), [rule])?;
///
/// let read = limiter.check("per-tenant", &Key::of("acme"))?;
/// // The store itself decides writes, and while it fails, they are denied.
/// let writes = CheckPolicy::default().exact().on_store_error(OnStoreError::Deny)?;
/// let write = limiter.check("per-tenant", &Key::of("acme"))?.with_policy(writes);
/// # let _ = (read, write);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckPolicy {
    /// [`EXACT`], and an answer by its number.
    pub(crate) bits: u8,
}

const EXACT: u8 = 1 << 7;
const ALLOW: u8 = 1;
const DENY: u8 = 2;
const DEGRADED: u8 = 3;

impl CheckPolicy {
    /// The store decides the check, whatever the rule's consistency: no process spends leased units for it or counts it
    /// locally.
    ///
    /// # Accuracy
    ///
    /// What other checks of the rule do on the same state stays: units that processes hold on
    /// [lease](crate::Consistency::Leased) are missing from what is left, and units that they have not
    /// [reported](crate::Consistency::Eventual) yet are not.
    pub const fn exact(self) -> Self {
        Self {
            bits: self.bits | EXACT,
        }
    }

    /// The answer to a store failure: [`Allow`](OnStoreError::Allow), [`Deny`](OnStoreError::Deny) or
    /// [`Degraded`](OnStoreError::Degraded).
    ///
    /// # Errors
    ///
    /// [`LocalShare`](OnStoreError::LocalShare) and [`Cap`](OnStoreError::Cap): a process counts one share or cap of a rule, for all of its
    /// requests.
    pub fn on_store_error(self, answer: OnStoreError) -> Result<Self, RuleError> {
        let number = match answer {
            OnStoreError::Allow => ALLOW,
            OnStoreError::Deny => DENY,
            OnStoreError::Degraded => DEGRADED,
            OnStoreError::LocalShare | OnStoreError::Cap(_) => {
                return Err(RuleError::general(
                    RuleErrorKind::Mode,
                    format!(
                        "{answer:?} cannot be the answer for some checks of a rule: while the store fails, a process counts one \
                         share or one cap of it. Make it the rule's own on_store_error, and give the other checks Allow, Deny \
                         or Degraded"
                    ),
                ));
            }
        };
        Ok(Self {
            bits: self.bits & EXACT | number,
        })
    }

    /// Whether the store decides the check, whatever the rule's consistency.
    #[inline]
    #[must_use]
    pub const fn is_exact(self) -> bool {
        self.bits & EXACT != 0
    }

    /// The answer to a store failure; `None` is the rule's own.
    #[must_use]
    pub const fn store_error_answer(self) -> Option<OnStoreError> {
        match self.bits & !EXACT {
            ALLOW => Some(OnStoreError::Allow),
            DENY => Some(OnStoreError::Deny),
            DEGRADED => Some(OnStoreError::Degraded),
            _ => None,
        }
    }
}

// A rule's answer to a store failure.

/// What a rule answers when the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreError {
    /// Counts in this process against its share of the quota: 1/N, at least one unit.
    ///
    /// N is the [configured](crate::Limiter::shared_by) number of instances, or the number that the store
    /// [last reported](crate::store::RuleStore::instances) if that is larger. When N grows, shares shrink at once. When it
    /// falls, they grow after 30 s. A change keeps what a share has counted. A share that [`Quota::validate`] would refuse
    /// keeps its size.
    ///
    /// A share starts with 1/N (rounded up) of the usage that the store last reported to this process for the key, less
    /// what has refilled since: evenly in a bucket, at the end of a window. When the store is back, it continues from its own
    /// state. Neither side is credited with usage of the other; the metric `tollgate_units_admitted_in_fallback_total` counts the
    /// units admitted in between.
    ///
    /// # Accuracy
    ///
    /// While the store is down for a time `t`, and all N instances know of each other, they together admit for a key at most
    ///
    /// ```text
    /// rate · t + max(burst, N)          for a bucket
    /// max(limit, N) in each window      for a fixed window, sub-buckets, or a log
    /// ```
    ///
    /// in one outage or in several in a row. At most two bursts come on top: what the store admitted just before the outage
    /// and this instance has not seen (each instance remembers about 65 000 states), and what the store admits just after it,
    /// because its state is stale. A sliding window of two counters keeps the bound of its
    /// [page](crate::algorithm::sliding_window). If N periods would exceed [`MAX_PERIOD`](crate::MAX_PERIOD), the rate is
    /// divided instead and rounded down, to at least one unit per period and instance.
    ///
    /// The units that a share of a window starts with count as taken when the store first failed for the key. In a log,
    /// sub-buckets or a sliding window they expire later than in the store, by less than a window.
    #[default]
    LocalShare,
    /// Counts in this process against this quota.
    Cap(Quota),
    /// Lets the request pass.
    Allow,
    /// Denies the request: 503, or UNAVAILABLE for gRPC.
    Deny,
    /// Lets the request pass and marks it as degraded, for the handler to see.
    Degraded,
}

impl OnStoreError {
    /// The word for it in metrics: `local_share`, `cap`, `allow`, `deny` or `degraded`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LocalShare => "local_share",
            Self::Cap(_) => "cap",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Degraded => "degraded",
        }
    }
}
