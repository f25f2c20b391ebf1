//! Messages about set-up mistakes: errors of settings, and events, or lines on standard error if there is no subscriber.

use std::io::Write;

use tollgate_core::{RuleError, RuleErrorKind};

/// A setting that cannot work.
pub(crate) fn wrong_setting(message: impl Into<String>) -> RuleError {
    RuleError::general(RuleErrorKind::RuleSet, message)
}

/// Reports a set-up mistake that shows only when a request comes. It is never silent, because all clients may share one
/// budget.
pub(crate) fn error(message: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tollgate", "{message}");
    print_without_subscriber(message);
}

/// Reports a probable set-up mistake.
pub(crate) fn warn(message: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tollgate", "{message}");
    print_without_subscriber(message);
}

fn print_without_subscriber(message: &str) {
    #[cfg(feature = "tracing")]
    let has_subscriber = tracing::dispatcher::has_been_set();
    #[cfg(not(feature = "tracing"))]
    let has_subscriber = false;
    if !has_subscriber {
        // Standard error may be closed, which must not fail a request.
        let _ = writeln!(std::io::stderr(), "tollgate: {message}");
    }
}
