//! Why a quota is refused.

use std::fmt;

/// Numbers that make no quota: which, and what would be right.
#[derive(Clone, PartialEq, Eq)]
pub struct QuotaError(pub(crate) String);

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// As it is displayed: it comes out of `main`.
crate::debug_fields!(QuotaError as Display);

impl std::error::Error for QuotaError {}
