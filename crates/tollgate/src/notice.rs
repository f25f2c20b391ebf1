//! Notices that have to reach somebody: events, or the standard error where nobody listens to events.

use std::io::Write;

/// A mistake in the set-up that only shows when a request comes. It is not silent where nobody listens to events: all
/// clients may share one budget.
pub(crate) fn error(what: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tollgate", "{what}");
    say_where_nobody_listens(what);
}

/// What is probably a mistake in the set-up.
pub(crate) fn warn(what: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tollgate", "{what}");
    say_where_nobody_listens(what);
}

fn say_where_nobody_listens(what: &str) {
    #[cfg(feature = "tracing")]
    let heard = tracing::dispatcher::has_been_set();
    #[cfg(not(feature = "tracing"))]
    let heard = false;
    if !heard {
        // Standard error may be closed; a request must not fail for that.
        let _ = writeln!(std::io::stderr(), "tollgate: {what}");
    }
}
