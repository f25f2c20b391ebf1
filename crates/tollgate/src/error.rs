//! Errors of single calls. That of rules and layers is [`RuleError`](crate::RuleError).

pub use tollgate_core::{
    ParseQuotaError, UnknownName,
    types::{QuotaError, TryAcquireError, WaitError, WaitErrorKind},
};
