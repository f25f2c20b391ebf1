//! The request's path as the key.

use std::fmt::Debug;

use tollgate_core::PartKind;

use crate::key::extractor::{Extracted, KeyExtractor, extractor};

/// Counts by the request's path, without the query. The key has one part of [`PartKind::PATH`].
///
/// Use it for gRPC, where the path is `/package.Service/Method`. For HTTP use the route's pattern (`matched_path`, with the
/// feature `axum`): a path has many spellings (`/a`, `/%61`), and each has its own budget. Inside of axum's `Router::nest` the
/// path lacks the prefix.
#[must_use]
pub fn path() -> impl KeyExtractor + Clone + Debug {
    extractor("path", |head, key| {
        key.push(PartKind::PATH, head.uri.path());
        Extracted::Key
    })
}
