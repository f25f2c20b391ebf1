//! The labels of a rule's metrics.

use std::sync::Arc;

/// A rule under one consistency.
#[derive(Debug)]
pub(super) struct Labels {
    pub(super) rule: Arc<str>,
    pub(super) consistency: &'static str,
}
