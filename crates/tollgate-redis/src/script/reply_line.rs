//! What the script says to a check.

use tollgate_core::algorithm::{Assessment, GcraState};

/// What the script says to a check.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyLine {
    Answer(Assessment),
    /// It has taken its units for later.
    Queued {
        before: GcraState,
    },
    /// It fits after a wait, for a request that only looks.
    WouldWait {
        answer: Assessment,
    },
}
