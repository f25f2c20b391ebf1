//! Errors of single calls. That of rules and layers is [`RuleError`](crate::RuleError), of a [kind](RuleErrorKind).

pub use tollgate_core::{
    RuleErrorKind,
    types::{TryAcquireError, WaitError, WaitErrorKind},
};
