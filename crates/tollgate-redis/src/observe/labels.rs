//! By what the figures of a rule are told apart.

use std::sync::Arc;

/// A rule under one consistency.
#[derive(Debug)]
pub(super) struct Labels {
    pub(super) rule: Arc<str>,
    pub(super) consistency: &'static str,
}
