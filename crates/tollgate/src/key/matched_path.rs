//! The pattern of axum's route as the key.

use std::fmt::Debug;

use tollgate_core::PartKind;

use crate::key::extractor::{Extracted, KeyExtractor, NoKey, extractor};

/// Counts by the pattern of the route, such as `/users/{id}`. The key has one part of [`PartKind::ROUTE`].
///
/// axum knows the pattern only inside of the router. In a layer around the whole router, and in the fallback, the result is
/// [`NoKey::Misconfigured`].
#[must_use]
pub fn matched_path() -> impl KeyExtractor + Clone + Debug {
    extractor("route", |head, key| {
        let Some(route) = head.extensions.get::<axum::extract::MatchedPath>() else {
            return Extracted::Nothing(NoKey::Misconfigured(
                "the request has no MatchedPath: add the layer inside of axum's router, with Router::route_layer or \
                 Router::layer; the router's fallback has none"
                    .into(),
            ));
        };
        key.push(PartKind::ROUTE, route.as_str());
        Extracted::Key
    })
}
