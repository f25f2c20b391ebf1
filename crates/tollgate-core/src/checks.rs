//! The checks of a request.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use crate::check::Check;

/// The checks of a request, owned: up to two without an allocation. It is a slice otherwise.
///
/// ```
/// use tollgate_core::{Check, store::{Checks, Fingerprint}};
///
/// let mut checks = Checks::new();
/// checks.push(Check::new(0, Fingerprint::from_bits(7), 1));
/// assert_eq!(checks.len(), 1);
/// assert_eq!(Checks::from_slice(&checks), checks);
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Checks(SmallVec<[Check; 2]>);

impl Checks {
    /// No checks.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of these checks.
    #[inline]
    #[must_use]
    pub fn from_slice(checks: &[Check]) -> Self {
        Self(SmallVec::from_slice(checks))
    }

    /// Adds a check at the end.
    #[inline]
    pub fn push(&mut self, check: Check) {
        self.0.push(check);
    }

    /// Takes the check at `index` out; the rest keep their order.
    ///
    /// # Panics
    ///
    /// There is no check at `index`.
    pub fn remove(&mut self, index: usize) -> Check {
        self.0.remove(index)
    }
}

/// As a whole: a clone of the list copies them one by one.
impl Clone for Checks {
    #[inline]
    fn clone(&self) -> Self {
        Self::from_slice(&self.0)
    }
}

impl Deref for Checks {
    type Target = [Check];

    #[inline]
    fn deref(&self) -> &[Check] {
        &self.0
    }
}

impl DerefMut for Checks {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Check] {
        &mut self.0
    }
}

impl FromIterator<Check> for Checks {
    fn from_iter<I: IntoIterator<Item = Check>>(checks: I) -> Self {
        Self(checks.into_iter().collect())
    }
}

impl Extend<Check> for Checks {
    fn extend<I: IntoIterator<Item = Check>>(&mut self, checks: I) {
        self.0.extend(checks);
    }
}

impl<'a> IntoIterator for &'a Checks {
    type Item = &'a Check;
    type IntoIter = std::slice::Iter<'a, Check>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
