//! Paths with parameters, as axum's router matches them.

use std::{borrow::Cow, cmp::Ordering, fmt, sync::Arc};

use tollgate_core::{RuleError, RuleErrorKind};

use crate::routes::{PathOf, PathShape, Segment, whole_path};

use crate::head::Head;

/// A path with parameters, as axum's router matches it: `/users/{id}`, `/files/{*rest}`.
///
/// A parameter stands for one segment, or for its end, as in `/v{version}`. A catch-all stands for the rest of the path. At the end of a
/// path both need at least one character. Before a slash a parameter may be empty: `/users//posts` matches `/users/{id}/posts`, and `id`
/// has no value then. To match a brace, double it. The pattern is compared with the path as outer layers have rewritten it,
/// not decoded. Under a nested router, it has to begin with the prefix of that router.
///
/// As a condition it is [`path`](crate::condition::path()). Cheap to clone.
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
#[derive(Clone)]
pub struct PathPattern {
    text: Arc<str>,
    parts: Arc<[Part]>,
}

#[derive(Clone, Debug)]
enum Part {
    Literal(String),
    /// `v{version}`: at least one character behind the prefix where the path ends.
    Parameter {
        prefix: String,
        name: String,
    },
    /// At least one character, and any number of segments.
    CatchAll {
        name: String,
    },
}

impl PathPattern {
    /// A pattern as it is written.
    ///
    /// # Errors
    ///
    /// A text that is not a pattern. The error says what would be right.
    pub fn new(text: &str) -> Result<Self, RuleError> {
        let parts = Self::parts(text).map_err(|wrong| {
            let message = format!("{text:?} is not a path: {wrong}");
            RuleError::general(RuleErrorKind::RuleSet, message)
        })?;
        Ok(Self {
            text: text.into(),
            parts: parts.into(),
        })
    }

    fn parts(text: &str) -> Result<Vec<Part>, String> {
        let path = match absolute(text)? {
            "" => return Err("a path begins with a slash; did you mean \"/\"?".into()),
            path => &path[1..],
        };
        let braced: Vec<_> = path.split('/').map(braced).collect();
        if braced.iter().any(Option::is_some) {
            let segments = path.split('/').zip(&braced);
            let segments = segments.map(|(segment, braced)| braced.as_deref().unwrap_or(segment));
            let meant = segments.collect::<Vec<_>>().join("/");
            return Err(format!(
                "parameters are written in braces; did you mean \"/{meant}\"?"
            ));
        }
        let parts: Vec<Part> = path.split('/').map(Part::new).collect::<Result<_, _>>()?;
        let last = parts.len() - 1;
        if parts[..last]
            .iter()
            .any(|part| matches!(part, Part::CatchAll { .. }))
        {
            return Err("a catch-all is the last segment, as /files/{*rest}".into());
        }
        if let Some(wrong) = parts
            .iter()
            .find_map(|part| literal_mistake(part.literal()))
        {
            return Err(wrong);
        }
        let sent: String = parts
            .iter()
            .map(|part| format!("/{}", part.escaped()))
            .collect();
        // Braces of literals stay: some clients send them.
        if parts
            .iter()
            .any(|part| escaped(part.literal()) != part.literal())
        {
            return Err(format!(
                "clients send some of its characters escaped, and a path is compared as it is sent; did you mean {sent:?}?"
            ));
        }
        Ok(parts)
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
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Parameter { name, .. } | Part::CatchAll { name } => Some(&**name),
        })
    }

    /// Which of two patterns names a path more exactly; the greater one does. They are compared segment by segment: a literal is
    /// above a parameter, and a parameter above a catch-all.
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        let ranks = self.parts.iter().map(Part::rank);
        ranks.cmp(other.parts.iter().map(Part::rank))
    }

    /// Whether both match the same paths: they differ in the names of their parameters at most.
    #[must_use]
    pub fn matches_same_paths(&self, other: &Self) -> bool {
        let mut pairs = self.parts.iter().zip(&*other.parts);
        self.parts.len() == other.parts.len() && pairs.all(|(one, other)| one.is_alike(other))
    }

    /// Whether a path matches. Calls `parameter` with the name and the value of each parameter up to where it does.
    fn walk<'p>(&self, path: &'p str, mut parameter: impl FnMut(&str, &'p str)) -> bool {
        let Some(mut rest) = path.strip_prefix('/') else {
            return false;
        };
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            let (segment, behind) = match rest.split_once('/') {
                Some((segment, behind)) => (segment, Some(behind)),
                None => (rest, None),
            };
            match part {
                Part::Literal(literal) if segment == literal => {}
                Part::Literal(_) => return false,
                Part::Parameter { prefix, name } => match segment.strip_prefix(&**prefix) {
                    None => return false,
                    // Before a slash it may be empty, so that no request passes by rules on a route that it has.
                    Some("") if behind.is_none() => return false,
                    Some(value) => parameter(name, value),
                },
                Part::CatchAll { name } => {
                    parameter(name, rest);
                    return !rest.is_empty();
                }
            }
            match behind {
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
            Part::CatchAll { .. } => None,
        });
        PathShape {
            of,
            segments: segments.collect(),
            is_open: matches!(self.parts.last(), Some(Part::CatchAll { .. })),
        }
    }
}

