//! What is wrong with how a store was set up.

use std::{error::Error, fmt};

/// A store, an address or a secret that cannot be made: what was wrong, and what would be right. It never repeats a password or a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SetupError {
    kind: SetupErrorKind,
    message: String,
}

/// What a [`SetupError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupErrorKind {
    /// The address of Redis.
    Address,
    /// The namespace, a secret, or how keys are named.
    Keys,
    /// A setting that makes no sense, or that has to be chosen and was not.
    Setting,
    /// There is no tokio runtime to connect from.
    Runtime,
    /// Redis did not decide requests in time, of [`connect_within`](crate::RedisStoreBuilder::connect_within).
    NotConnected,
}

impl SetupError {
    pub(crate) fn new(kind: SetupErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// An address that cannot be used: which part of it, and what would be right.
    pub(crate) fn address(what: impl fmt::Display) -> Self {
        Self::new(
            SetupErrorKind::Address,
            format!("the address of Redis: {what}"),
        )
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> SetupErrorKind {
        self.kind
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// As it is displayed: it comes out of `main`.
tollgate_core::debug_fields!(SetupError as Display);

impl Error for SetupError {}
