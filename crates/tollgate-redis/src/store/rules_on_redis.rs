//! What the engine has to know of a rule set on Redis.

use std::{fmt, sync::Arc};

use tollgate_core::{Check, Rule, store::Fingerprint};
use tollgate_prefilter::StoreRules;

use crate::{script::encoder::Encoder, store::shared::Shared};

/// Where the states of a rule set are, and which rules can only be exact.
pub(super) struct RulesOnRedis {
    shared: Arc<Shared>,
    encoder: Arc<Encoder>,
    is_cluster: bool,
}

impl RulesOnRedis {
    pub(super) fn new(shared: &Arc<Shared>, encoder: &Arc<Encoder>) -> Self {
        Self {
            is_cluster: shared.backend.is_cluster(),
            shared: Arc::clone(shared),
            encoder: Arc::clone(encoder),
        }
    }
}

impl StoreRules for RulesOnRedis {
    fn exact(&self, rule: &Rule) -> Option<&'static str> {
        self.shared.exact(rule)
    }

    fn place(&self, checks: &[Check], check: &Check) -> Option<Fingerprint> {
        // One server decides about all of them in one step.
        self.is_cluster
            .then(|| self.encoder.slot_of(checks, check))?
    }

    fn places_others(&self, rule: u16) -> bool {
        self.encoder.is_with(rule)
    }
}

impl fmt::Debug for RulesOnRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesOnRedis")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