impl fmt::Debug for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Part {
    fn new(segment: &str) -> Result<Self, String> {
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
        if let Some(name) = name.strip_suffix("...") {
            return Err(format!(
                "a catch-all has a star in front; did you mean \"{{*{name}}}\"?"
            ));
        }
        if let Some(end) = name.find([':', '?', '<', '(', ' ']) {
            return Err(format!(
                "a parameter is its name alone, and matches any segment; did you mean \"{{{}}}\"?",
                &name[..end]
            ));
        }
        match name.strip_prefix('*') {
            None if name.is_empty() || name.contains(['{', '*']) => no_name(),
            None => Ok(Self::Parameter {
                prefix,
                name: name.to_owned(),
            }),
            Some(name) if name.is_empty() || name.contains('*') => no_name(),
            Some(name) if prefix.is_empty() => Ok(Self::CatchAll {
                name: name.to_owned(),
            }),
            Some(_) => Err("a catch-all is the whole last segment, as /files/{*rest}".into()),
        }
    }

    /// The text that a segment has, or begins with.
    fn literal(&self) -> &str {
        match self {
            Self::Literal(text) | Self::Parameter { prefix: text, .. } => text,
            Self::CatchAll { .. } => "",
        }
    }

    /// It as a pattern, with its literal as clients send it.
    fn escaped(&self) -> String {
        let literal = escaped(self.literal());
        let literal = literal.replace('{', "{{").replace('}', "}}");
        match self {
            Self::Literal(_) => literal,
            Self::Parameter { name, .. } => format!("{literal}{{{name}}}"),
            Self::CatchAll { name } => format!("{{*{name}}}"),
        }
    }

    /// How exactly it names a segment: the most exact above.
    fn rank(&self) -> u8 {
        match self {
            Self::CatchAll { .. } => 0,
            Self::Parameter { .. } => 1,
            Self::Literal(_) => 2,
        }
    }

    /// Whether it is the same but for the name of a parameter.
    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Literal(one), Self::Literal(two)) => one == two,
            (Self::Parameter { prefix: one, .. }, Self::Parameter { prefix: two, .. }) => {
                one == two
            }
            (Self::CatchAll { .. }, Self::CatchAll { .. }) => true,
            _ => false,
        }
    }
}

/// What is wrong with the text of a prefix of paths, or of a path without parameters.
pub(crate) fn prefix_mistake(text: &str) -> Option<String> {
    let wrong = |mistake: String| Some(format!("{text:?} is not a path: {mistake}"));
    match absolute(text) {
        Err(mistake) => return wrong(mistake),
        Ok(path) if path.contains(['{', '}']) || path.split('/').any(|s| braced(s).is_some()) => {
            return wrong(
                "this is no pattern, so nothing stands for a parameter; take path(\"/users/{id}/{*rest}\")".into(),
            );
        }
        Ok(_) => {}
    }
    if let Some(mistake) = text.split('/').find_map(literal_mistake) {
        return wrong(mistake);
    }
    let sent = escaped(text);
    (sent != text).then_some(())?;
    wrong(format!(
        "clients send some of its characters escaped, and a path is compared as it is sent; did you mean {sent:?}?"
    ))
}

