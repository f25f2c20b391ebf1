//! Paths that a layer inside of this one may rewrite.

use std::sync::atomic::{AtomicU16, Ordering};

use http::{Uri, uri::PathAndQuery};

use crate::{diagnostics, head::Head, routes::PathOf, rule::RequestSettings};

/// Tells once of a request that a rule on a path would count if its path had fewer slashes.
///
/// `/login/` passes by a rule on `/login`. That is right where the service has no such route; behind a layer that normalizes paths it
/// is a way around the limit, and this layer cannot see that.
#[derive(Debug)]
pub(crate) struct SlashDetector {
    /// How many more such paths are compared: clients choose them.
    left: AtomicU16,
}

impl SlashDetector {
    pub(crate) const fn new() -> Self {
        Self {
            left: AtomicU16::new(1_000),
        }
    }

    /// Looks at a request.
    #[inline]
    pub(crate) fn look<'a>(
        &self,
        head: &Head<'_>,
        rules: impl Iterator<Item = &'a RequestSettings>,
    ) {
        let path = head.uri.path();
        let is_normal = path.len() < 2 || !(path.ends_with('/') || path.contains("//"));
        if !is_normal && self.left.load(Ordering::Relaxed) > 0 {
            self.compare(head, rules);
        }
    }
    fn compare<'a>(&self, head: &Head<'_>, mut rules: impl Iterator<Item = &'a RequestSettings>) {
        let Some(uri) = normalized(head.uri) else {
            return;
        };
        let normal = Head { uri: &uri, ..*head };
        let passed = rules.find(|rule| {
            let paths = rule.routes.paths().unwrap_or_default();
            paths
                .iter()
                .any(|path| matches!(path.of, PathOf::Uri | PathOf::Whole))
                && rule.rule.is_enforced()
                && (rule.applies.as_ref()).is_some_and(|applies| !applies(head) && applies(&normal))
        });
        let left = match passed {
            Some(_) => self.left.swap(0, Ordering::Relaxed),
            None => self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .unwrap_or(0),
        };
        if let Some(rule) = passed.filter(|_| left > 0) {
            diagnostics::warn(&format!(
                "rule {:?} does not count a request that it would count with fewer slashes in its path; if a layer inside of this one \
                 rewrites paths, as NormalizePathLayer does, clients pass by the rule: put the RateLimitLayer inside of that layer",
                rule.rule.name()
            ));
        }
    }
}

/// Without empty segments and without the last slash.
fn normalized(uri: &Uri) -> Option<Uri> {
    let segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    let mut path: String = segments.flat_map(|segment| ["/", segment]).collect();
    if path.is_empty() {
        path.push('/');
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}
