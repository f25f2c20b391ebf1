//! Paths as axum's router matches them.

use std::fmt;

use http::request::Parts;
use matchit::{InsertError, Router};

/// A path with parameters: `/search/{*rest}`.
#[derive(Clone)]
pub(crate) struct PathPattern {
    text: String,
    router: Router<()>,
}

/// How exactly a pattern names a path, segment by segment: the most exact first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Segment {
    CatchAll,
    Parameter,
    Literal,
}

impl PathPattern {
    /// # Errors
    ///
    /// What is wrong, and what would be right.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err(format!(
                "a path begins with a slash; did you mean \"/{text}\"?"
            ));
        }
        if text
            .split('/')
            .any(|segment| segment.starts_with(':') || segment == "*")
        {
            return Err(
                "parameters are written in braces, as /users/{id} and /files/{*rest}".into(),
            );
        }
        let mut router = Router::new();
        router.insert(text, ()).map_err(|error| match error {
            InsertError::InvalidCatchAll => {
                "a catch-all is the last segment, as /files/{*rest}".to_owned()
            }
            InsertError::InvalidParamSegment => {
                "a segment has one parameter, with nothing behind it, as /users/{id}".to_owned()
            }
            _ => "a parameter has a name in braces, as /users/{id}".to_owned(),
        })?;
        Ok(Self {
            text: text.to_owned(),
            router,
        })
    }

    /// As it is written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn matches(&self, head: &Parts) -> bool {
        self.router.at(path(head)).is_ok()
    }

    /// The value of a parameter.
    pub(crate) fn parameter<'h>(&self, head: &'h Parts, name: &str) -> Option<&'h str> {
        let found = self.router.at(path(head)).ok()?;
        found.params.get(name).filter(|value| !value.is_empty())
    }

    /// The names of the parameters.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &str> {
        let segments = self.text.split('/').filter_map(|segment| {
            let (_, name) = segment.split_once('{')?;
            let name = name.split_once('}')?.0;
            Some(name.trim_start_matches('*'))
        });
        segments.filter(|name| !name.is_empty())
    }

    pub(crate) fn specificity(&self) -> Vec<Segment> {
        let segments = self.text.split('/').skip(1);
        segments
            .map(|segment| {
                if segment.contains("{*") {
                    Segment::CatchAll
                } else if segment.contains('{') {
                    Segment::Parameter
                } else {
                    Segment::Literal
                }
            })
            .collect()
    }

    /// The pattern without the names of its parameters: two that are equal match the same paths.
    pub(crate) fn shape(&self) -> String {
        let segments = self
            .text
            .split('/')
            .map(|segment| match segment.split_once('{') {
                Some((before, name)) if name.starts_with('*') => format!("{before}{{*}}"),
                Some((before, _)) => format!("{before}{{}}"),
                None => segment.to_owned(),
            });
        segments.collect::<Vec<_>>().join("/")
    }
}

/// The path that the client has asked for: routers strip prefixes from nested ones.
fn path(head: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(original) = head.extensions.get::<axum::extract::OriginalUri>() {
        return original.0.path();
    }
    head.uri.path()
}

impl fmt::Debug for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(path: &str) -> Parts {
        let request = http::Request::get(path).body(()).expect("a request");
        request.into_parts().0
    }

    #[test]
    fn paths_match_as_in_a_router() {
        for (pattern, path, matches) in [
            ("/search", "/search", true),
            ("/search", "/search/", false),
            ("/search", "/search?q=1", true),
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/", false),
            ("/users/{id}", "/users/7/x", false),
            ("/files/{*rest}", "/files/a/b", true),
            ("/files/{*rest}", "/files/", false),
            ("/v{version}/x", "/v2/x", true),
            ("/{{literal}}", "/{literal}", true),
        ] {
            let made = PathPattern::new(pattern).expect("a pattern");
            let request = http::Request::get(path).body(());
            let Ok(request) = request else { continue };
            assert_eq!(
                made.matches(&request.into_parts().0),
                matches,
                "{pattern} {path}"
            );
        }
        let users = PathPattern::new("/users/{id}/{*rest}").expect("a pattern");
        assert_eq!(users.parameters().collect::<Vec<_>>(), ["id", "rest"]);
        assert_eq!(users.parameter(&head("/users/7/a/b"), "id"), Some("7"));
        assert_eq!(users.parameter(&head("/users/7/a/b"), "rest"), Some("a/b"));
    }

    #[test]
    fn a_wrong_pattern_says_what_would_be_right() {
        for (pattern, words) in [
            ("search", "\"/search\""),
            ("/users/:id", "{id}"),
            ("/files/*", "{*rest}"),
            ("/a/{*rest}/b", "last segment"),
            ("/{a}{b}", "one parameter"),
            ("/{}", "has a name"),
            ("/{open", "has a name"),
        ] {
            let error = PathPattern::new(pattern).expect_err(pattern);
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }
}
