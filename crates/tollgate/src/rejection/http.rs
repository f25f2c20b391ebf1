//! Denials over HTTP.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, Version,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
};
use tollgate_core::{Clock, Quota, Reason, Rule};

use crate::{
    header::template::Values,
    rejection::{
        bodies::{OpenBody, json, problem, text},
        denial::Denial,
        details::DenialDetails,
        style::{Responses, Style},
    },
};

impl Responses {
    /// The response, without `Retry-After` and the quota's fields. A HEAD request gets no body.
    pub(super) fn http(&self, denial: &Denial<'_>) -> Response<Bytes> {
        let mut response = match &self.rejection.0 {
            Style::Custom(respond) => respond(denial),
            style => self.built_in(style, denial),
        };
        if denial.head().method == Method::HEAD && !response.body().is_empty() {
            // The length for GET (RFC 9110 §8.6); otherwise a server would send that of the empty body.
            let length = HeaderValue::from(response.body().len());
            response.headers_mut().insert(CONTENT_LENGTH, length);
            response.body_mut().clear();
        }
        response
    }

    fn built_in(&self, style: &Style, denial: &Denial<'_>) -> Response<Bytes> {
        let mut response = Response::new(self.body(denial));
        *response.status_mut() = denial.status();
        // Room for these, `Retry-After`, two fields about the quota and the length; and for the date, which over HTTP/2 is written
        // with the others.
        let is_http1 = denial.head().version < Version::HTTP_2;
        let mut headers = HeaderMap::with_capacity(if is_http1 { 6 } else { 7 });
        if let Some(media_type) = media_type(style) {
            headers.insert(CONTENT_TYPE, media_type);
        }
        const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
        headers.insert(CACHE_CONTROL, NO_STORE);
        *response.headers_mut() = headers;
        response
    }

    fn body(&self, denial: &Denial<'_>) -> Bytes {
        let wait = denial.retry_after();
        if let Style::Template(template) = &self.rejection.0 {
            let exceeded = denial.exceeded().next().filter(|_| !denial.hides_quota());
            let quota = exceeded.map(|it| (it.rule(), it.plan(), it.remaining()));
            let values = Values::new(denial.rules(), quota, wait, Clock::system().now());
            let values = values.with_reason(denial.shown_reason().map(Reason::as_str));
            return template.json(&values).into();
        }
        match (self.prepared_body(denial), opener(&self.rejection.0)) {
            (Some(prepared), _) => prepared.close(wait),
            (None, Some(open)) => open(&DenialDetails::of(denial)).close(wait),
            (None, None) => Bytes::new(),
        }
    }

    /// The prepared body, for a denial by one quota.
    fn prepared_body(&self, denial: &Denial<'_>) -> Option<&OpenBody> {
        let is_usual = denial.status() == self.status && !denial.hides_quota();
        let open = opener(&self.rejection.0).filter(|_| is_usual)?;
        let (rule, plan) = denial.only_quota()?;
        let make =
            |rule: &Rule, quota: &Quota| open(&DenialDetails::used_up(rule, quota, self.status));
        self.bodies.find_or_make(denial.rules(), rule, plan, make)
    }
}

/// The function that makes the body, if there is one.
fn opener(style: &Style) -> Option<fn(&DenialDetails<'_>) -> OpenBody> {
    match style {
        Style::Problem => Some(problem),
        Style::Json => Some(json),
        Style::Text => Some(text),
        Style::Empty | Style::Template(_) | Style::Custom(_) => None,
    }
}

fn media_type(style: &Style) -> Option<HeaderValue> {
    // Constants, because a conversion at run time validates each byte.
    const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
    match style {
        Style::Problem => Some(PROBLEM),
        Style::Json | Style::Template(_) => Some(JSON),
        Style::Text => Some(TEXT),
        Style::Empty | Style::Custom(_) => None,
    }
}
