//! That a rule is durable, as the rule says.

use std::sync::Arc;

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

crate::debug_fields!(Durable, it => denies_unwritten: it.denies_unwritten);
