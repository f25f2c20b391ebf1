//! A parameter of axum's route as the key.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::extract::{FromRequestParts, RawPathParams, rejection::RawPathParamsRejection};
use http::{Request, request::Parts};
use tollgate_core::{KeyBuf, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor, NoKey},
    value::{push_named, sole},
};

/// Counts by a parameter of the route: `path_parameter("tenant")` on `/tenants/{tenant}/orders`.
///
/// The value is percent-decoded by axum. A route without this parameter, or an empty value, is no key. The layer belongs
/// inside of the router (`Router::route_layer` or `Router::layer`); elsewhere the answer is [`NoKey::Misconfigured`].
///
/// axum hands its parameters only to its own extractors, which want the request for themselves. So the request's extensions
/// are cloned for each call: one small allocation for each of them. Where that is too much, count by an
/// [`extension`](crate::key::extension()) or a [`key_fn`](crate::key::key_fn()).
///
/// The key has two parts of [`PartKind::PATH_PARAMETER`], the name and the decoded value.
pub fn path_parameter(name: impl Into<String>) -> PathParameter {
    PathParameter { name: name.into() }
}

/// The extractor that [`path_parameter`] makes.
#[derive(Clone, Debug)]
pub struct PathParameter {
    name: String,
}

impl KeyExtractor for PathParameter {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        let parameters = match parameters(head) {
            Ok(parameters) => parameters,
            Err(why) => return Extracted::Nothing(why),
        };
        let values = parameters.iter().filter(|(name, _)| *name == self.name);
        let value = sole(values).map(|(_, value)| value);
        push_named(key, PartKind::PATH_PARAMETER, &self.name, value)
    }

    fn validate(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.contains(['{', '}', '/', '*']) {
            return Err(format!(
                "{:?} is not the name of a path parameter: take it without braces, as in path_parameter(\"tenant\")",
                self.name
            ));
        }
        Ok(())
    }
}

fn parameters(head: &Parts) -> Result<RawPathParams, NoKey> {
    let (mut copy, ()) = Request::new(()).into_parts();
    copy.extensions = head.extensions.clone();
    // axum answers from the extensions alone, so the first poll is the last one.
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
