//! Responses that browsers treat with care.

use std::fmt::Display;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// Nothing from elsewhere, nothing inline, in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";

const JSON: &str = "application/json";

/// What is wrong with a request of the page, in words for its reader.
#[derive(Debug)]
pub(crate) struct Wrong(StatusCode, String);

impl Wrong {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self(status, message.into())
    }

    pub(crate) fn input(message: impl Display) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message.to_string())
    }
}

pub(crate) type Answer = Result<Value, Wrong>;

pub(crate) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let fields = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        fields.insert(name, HeaderValue::from_static("same-origin"));
    }
    response
}

pub(crate) fn answer(body: &Value) -> Response {
    respond(StatusCode::OK, JSON, body.to_string())
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        respond(status, JSON, json!({ "error": message }).to_string())
    }
}

pub(crate) fn redirect(to: &str) -> Response {
    let mut response = respond(
        StatusCode::TEMPORARY_REDIRECT,
        "text/plain; charset=utf-8",
        "",
    );
    // A path that was requested has no letters that are not allowed in a field.
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}
