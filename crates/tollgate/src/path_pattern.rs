//! Paths with parameters, as axum's router matches them.

use crate::routes::{PathOf, PathShape, Segment};

/// A path with parameters: `/users/{id}`, `/files/{*rest}`.
#[derive(Clone, Debug)]
pub(crate) struct PathPattern {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    Literal(String),
    /// `v{version}`: at least one character behind the prefix.
    Parameter {
        prefix: String,
    },
    /// At least one character, and any number of segments.
    CatchAll,
}

impl PathPattern {
    /// # Errors
    ///
    /// What is wrong, and what would be right.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('/') else {
            return Err(format!(
                "a path begins with a slash; did you mean \"/{text}\"?"
            ));
        };
        let parts: Vec<Part> = path.split('/').map(Part::new).collect::<Result<_, _>>()?;
        let last = parts.len() - 1;
        if parts[..last]
            .iter()
            .any(|part| matches!(part, Part::CatchAll))
        {
            return Err("a catch-all is the last segment, as /files/{*rest}".into());
        }
        Ok(Self { parts })
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else {
            return false;
        };
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            let (segment, behind) = match rest.split_once('/') {
                Some((segment, behind)) => (segment, Some(behind)),
                None => (rest, None),
            };
            let fits = match part {
                Part::Literal(literal) => segment == literal,
                Part::Parameter { prefix } => {
                    let value = segment.strip_prefix(&**prefix);
                    value.is_some_and(|value| !value.is_empty())
                }
                Part::CatchAll => return !rest.is_empty(),
            };
            match behind {
                _ if !fits => return false,
                None => return parts.peek().is_none(),
                Some(behind) => rest = behind,
            }
        }
        false
    }

    /// All paths that it matches have this shape.
    pub(crate) fn shape(&self, of: PathOf) -> PathShape {
        let segments = self.parts.iter().filter_map(|part| match part {
            Part::Literal(literal) => Some(Segment::Literal((&**literal).into())),
            Part::Parameter { .. } => Some(Segment::Any),
            Part::CatchAll => None,
        });
        PathShape {
            of,
            segments: segments.collect(),
            is_open: matches!(self.parts.last(), Some(Part::CatchAll)),
        }
    }
}

impl Part {
    fn new(segment: &str) -> Result<Self, String> {
        if segment.starts_with(':') || segment == "*" {
            return Err(
                "parameters are written in braces, as /users/{id} and /files/{*rest}".into(),
            );
        }
        let no_name = || Err("a parameter has a name in braces, as /users/{id}".to_owned());
        let (prefix, parameter) = unescaped(segment);
        let Some(parameter) = parameter else {
            return prefix.map(Self::Literal).map_or_else(no_name, Ok);
        };
        let (Some(prefix), Some((name, behind))) = (prefix, parameter.split_once('}')) else {
            return no_name();
        };
        if !behind.is_empty() {
            return Err(
                "a segment has one parameter, with nothing behind it, as /users/{id}".into(),
            );
        }
        match name.strip_prefix('*') {
            None if name.is_empty() || name.contains(['{', '*']) => no_name(),
            None => Ok(Self::Parameter { prefix }),
            Some("") => no_name(),
            Some(_) if prefix.is_empty() => Ok(Self::CatchAll),
            Some(_) => Err("a catch-all is the whole last segment, as /files/{*rest}".into()),
        }
    }
}

/// The text of a segment up to its parameter, in which braces are doubled, and what follows the brace that opens the parameter.
/// `None` in place of the text: a brace that closes nothing.
fn unescaped(segment: &str) -> (Option<String>, Option<&str>) {
    let mut text = String::new();
    let mut rest = segment;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, braces) = rest.split_at(at);
        text.push_str(before);
        let (brace, behind) = braces.split_at(1);
        match behind.strip_prefix(brace) {
            Some(behind) => {
                text.push_str(brace);
                rest = behind;
            }
            None if brace == "{" => return (Some(text), Some(behind)),
            None => return (None, None),
        }
    }
    text.push_str(rest);
    (Some(text), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_as_in_a_router() {
        for (pattern, path, matches) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/", "", false),
            ("/search", "/search", true),
            ("/search", "/search/", false),
            ("/search/", "/search/", true),
            ("/search", "/search/x", false),
            ("/users/{id}", "/users/7", true),
            ("/users/{id}", "/users/", false),
            ("/users/{id}", "/users", false),
            ("/users/{id}", "/users/7/x", false),
            ("/users/{id}/x", "/users/7/x", true),
            ("/users/{id}/x", "/users/7", false),
            ("/files/{*rest}", "/files/a/b", true),
            ("/files/{*rest}", "/files//", true),
            ("/files/{*rest}", "/files/", false),
            ("/files/{*rest}", "/files", false),
            ("/{*rest}", "/a", true),
            ("/{*rest}", "/", false),
            ("/v{version}/x", "/v2/x", true),
            ("/v{version}/x", "/v/x", false),
            ("/v{version}/x", "/w2/x", false),
            ("/{{literal}}", "/{literal}", true),
            ("/{{literal}}", "/literal", false),
            ("/{{{id}", "/{7", true),
        ] {
            let made = PathPattern::new(pattern).expect("a pattern");
            assert_eq!(made.matches(path), matches, "{pattern} {path}");
        }
    }

    #[test]
    fn a_wrong_pattern_says_what_would_be_right() {
        for (pattern, words) in [
            ("search", "\"/search\""),
            ("", "\"/\""),
            ("/users/:id", "{id}"),
            ("/files/*", "{*rest}"),
            ("/a/{*rest}/b", "last segment"),
            ("/a/b{*rest}", "whole last segment"),
            ("/{a}{b}", "one parameter"),
            ("/{a}b", "one parameter"),
            ("/{}", "has a name"),
            ("/{*}", "has a name"),
            ("/{open", "has a name"),
            ("/close}", "has a name"),
        ] {
            let error = PathPattern::new(pattern).expect_err(pattern);
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }
}
