//! Paths with parameters, as axum's router matches them.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use tollgate_core::RuleError;

use crate::{
    diagnostics::wrong_setting,
    head::Head,
    routes::{PathShape, ShapeOf, whole_path},
};

/// A path with parameters, as axum's router matches it: that of the condition [`path`](crate::condition::path()), which says how. Cheap
/// to clone.
///
/// ```
/// use tollgate::siblings::PathPattern;
///
/// let users = PathPattern::new("/users/{id}/{*rest}")?;
/// let (head, ()) = http::Request::get("/users/7/a/b").body(())?.into_parts();
/// assert!(users.matches(&head));
/// assert_eq!(users.parameter(&head, "id").as_deref(), Some("7"));
/// assert_eq!(users.parameter(&head, "rest").as_deref(), Some("a/b"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PathPattern {
    text: Arc<str>,
    parts: Arc<[Part]>,
    /// The name of the catch-all behind them.
    rest: Option<Arc<str>>,
}

/// A segment.
#[derive(Clone, Debug)]
struct Part {
    /// Its text, or what is in front of the parameter: `v` in `v{version}`.
    literal: String,
    parameter: Option<String>,
}

impl PathPattern {
    /// A pattern as it is written.
    ///
    /// # Errors
    ///
    /// A text that is not a pattern. The error says what would be right.
    pub fn new(text: &str) -> Result<Self, RuleError> {
        Self::parse(text).map_err(|wrong| wrong_setting(format!("{text:?} is not a path: {wrong}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (segments, rest) = match text.rsplit_once("/{*") {
            Some((segments, rest)) => (segments, Some(name(rest).ok_or(PARAMETERS)?)),
            None => (text, None),
        };
        let parts = segments.split('/').skip(1).map(Part::new);
        let parts: Arc<[Part]> = parts.collect::<Option<_>>().ok_or(PARAMETERS)?;
        match mistake(text, parts.iter().map(|part| &*part.literal)) {
            Some(mistake) => Err(mistake),
            None => Ok(Self {
                text: text.into(),
                parts,
                rest: rest.map(Into::into),
            }),
        }
    }

    /// The pattern as it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the path of a request matches.
    pub fn matches<'h>(&self, head: impl Into<Head<'h>>) -> bool {
        self.walk(&whole_path(&head.into()), |_, _| {})
    }

    /// The value of a parameter or catch-all in the path of a request, undecoded and never empty. `None`: the path does not match,
    /// or the pattern has no parameter of this name.
    pub fn parameter<'h>(&self, head: impl Into<Head<'h>>, name: &str) -> Option<Cow<'h, str>> {
        match whole_path(&head.into()) {
            Cow::Borrowed(path) => self.value(path, name).map(Cow::Borrowed),
            Cow::Owned(path) => self
                .value(&path, name)
                .map(|value| Cow::Owned(value.to_owned())),
        }
    }

    fn value<'p>(&self, path: &'p str, name: &str) -> Option<&'p str> {
        let mut found = None;
        let matches = self.walk(path, |parameter, value| {
            if parameter == name {
                found.get_or_insert(value);
            }
        });
        found.filter(|value| matches && !value.is_empty())
    }

    /// The names of its parameters and of its catch-all, in their order.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let parameters = self.parts.iter().filter_map(|it| it.parameter.as_deref());
        parameters.chain(self.rest.as_deref())
    }

    /// Which of two patterns names a path more exactly; the greater one does. They are compared segment by segment: a literal is
    /// above a parameter, and a parameter above a catch-all.
    #[must_use]
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        self.ranks().cmp(other.ranks())
    }

    /// How exactly each segment is named: the most exact above.
    fn ranks(&self) -> impl Iterator<Item = u8> {
        let ranks = self.parts.iter().map(|part| match part.parameter {
            Some(_) => 1,
            None => 2,
        });
        ranks.chain(self.rest.iter().map(|_| 0))
    }

    /// Whether both match the same paths: they differ in the names of their parameters at most.
    #[must_use]
    pub fn matches_same_paths(&self, other: &Self) -> bool {
        let mut both = self.parts.iter().zip(&*other.parts);
        self.ranks().eq(other.ranks()) && both.all(|(one, other)| one.literal == other.literal)
    }

    /// Whether a path matches. Calls `parameter` with the name and the value of each parameter up to where it does.
    fn walk<'p>(&self, path: &'p str, mut parameter: impl FnMut(&str, &'p str)) -> bool {
        let mut rest = path.strip_prefix('/');
        for part in &*self.parts {
            let Some(left) = rest else {
                return false;
            };
            let (segment, behind) = match left.split_once('/') {
                Some((segment, behind)) => (segment, Some(behind)),
                None => (left, None),
            };
            let Some(value) = segment.strip_prefix(&*part.literal) else {
                return false;
            };
            match &part.parameter {
                None if !value.is_empty() => return false,
                None => {}
                // Before a slash it may be empty, so that no request passes by rules on a route that it has.
                Some(_) if value.is_empty() && behind.is_none() => return false,
                Some(name) => parameter(name, value),
            }
            rest = behind;
        }
        match (rest, &self.rest) {
            (Some(rest), Some(name)) => {
                parameter(name, rest);
                !rest.is_empty()
            }
            (rest, name) => rest.is_none() && name.is_none(),
        }
    }

    /// All paths that it matches have this shape.
    pub(crate) fn shape(&self) -> PathShape {
        let segments = self.parts.iter().map(|part| match part.parameter {
            Some(_) => None,
            None => Some((&*part.literal).into()),
        });
        PathShape {
            of: ShapeOf::Path,
            segments: segments.collect(),
            is_open: self.rest.is_some(),
        }
    }
}

