//! Where a condition can be true; and words that describe a request besides its head.

use std::{borrow::Cow, fmt, sync::Arc};

use http::Method;

use crate::head::Head;

/// The paths and methods outside of which a condition is false: what an [index](crate::rate_limit) over the rules of a layer goes
/// by. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routes {
    /// `None`: any path.
    pub(crate) paths: Option<Arc<[PathShape]>>,
    pub(crate) methods: Methods,
}

/// A set of methods. Those that are not of HTTP itself are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Methods(u16);

/// Which path of a request is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathOf {
    /// That of the URI, from which routers have stripped prefixes.
    Uri,
    /// The [whole](whole_path) one.
    Whole,
    /// The [words](Words) that describe the request in its place.
    Words,
    /// The route that has matched.
    #[cfg(feature = "axum")]
    Route,
}

/// The paths that have these segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathShape {
    pub(crate) of: PathOf,
    pub(crate) segments: Box<[Segment]>,
    /// Whether any more segments may follow.
    pub(crate) is_open: bool,
}

/// A part of a path between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(Box<str>),
    Any,
}

impl Routes {
    /// Any request.
    pub(crate) const fn any() -> Self {
        Self {
            paths: None,
            methods: Methods::ALL,
        }
    }

    pub(crate) fn of_methods(methods: Methods) -> Self {
        Self {
            methods,
            ..Self::any()
        }
    }

    pub(crate) fn of_path(path: PathShape) -> Self {
        Self {
            paths: Some([path].into()),
            ..Self::any()
        }
    }

    /// Where both conditions can be true.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let paths = match (&self.paths, &other.paths) {
            (None, paths) | (paths, None) => paths,
            // Either is where both can be true.
            (Some(one), Some(two)) if two.len() < one.len() => &other.paths,
            _ => &self.paths,
        };
        Self {
            paths: paths.clone(),
            methods: Methods(self.methods.0 & other.methods.0),
        }
    }

    /// Where either condition can be true.
    pub(crate) fn or(&self, other: &Self) -> Self {
        let paths = self.paths.as_ref().zip(other.paths.as_ref());
        Self {
            paths: paths.map(|(one, two)| one.iter().chain(&**two).cloned().collect()),
            methods: Methods(self.methods.0 | other.methods.0),
        }
    }
}

impl Methods {
    pub(crate) const ALL: Self = Self(u16::MAX);

    pub(crate) fn of(method: &Method) -> Self {
        Self(
            1 << match *method {
                Method::GET => 0,
                Method::HEAD => 1,
                Method::POST => 2,
                Method::PUT => 3,
                Method::DELETE => 4,
                Method::PATCH => 5,
                Method::OPTIONS => 6,
                Method::CONNECT => 7,
                Method::TRACE => 8,
                _ => 9,
            },
        )
    }

    /// Whether it is a method of HTTP itself.
    pub(crate) fn is_standard(self) -> bool {
        self.0 < 1 << 9
    }

    pub(crate) fn any_of<'a>(methods: impl IntoIterator<Item = &'a Method>) -> Self {
        let methods = methods.into_iter().map(Self::of);
        methods.fold(Self(0), |all, one| Self(all.0 | one.0))
    }

    /// Whether the sets meet.
    #[inline]
    pub(crate) fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl PathShape {
    /// The path with exactly these segments, behind its first slash.
    pub(crate) fn exactly(of: PathOf, path: &str) -> Self {
        Self {
            of,
            segments: path
                .split('/')
                .map(|it| Segment::Literal(it.into()))
                .collect(),
            is_open: false,
        }
    }

    /// It, and all below it.
    pub(crate) fn under(of: PathOf, path: &str) -> Self {
        Self {
            is_open: true,
            ..Self::exactly(of, path)
        }
    }
}

impl PathOf {
    /// `None` where there is none, and of words.
    pub(crate) fn path<'h>(self, head: &Head<'h>) -> Option<Cow<'h, str>> {
        match self {
            Self::Words => None,
            Self::Uri => Some(head.uri.path().into()),
            Self::Whole => Some(whole_path(head)),
            #[cfg(feature = "axum")]
            Self::Route => {
                let route = head.extensions.get::<axum::extract::MatchedPath>();
                route.map(|route| route.as_str().into())
            }
        }
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
