//! The pattern of axum's route as the key.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, PartKind};

use crate::key::extractor::{Extracted, KeyExtractor, NoKey};

use crate::head::Head;

/// Counts by the pattern of the route, such as `/users/{id}`. The key has one part of [`PartKind::ROUTE`].
///
/// axum knows the pattern only inside of the router. In a layer around the whole router, and in the fallback, the result is
/// [`NoKey::Misconfigured`].
#[must_use]
pub fn matched_path() -> MatchedPath {
    MatchedPath(())
}

/// The extractor that [`matched_path()`] makes.
#[derive(Clone, Debug)]
pub struct MatchedPath(());

impl KeyExtractor for MatchedPath {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        match head.extensions.get::<axum::extract::MatchedPath>() {
            Some(route) => {
                key.push(PartKind::ROUTE, route.as_str());
                Extracted::Key
            }
            None => Extracted::Nothing(NoKey::Misconfigured(
                "the request has no MatchedPath: add the layer inside of axum's router, with Router::route_layer or \
                 Router::layer; the router's fallback has none"
                    .into(),
            )),
        }
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "route".into()
    }
}