impl Part {
    /// `None`: a parameter is written in another way.
    fn new(segment: &str) -> Option<Self> {
        let (literal, parameter) = unescaped(segment)?;
        let parameter = match parameter {
            // Other routers write a dollar in front of one.
            Some(parameter) if !literal.ends_with('$') => Some(name(parameter)?.to_owned()),
            Some(_) => return None,
            None => None,
        };
        Some(Self { literal, parameter })
    }
}

/// The name of a parameter, whose closing brace is the last character. `None`: other routers write patterns and marks next to one.
fn name(parameter: &str) -> Option<&str> {
    let name = parameter.strip_suffix('}')?;
    let is_other = name.contains(['/', '{', '}', '*', ':', '?', '<', '(', ' ']);
    (!name.is_empty() && !is_other && !name.ends_with("...")).then_some(name)
}

/// How parameters are written.
const PARAMETERS: &str = "a parameter is a name in braces at the end of a segment, as /users/{id} or /v{version}, and the rest of a \
                          path is a last segment, as /files/{*rest}";

/// What is wrong with the text of a prefix of paths.
pub(crate) fn prefix_mistake(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let mistake = match text.contains(['{', '}']) || text.split('/').any(has_parameter) {
        true => "this is no pattern, so nothing stands for a parameter; take path(\"/users/{id}/{*rest}\")".to_owned(),
        false => mistake(text, text.split('/'))?,
    };
    Some(format!("{text:?} is not a path: {mistake}"))
}

/// What is wrong with a path that has these literals: no request has them.
fn mistake<'l>(text: &str, mut literals: impl Iterator<Item = &'l str>) -> Option<String> {
    if !text.starts_with('/') {
        return Some("a path begins with a slash".to_owned());
    }
    literals.find_map(|literal| {
        let sent = escaped(literal);
        let decoded = literal.replace("%2e", ".").replace("%2E", ".");
        if has_parameter(literal) {
            Some(PARAMETERS.to_owned())
        } else if literal.contains(['?', '#']) {
            Some("a path ends before the query".to_owned())
        } else if matches!(&*decoded, "." | "..") {
            Some(format!("clients resolve a segment {literal:?} before they send a path; leave it out"))
        } else {
            (sent != literal).then(|| {
                format!("clients send {literal:?} escaped, and a path is compared as it is sent; write {sent:?}")
            })
        }
    })
}

/// Whether other routers take a literal for a parameter: `:id`, `*rest`, `<id>`, `[id]`.
fn has_parameter(literal: &str) -> bool {
    literal.starts_with(':') || literal.contains(['*', '<', '>', '[', ']'])
}

