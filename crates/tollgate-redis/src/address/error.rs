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
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the address of Redis: {}", self.message)
    }
}

impl Error for AddressError {}
