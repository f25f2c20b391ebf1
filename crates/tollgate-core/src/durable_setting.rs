//! That a rule is durable, as the rule says.

use std::{fmt, sync::Arc};

use crate::key::KeyBuf;

/// That a rule is durable, and how its accounts are called. Two are equal if both do the same behind a full journal.
#[derive(Clone)]
pub(crate) struct Durable {
    pub(crate) account: Arc<dyn Fn(&KeyBuf) -> String + Send + Sync>,
    pub(crate) denies_unwritten: bool,
}

impl PartialEq for Durable {
    fn eq(&self, other: &Self) -> bool {
        self.denies_unwritten == other.denies_unwritten
    }
}

impl Eq for Durable {}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable")
            .field("denies_unwritten", &self.denies_unwritten)
            .finish_non_exhaustive()
    }
}
