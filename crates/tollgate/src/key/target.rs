//! What a request is for as the key: its method, and its path with what is in it.

use std::fmt::Debug;
#[cfg(feature = "axum")]
use std::{
    borrow::Cow,
    task::{Context, Poll, Waker},
};

#[cfg(feature = "axum")]
use axum::extract::RawPathParams;
use tollgate_core::{Key, KeyBuf, PartKind};

#[cfg(feature = "axum")]
use crate::head::Head;
use crate::{
    key::{
        extractor::{KeyExtractor, NoKey},
        extractor_fn::{Plus, decoded, exactly_one, named, part},
    },
    routes::whole_path,
};

/// Counts by the request's method; mostly a part of a tuple. The key has one part of [`PartKind::METHOD`].
///
/// A client may invent methods, and each has its own budget. Reject unknown methods in front of the limit, or combine this
/// with another extractor.
#[must_use]
pub fn method() -> impl KeyExtractor + Clone + Debug {
    part("method", PartKind::METHOD, |head| {
        Ok(head.method.as_str().into())
    })
}

/// Counts by the request's path, without the query. The key has one part of [`PartKind::PATH`].
///
/// Use it for gRPC, where the path is `/package.Service/Method`. For HTTP use the route's pattern (`matched_path`, with the
/// feature `axum`): a path has many spellings (`/a`, `/%61`), and each has its own budget. It is the path that the condition
/// [`path`](crate::condition::path()) sees, with the prefixes of nested routers.
#[must_use]
pub fn path() -> impl KeyExtractor + Clone + Debug {
    part("path", PartKind::PATH, |head| Ok(whole_path(head)))
}

/// Counts by the pattern of the route, such as `/users/{id}`. The key has one part of [`PartKind::ROUTE`].
///
/// axum knows the pattern only inside of the router. In a layer around the whole router, and in the fallback, the result is
/// [`NoKey::Misconfigured`].
#[cfg(feature = "axum")]
#[must_use]
pub fn matched_path() -> impl KeyExtractor + Clone + Debug {
    part("route", PartKind::ROUTE, |head| {
        match head.extensions.get::<axum::extract::MatchedPath>() {
            Some(route) => Ok(route.as_str().into()),
            None => Err(NoKey::Misconfigured(
                "the request has no MatchedPath: add the layer inside of axum's router, with Router::route_layer or \
                 Router::layer; the router's fallback has none"
                    .into(),
            )),
        }
    })
}

/// Counts by a parameter of the route: `path_parameter("tenant")` on `/tenants/{tenant}/orders`.
///
/// The value is percent-decoded by axum. A route without this parameter, or an empty value, is no key. The layer belongs
/// inside of the router (`Router::route_layer` or `Router::layer`); elsewhere the result is [`NoKey::Misconfigured`].
///
/// axum gives its parameters only to its own extractors, which take the whole request. So this clones the request's extensions,
/// with one small allocation for each. If that is too expensive, use [`extension`](crate::key::extension()) or
/// [`computed`](crate::key::computed()).
///
/// The key has two parts of [`PartKind::PATH_PARAMETER`], the name and the decoded value.
#[cfg(feature = "axum")]
pub fn path_parameter(name: impl Into<String>) -> impl KeyExtractor + Clone + Debug {
    let given = name.into();
    let name = match given.is_empty() || given.contains(['{', '}', '/', '*']) {
        true => Err(format!(
            "{given:?} is not the name of a path parameter: take it without braces, as in path_parameter(\"tenant\")"
        )),
        false => Ok(given),
    };
    let kind = PartKind::PATH_PARAMETER;
    named("path_parameter", kind, name, |head, name| {
        let parameters = parameters(head)?;
        let values = parameters.iter().filter(|(other, _)| other == name);
        exactly_one(values).map(|(_, value)| Cow::Owned(value.as_bytes().to_vec()))
    })
}

