//! What programs for operators need, and no service does: `tollgate` on the command line, the console, `tollgate-server`.
//!
//! They ask a [`RuleDocument`](crate::RuleDocument) what it does with a request or a client and what is set beside it, and make
//! documents of other formats.

#[cfg(feature = "redis")]
pub use crate::redis::redis_source::StoredRules;
pub use crate::{
    descriptor::Descriptor,
    document_changes::{EntryOrigin, EntryStatus},
    envoy_import::import_envoy,
    explanation::{Explained, Explanation, QuotaOrigin},
    operator_entries::EntryKind,
};
