//! The request's path as the key.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor};

use crate::head::Head;

/// Counts by the request's path, without the query. The key has one part of [`PartKind::PATH`].
///
/// Use it for gRPC, where the path is `/package.Service/Method`. For HTTP use the route's pattern (`matched_path`, with the
/// feature `axum`): a path has many spellings (`/a`, `/%61`), and each has its own budget. Inside of axum's `Router::nest` the
/// path lacks the prefix.
#[must_use]
pub fn path() -> Path {
    Path(())
}

/// The extractor that [`path()`] makes.
#[derive(Clone, Debug)]
pub struct Path(());

impl KeyExtractor for Path {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        key.push(PartKind::PATH, head.uri.path());
        Extracted::Key
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "path".into()
    }
}