/// The key that `path_parameter` makes of a value as it is sent, for those who find it without axum.
pub fn path_parameter_key(name: &str, value: &str) -> Key {
    let mut key = KeyBuf::new();
    key.push(PartKind::PATH_PARAMETER, name);
    key.push(
        PartKind::PATH_PARAMETER,
        decoded(value.as_bytes(), Plus::Literal),
    );
    key.into()
}

/// Counts by a parameter of the query: `query("token")` finds `abc` in `/search?token=abc`.
///
/// Names and values are percent-decoded, and `+` is a space, so that another spelling of a value is no second budget. Pairs are
/// separated by `&` only. A repeated parameter, in any spelling, is [`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous); an empty
/// one is no key. Case matters.
///
/// The key has two parts of [`PartKind::QUERY_PARAMETER`], the name and the decoded value.
pub fn query(name: impl Into<String>) -> impl KeyExtractor + Clone + Debug {
    let name = match name.into() {
        name if name.is_empty() => {
            Err("query(\"\") names no parameter; use its name, as in query(\"token\")".to_owned())
        }
        name => Ok(name),
    };
    named("query", PartKind::QUERY_PARAMETER, name, |head, name| {
        let query = head.uri.query().unwrap_or_default();
        let values = query.as_bytes().split(|&b| b == b'&').filter_map(|pair| {
            let end = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (other, value) = pair.split_at(end);
            (*decoded(other, Plus::Space) == *name.as_bytes())
                .then(|| value.get(1..).unwrap_or_default())
        });
        exactly_one(values).map(|value| decoded(value, Plus::Space))
    })
}

/// Counts by the gRPC service that is called, `weather.v1.Weather`: the first segment of the path. The key has one part of
/// [`PartKind::GRPC_SERVICE`].
///
/// A path that is not of the form `/service/method` has no key. A client may call services that do not
/// exist, and each has its own budget: such calls cost nothing but the response.
#[must_use]
pub fn grpc_service() -> impl KeyExtractor + Clone + Debug {
    part("grpc_service", PartKind::GRPC_SERVICE, |head| {
        let called = service_and_method(head.uri.path());
        called.map_or(Err(NoKey::Absent), |(service, _)| Ok(service.into()))
    })
}

/// Counts by the gRPC method that is called, with its service: `weather.v1.Weather/Current`. The key has one part of
/// [`PartKind::GRPC_METHOD`].
///
/// A path that is not of the form `/service/method` has no key.
#[must_use]
pub fn grpc_method() -> impl KeyExtractor + Clone + Debug {
    part("grpc_method", PartKind::GRPC_METHOD, |head| {
        let called = service_and_method(head.uri.path());
        called.map_or(Err(NoKey::Absent), |_| Ok(head.uri.path()[1..].into()))
    })
}

#[cfg(feature = "axum")]
fn parameters(head: &Head<'_>) -> Result<RawPathParams, NoKey> {
    use axum::extract::{FromRequestParts as _, rejection::RawPathParamsRejection};

    let (mut copy, ()) = http::Request::new(()).into_parts();
    copy.extensions = head.extensions.clone();
    // axum reads the extensions only, so the first poll is ready.
    let answer = std::pin::pin!(RawPathParams::from_request_parts(&mut copy, &()));
    match answer.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(parameters)) => Ok(parameters),
        Poll::Ready(Err(RawPathParamsRejection::InvalidUtf8InPathParam(_))) => Err(NoKey::Absent),
        Poll::Ready(Err(_)) | Poll::Pending => Err(NoKey::Misconfigured(
            "the request has no path parameters: add the layer inside of axum's router, with Router::route_layer or \
             Router::layer"
                .into(),
        )),
    }
}

/// The service and the method of a path, `/weather.v1.Weather/Current`.
pub(crate) fn service_and_method(path: &str) -> Option<(&str, &str)> {
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    (!service.is_empty() && !method.is_empty() && !method.contains('/'))
        .then_some((service, method))
}
