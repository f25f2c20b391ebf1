//! What the engine has to know of a rule set on Redis.

use std::{fmt, sync::Arc};

use tollgate_core::{Check, Fingerprint, Rule};
use tollgate_prefilter::StoreRules;

use crate::{encode::Encoder, store::shared::Shared};

/// Where the states of a rule set are, and which rules can only be exact.
pub(super) struct Places {
    shared: Arc<Shared>,
    encoder: Arc<Encoder>,
    is_cluster: bool,
}

impl Places {
    pub(super) fn new(shared: &Arc<Shared>, encoder: &Arc<Encoder>) -> Self {
        Self {
            is_cluster: shared.backend.is_cluster(),
            shared: Arc::clone(shared),
            encoder: Arc::clone(encoder),
        }
    }
}

impl StoreRules for Places {
    fn exact(&self, rule: &Rule) -> Option<&'static str> {
        self.shared.exact(rule)
    }

    fn place(&self, checks: &[Check], check: &Check) -> Option<Fingerprint> {
        // One server decides about all of them in one step.
        self.is_cluster
            .then(|| self.encoder.slot_of(checks, check))?
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
