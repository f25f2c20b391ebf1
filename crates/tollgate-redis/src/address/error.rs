//! What is wrong with an address.

use std::{error::Error, fmt};

/// An address that cannot be used: which part of it, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressError {
    message: String,
}

impl AddressError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }

    /// An encrypted address, in a build that cannot encrypt.
    pub(crate) fn needs_tls() -> Self {
        Self::new("encrypted connections need the feature `tls` of tollgate-redis")
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the address of Redis: {}", self.message)
    }
}

impl Error for AddressError {}