/// A path that begins with a slash and has no query.
fn absolute(text: &str) -> Result<&str, String> {
    if let Some((_, path)) = text.split_once("://") {
        let path = path.find('/').map_or("/", |at| &path[at..]);
        return Err(format!(
            "a path has no scheme and no host; did you mean {path:?}?"
        ));
    }
    if !text.is_empty() && !text.starts_with('/') {
        return Err(format!(
            "a path begins with a slash; did you mean \"/{text}\"?"
        ));
    }
    let is_outside = |at: usize| {
        let before = &text[..at];
        before.matches('{').count() == before.matches('}').count()
    };
    let mut ends = text.match_indices(['?', '#']).map(|(at, _)| at);
    match ends.find(|at| is_outside(*at)) {
        None => Ok(text),
        Some(end) => Err(format!(
            "a path ends before the query; did you mean {:?}?",
            &text[..end]
        )),
    }
}

/// A segment whose parameter other routers would write like this: `:id`, `*rest`, `<id>`, `[id]`, `${id}`.
fn braced(segment: &str) -> Option<String> {
    let name = |text: &str| {
        let name = text.rsplit([':', ' ']).next().unwrap_or_default();
        let name = name.trim_matches(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
        (!name.is_empty()).then(|| name.to_owned())
    };
    let enclosed = |open: char, close: char| {
        let (prefix, rest) = segment.split_once(open)?;
        if open != '{' && prefix.contains('{') {
            return None;
        }
        let (inner, _) = rest.split_once(close)?;
        let parameter = match inner.contains("..") || inner.contains('*') {
            true => format!("{{*{}}}", name(inner)?),
            false => format!("{{{}}}", name(inner)?),
        };
        let prefix = prefix.strip_suffix('$').unwrap_or(prefix);
        Some(format!("{prefix}{parameter}"))
    };
    if let Some(rest) = segment.strip_prefix(':') {
        return Some(format!("{{{}}}", name(rest).unwrap_or_else(|| "id".into())));
    }
    if let Some(rest) = segment.strip_prefix('*') {
        return Some(format!(
            "{{*{}}}",
            name(rest).unwrap_or_else(|| "rest".into())
        ));
    }
    if segment.contains("${") {
        return enclosed('{', '}');
    }
    enclosed('<', '>').or_else(|| enclosed('[', ']'))
}

/// What is wrong with the text of a segment: no request has it, however it is escaped.
fn literal_mistake(segment: &str) -> Option<String> {
    if segment.contains('*') {
        return Some(
            "a star stands for nothing; write /files/{*rest} for all below a path, and /v{version} for the end of a segment"
                .into(),
        );
    }
    let decoded = segment.replace("%2e", ".").replace("%2E", ".");
    matches!(&*decoded, "." | "..").then(|| {
        format!("clients resolve a segment {segment:?} before they send a path; leave it out")
    })
}

/// A text of a path as clients send it (RFC 3986 §3.3). Braces, slashes and what is escaped stay.
fn escaped(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ if b"-._~!$&'()*+,;=:@%/{}".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    bytes.collect()
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
                let request = http::Request::get(path).body(Body::empty());
                let request = request.expect("a request");
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
            ("search", "\"/search\""),
            ("", "\"/\""),
            ("/files/*", "did you mean \"/files/{*rest}\"?"),
            ("/search*", "a star stands for nothing"),
            ("/users/[id]", "did you mean \"/users/{id}\"?"),
            ("/docs/[...slug]", "did you mean \"/docs/{*slug}\"?"),
            ("/users/{id:[0-9]+}", "did you mean \"{id}\"?"),
            ("/files/{rest...}", "did you mean \"{*rest}\"?"),
            ("/files/{**rest}", "has a name"),
            ("https://example.com/a", "did you mean \"/a\"?"),
            ("/a/../b", "resolve a segment \"..\""),
            ("/a/{*rest}/b", "last segment"),
            ("/a/b{*rest}", "whole last segment"),
            ("/{a}{b}", "one parameter"),
            ("/{}", "has a name"),
            ("/{open", "has a name"),
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
        let values = values.each_ref().map(Option::as_deref);
        assert_eq!(values, [Some("2"), Some("7"), Some("a/b"), None]);
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
