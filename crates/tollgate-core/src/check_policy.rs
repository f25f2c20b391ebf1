//! How a single check differs from its rule.

use crate::{
    error::{RuleError, RuleErrorKind},
    on_store_error::OnStoreError,
};

/// How a single check differs from the [consistency](crate::Rule::consistency) and the
/// [answer to a store failure](crate::Rule::on_store_error) of its rule. The rule stays one budget: all its checks count on one
/// state. Default: as the rule.
///
/// ```
/// use tollgate_core::{
///     CheckPolicy, Consistency, Key, LeaseShare, Limiter, MINUTE, MemoryStore, OnStoreError, Quota, Rule,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CheckPolicy {
    /// [`EXACT`], and an answer by its number.
    bits: u8,
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
    #[must_use]
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

    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.bits
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self { bits }
    }
}
