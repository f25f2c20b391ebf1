//! What an error says about a call.

use tollgate_core::{StoreError, StoreErrorKind};

/// Whether a call certainly changed nothing.
pub(super) fn did_not_run(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::Overloaded | StoreErrorKind::Misconfigured
    )
}
