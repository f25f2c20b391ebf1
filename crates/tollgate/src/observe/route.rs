//! The route of a request, for the log.

use http::Extensions;

/// The pattern of a request's route, as axum has it: never the path, which a client writes and may hold who it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    #[cfg(all(feature = "axum", feature = "tracing"))]
    matched: Option<axum::extract::MatchedPath>,
}

impl Route {
    /// The route of a request, if denials are logged.
    #[cfg(all(feature = "axum", feature = "tracing"))]
    pub(crate) fn of(extensions: &Extensions) -> Self {
        if !tracing::enabled!(target: "tollgate", tracing::Level::DEBUG) {
            return Self::default();
        }
        Self {
            matched: extensions.get().cloned(),
        }
    }

    #[cfg(not(all(feature = "axum", feature = "tracing")))]
    pub(crate) fn of(_: &Extensions) -> Self {
        Self {}
    }

    /// The pattern; empty where there is none.
    pub(crate) fn as_str(&self) -> &str {
        #[cfg(all(feature = "axum", feature = "tracing"))]
        if let Some(matched) = &self.matched {
            return matched.as_str();
        }
        ""
    }
}
