//! The request's path as the key.

use http::request::Parts;
use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor};

/// Counts by the request's path, without the query. The key has one part of [`PartKind::PATH`].
///
/// This is right for gRPC, where the path is `/package.Service/Method`. For HTTP take the route's pattern (`matched_path`,
/// with the feature `axum`): a path may be spelled in many ways (`/a`, `/%61`), and each spelling has a budget of its own.
/// The path is taken as the layer sees it: inside of axum's `Router::nest` the prefix is gone.
#[must_use]
pub fn path() -> Path {
    Path(())
}

/// The extractor that [`path()`] makes.
#[derive(Clone, Debug)]
pub struct Path(());

impl KeyExtractor for Path {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        key.push(PartKind::PATH, head.uri.path());
        Extracted::Key
    }
}
