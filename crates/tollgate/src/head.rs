//! The head of a request, borrowed.

use http::{Extensions, HeaderMap, Method, Request, Uri, Version, request::Parts};

/// The head of a request, borrowed from it: what extractors, conditions and closures read.
///
/// Methods that take a head take a [`Request`] or its [`Parts`] as well.
///
/// ```
/// use http::Request;
/// use tollgate::Head;
///
/// let request = Request::get("/search?q=rust").header("x-api-key", "k1").body("")?;
/// let head = Head::from(&request);
/// assert_eq!(head.uri.path(), "/search");
/// assert!(head.headers.contains_key("x-api-key"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// What outer layers and the server have added.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for Head<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

impl From<&Self> for Head<'_> {
    fn from(head: &Self) -> Self {
        *head
    }
}

impl Head<'_> {
    /// A copy with these header fields, and without extensions.
    pub(crate) fn to_parts(self, headers: HeaderMap) -> Parts {
        let (mut copy, ()) = Request::new(()).into_parts();
        copy.method = self.method.clone();
        copy.uri = self.uri.clone();
        copy.version = self.version;
        copy.headers = headers;
        copy
    }
}

// Without header fields and extensions, which may identify a client.
tollgate_core::debug_fields!(Head<'a>, it => method: it.method, version: it.version);
