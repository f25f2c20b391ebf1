//! Where a condition can be true; and words that describe a request besides its head.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::head::Head;

/// On every other path a condition is false: an [index](crate::rate_limit) finds the rules of a request by these. The default is any
/// path. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(pub(crate) Option<Arc<[PathShape]>>);

/// What of a request has the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShapeOf {
    /// The [whole path](whole_path).
    Path,
    /// The [words](Words) that describe the request in its place.
    Words,
}

/// The paths that have these segments, the parts between slashes.
#[derive(Clone, Debug)]
pub(crate) struct PathShape {
    pub(crate) of: ShapeOf,
    /// `None` is any.
    pub(crate) segments: Box<[Option<Box<str>>]>,
    /// Whether any more segments may follow.
    pub(crate) is_open: bool,
}

impl Routes {
    pub(crate) fn of_path(path: PathShape) -> Self {
        Self(Some([path].into()))
    }

    /// Where both conditions can be true.
    pub(crate) fn and(&self, other: &Self) -> Self {
        // Either is where both can be true.
        let either = [&self.0, &other.0].into_iter().flatten();
        Self(either.min_by_key(|paths| paths.len()).cloned())
    }

    /// Where either condition can be true.
    pub(crate) fn or(&self, other: &Self) -> Self {
        let both = self.0.as_ref().zip(other.0.as_ref());
        Self(both.map(|(one, two)| one.iter().chain(&**two).cloned().collect()))
    }
}

/// The path of the request that a handler serves: as outer layers have rewritten it, with the prefixes that routers have stripped.
///
/// Not axum's `OriginalUri`, which is what the outermost router has got: a layer behind that router may have rewritten it.
pub(crate) fn whole_path<'h>(head: &Head<'h>) -> Cow<'h, str> {
    #[cfg(feature = "axum")]
    if let Some(prefix) = head.extensions.get::<axum::extract::NestedPath>() {
        let path = head.uri.path();
        let original = head
            .extensions
            .get::<axum::extract::OriginalUri>()
            .map_or(path, |original| original.0.path());
        return with_prefix(prefix.as_str().trim_end_matches('/'), original, path);
    }
    head.uri.path().into()
}

/// `path` below the route `prefix`, whose parameters have their values in `original`.
#[cfg(feature = "axum")]
fn with_prefix<'h>(prefix: &str, original: &'h str, path: &'h str) -> Cow<'h, str> {
    let segments = || prefix.split('/').skip(1);
    let mut rest = Some(original);
    for segment in segments() {
        let behind = rest.and_then(|rest| rest.strip_prefix('/'));
        rest = behind.and_then(|behind| {
            let (is, rest) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
            (segment.contains('{') || segment == is).then_some(rest)
        });
    }
    if rest.is_some_and(|rest| rest == path || (rest.is_empty() && path == "/")) {
        return original.into();
    }
    // Rewritten before the prefix was stripped. Layers that do so add and remove empty segments.
    let mut sent = original
        .split('/')
        .filter(|segment| !segment.is_empty())
        .chain(std::iter::repeat(""));
    let mut whole = String::new();
    for segment in segments() {
        let value = sent.next().unwrap_or_default();
        whole.push('/');
        whole.push_str(if segment.contains('{') {
            value
        } else {
            segment
        });
    }
    if path != "/" {
        whole.push_str(path);
    }
    whole.into()
}

/// Words that describe a request besides its head: an extension of the head, for conditions [on them](crate::siblings::words_are). A
/// server that proxies ask puts the words of the proxy there.
///
/// ```
/// use tollgate::{Head, siblings::{Words, words_are}};
///
/// let condition = words_are([Some("sms".to_owned()), None]);
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(Words::from_iter(["sms", "+441234"]));
/// assert!(condition(&Head::from(&head)));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Words(Vec<String>);

impl Words {
    /// The words, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(String::as_str)
    }
}

impl<W: Into<String>> FromIterator<W> for Words {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        Self(words.into_iter().map(Into::into).collect())
    }
}

/// Without the words, which may be clients.
impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.0.len())
    }
}
