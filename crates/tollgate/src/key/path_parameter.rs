//! A parameter of axum's route as the key.

use std::{
    fmt::Debug,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::extract::{FromRequestParts, RawPathParams, rejection::RawPathParamsRejection};
use http::Request;
use tollgate_core::{KeyBuf, PartKind};

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor, NoKey, extractor},
        value::{exactly_one, push_named},
    },
};

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
pub fn path_parameter(name: impl Into<String>) -> impl KeyExtractor + Clone + Debug {
    let name = name.into();
    let mistake = (name.is_empty() || name.contains(['{', '}', '/', '*'])).then(|| {
        format!(
            "{name:?} is not the name of a path parameter: take it without braces, as in path_parameter(\"tenant\")"
        )
    });
    let extract = move |head: &Head<'_>, key: &mut KeyBuf| {
        let parameters = match parameters(head) {
            Ok(parameters) => parameters,
            Err(why) => return Extracted::Nothing(why),
        };
        let values = parameters.iter().filter(|(other, _)| *other == name);
        let value = exactly_one(values).map(|(_, value)| value);
        push_named(key, PartKind::PATH_PARAMETER, &name, value)
    };
    extractor("path_parameter", extract).with_mistake(mistake)
}

fn parameters(head: &Head<'_>) -> Result<RawPathParams, NoKey> {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.extensions = head.extensions.clone();
    // axum reads the extensions only, so the first poll is ready.
    let answer = pin!(RawPathParams::from_request_parts(&mut copy, &()));
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