/// A text of a path as clients send it (RFC 3986 §3.3). Braces, which some clients send, and what is escaped stay.
fn escaped(text: &str) -> String {
    let is_sent =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%{}".contains(&byte);
    let bytes = text.bytes().map(|byte| match is_sent(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

/// The text of a segment up to its parameter, in which braces are doubled, and what follows the brace that opens the parameter.
/// `None`: a brace closes nothing.
fn unescaped(segment: &str) -> Option<(String, Option<&str>)> {
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
            None => return (brace == "{").then_some((text, Some(behind))),
        }
    }
    text.push_str(rest);
    Some((text, None))
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, routing::get};
    use tower::ServiceExt;

    use http::request::Parts;

    use super::*;

    #[tokio::test]
    async fn paths_match_as_in_axums_router() {
        let patterns = [
            "/",
            "/a",
            "/a/",
            "/a/b",
            "/{x}",
            "/{x}/",
            "/a/{x}",
            "/{x}/b",
            "/{x}/{y}",
            "/v{x}",
            "/a/v{x}/b",
            "/{*x}",
            "/a/{*x}",
            "/{x}/{*y}",
            "/{{a}}",
            "/{{{x}",
        ];
        let paths = [
            "/", "//", "/a", "/a/", "/a//", "/a/b", "/a//b", "/a/b/", "/b", "/v", "/v2", "/a/v/b",
            "/a/v2/b", "/a/%2F", "/{a}", "/{", "/{7",
        ];
        for text in patterns {
            let router = Router::<()>::new().route(text, get(|| async {}));
            for path in paths {
                let request = http::Request::get(path)
                    .body(Body::empty())
                    .expect("a request");
                let head = head(path);
                let Ok(response) = router.clone().oneshot(request).await;
                let is_routed = response.status().is_success();
                assert_eq!(pattern(text).matches(&head), is_routed, "{text} {path}");
            }
        }
    }

    #[test]
    fn a_wrong_pattern_says_what_would_be_right() {
        for (pattern, words) in [
            ("search", "begins with a slash"),
            ("", "begins with a slash"),
            ("https://example.com/a", "begins with a slash"),
            ("/files/*", "/files/{*rest}"),
            ("/search*", "/files/{*rest}"),
            ("/users/:id", "/users/{id}"),
            ("/users/<id>", "/users/{id}"),
            ("/users/[id]", "/users/{id}"),
            ("/users/${id}", "/users/{id}"),
            ("/users/{id:[0-9]+}", "/users/{id}"),
            ("/files/{rest...}", "/files/{*rest}"),
            ("/files/{**rest}", "/files/{*rest}"),
            ("/a/{*rest}/b", "last segment"),
            ("/a/{*rest/b}", "last segment"),
            ("/a/b{*rest}", "last segment"),
            ("/{a}{b}", "end of a segment"),
            ("/{}", "a name in braces"),
            ("/{open", "a name in braces"),
            ("/a/../b", "resolve a segment \"..\""),
            ("/search?q={q}", "before the query"),
            ("/café/{id}", "\"caf%C3%A9\""),
        ] {
            let error = PathPattern::new(pattern).expect_err(pattern).to_string();
            assert!(error.contains(words), "{pattern}: {error}");
        }
    }
    fn pattern(text: &str) -> PathPattern {
        PathPattern::new(text).expect("a pattern")
    }

    fn head(path: &str) -> Parts {
        let request = http::Request::get(path).body(()).expect("a request");
        request.into_parts().0
    }

    #[test]
    fn parameters_have_the_value_that_a_matching_path_has_for_them() {
        let users = pattern("/v{version}/{id}/x/{*rest}");
        let names: Vec<_> = users.parameters().collect();
        assert_eq!(names, ["version", "id", "rest"]);
        let path = head("/v2/7/x/a/b?rest=c");
        let value = |name| users.parameter(&path, name);
        let values = ["version", "id", "rest", "other"].map(value);
        let texts = values.each_ref().map(Option::as_deref);
        assert_eq!(texts, [Some("2"), Some("7"), Some("a/b"), None]);
        assert_eq!(users.parameter(&head("/v2//x/a"), "id"), None);
        // What the start of a path has says nothing.
        assert_eq!(users.parameter(&head("/v2/7/y/a"), "id"), None);
        assert_eq!(users.parameter(&head("/v2/7/x/"), "rest"), None);
        assert_eq!(pattern("/{{a}}").parameters().count(), 0);
    }

    #[test]
    fn the_more_specific_pattern_is_the_greater_one() {
        let ascending = [
            "/{*rest}",
            "/{a}",
            "/{a}/{b}",
            "/{a}/b",
            "/a",
            "/a/{*rest}",
            "/a/v{b}",
            "/a/b",
        ];
        for (index, one) in ascending.iter().enumerate() {
            for (other_index, other) in ascending.iter().enumerate() {
                let order = pattern(one).cmp_specificity(&pattern(other));
                assert_eq!(order, index.cmp(&other_index), "{one} {other}");
            }
        }
        let order = pattern("/a/{b}").cmp_specificity(&pattern("/c/v{d}"));
        assert_eq!(order, Ordering::Equal);
    }
}
