//! Denials over HTTP, and their bodies.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, Version,
    header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE},
};
use tollgate_core::{Reason, RuleSet, wall_clock};

use crate::{
    head::Head,
    header::{PerQuota, template::Values, whole_seconds},
    json_text::{JsonObject, push_list, push_text},
    protocol::WireProtocol,
    rejection::{
        denial::Denial,
        details::Message,
        style::{Rejection, Style},
    },
};

/// Rejections for one rule set, prepared once.
#[derive(Debug)]
pub(crate) struct Responses {
    rejection: Rejection,
    /// That of an exceeded quota.
    status: StatusCode,
    /// The body of a denial by one quota, with this status.
    bodies: PerQuota<OpenBody>,
    /// The `QuotaFailure` of a denial by one quota.
    pub(super) failures: PerQuota<Message>,
}

impl Responses {
    /// Prepares responses. `status` is that of an exceeded quota.
    pub(crate) fn new(rejection: Rejection, rules: &RuleSet, status: StatusCode) -> Self {
        Self {
            rejection,
            status,
            bodies: PerQuota::new(rules),
            failures: PerQuota::new(rules),
        }
    }

    /// The response, without `Retry-After` and the quota's fields.
    pub(crate) fn respond(&self, denial: &Denial<'_>, protocol: WireProtocol) -> Response<Bytes> {
        match protocol {
            WireProtocol::Http => {
                let mut response = self.http(denial);
                clear_for_head(&denial.head(), &mut response);
                response
            }
            _ => self.grpc(denial, protocol),
        }
    }

    /// The response with its body, which HEAD does not get.
    fn http(&self, denial: &Denial<'_>) -> Response<Bytes> {
        // Constants, because a conversion at run time validates each byte.
        const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
        const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
        let (media_type, body) = match &self.rejection.0 {
            Style::Problem => (Some(PROBLEM), self.body(denial, problem)),
            Style::Json => (Some(JSON), self.body(denial, json)),
            Style::Text => (Some(TEXT), self.body(denial, text)),
            Style::Template(template) => {
                let exceeded = denial.exceeded().next().filter(|_| !denial.hides_quota());
                let quota = exceeded.map(|it| (it.rule(), it.plan(), it.remaining()));
                let reason = denial.shown_reason().map(Reason::as_str);
                let wait = denial.retry_after();
                let values = Values::new(denial.rules, quota, reason, wait, wall_clock());
                (Some(JSON), template.json(&values).into())
            }
            Style::Empty => (None, Bytes::new()),
            Style::Custom(respond) => return respond(denial),
        };
        let mut response = Response::new(body);
        *response.status_mut() = denial.status();
        // Room for these, `Retry-After`, two fields about the quota and the length; and for the date, which over HTTP/2 is written
        // with the others.
        let is_http1 = denial.head().version < Version::HTTP_2;
        let mut headers = HeaderMap::with_capacity(if is_http1 { 6 } else { 7 });
        if let Some(media_type) = media_type {
            headers.insert(CONTENT_TYPE, media_type);
        }
        headers.insert(CACHE_CONTROL, NO_STORE);
        *response.headers_mut() = headers;
        response
    }

    fn body(&self, denial: &Denial<'_>, open: fn(&Denial<'_>) -> OpenBody) -> Bytes {
        let only = denial.only_quota().filter(|_| denial.status == self.status);
        let wait = denial.retry_after();
        match only.and_then(|(rule, plan)| self.bodies.cell(rule, plan)) {
            Some(prepared) => prepared.get_or_init(|| open(denial)).close(wait),
            None => open(denial).close(wait),
        }
    }
}

/// A HEAD request gets no body, but the length for GET (RFC 9110 §8.6); otherwise a server would send that of the empty body.
pub(crate) fn clear_for_head(head: &Head<'_>, response: &mut Response<Bytes>) {
    if head.method == Method::HEAD && !response.body().is_empty() {
        let length = HeaderValue::from(response.body().len());
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response.body_mut().clear();
    }
}

/// A body without its end, the retry time. The rest is the same for each denial by a quota, and is prepared once.
#[derive(Debug)]
enum OpenBody {
    /// A JSON object with a member or more, without its closing brace.
    Object(String),
    /// Sentences, without the line feed.
    Text(String),
}

impl OpenBody {
    /// The complete body, with the retry time if there is one: in an object as `retry_after_ms`, in text in seconds as in
    /// `Retry-After`. Both are rounded up.
    fn close(&self, wait: Option<Duration>) -> Bytes {
        let mut digits = itoa::Buffer::new();
        let parts = match (self, wait) {
            (Self::Object(begun), None) => [begun, "}", "", ""],
            (Self::Object(begun), Some(wait)) => {
                let millis = digits.format(whole_millis(wait));
                [begun, ",\"retry_after_ms\":", millis, "}"]
            }
            (Self::Text(begun), None) => [begun, "\n", "", ""],
            (Self::Text(begun), Some(wait)) => {
                let seconds = digits.format(whole_seconds(wait));
                [begun, " Try again in ", seconds, " s.\n"]
            }
        };
        // It has the exact capacity, so that `Bytes` takes it without a copy.
        parts.concat().into()
    }
}

/// Rounded up and capped.
fn whole_millis(wait: Duration) -> u64 {
    let millis = wait.as_secs().saturating_mul(1_000);
    millis.saturating_add(u64::from(wait.subsec_micros().div_ceil(1_000)))
}

/// The type that the `RateLimit` drafts ask IANA to register.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

fn problem(denial: &Denial<'_>) -> OpenBody {
    let mut body = JsonObject::new();
    let problem_type = match denial.is_quota() {
        true => QUOTA_EXCEEDED,
        false => "about:blank",
    };
    body.text("type", problem_type);
    body.text("title", denial.title());
    body.number("status", u64::from(denial.status.as_u16()));
    if let Some(detail) = denial.detail() {
        body.text("detail", &detail);
    }
    let policies = denial.shown_policies();
    if !policies.is_empty() {
        // The draft's name, whose hyphens contradict RFC 9457.
        body.member("violated-policies", |json| {
            push_list(json, &policies, |json, policy| push_text(json, policy.name));
        });
    }
    if let Some(reason) = denial.reason_word() {
        body.text("reason", reason);
    }
    OpenBody::Object(body.open())
}

fn json(denial: &Denial<'_>) -> OpenBody {
    let mut body = JsonObject::new();
    let error = match denial.shown_reason() {
        None => "refused",
        Some(Reason::Quota) => "rate_limit_exceeded",
        Some(Reason::Never) => "cost_too_high",
        Some(Reason::Slots) => "too_many_at_once",
        Some(Reason::QueueFull) => "too_many_waiting",
        Some(Reason::WaitExpired) => "waited_too_long",
        Some(Reason::NoKey) => "no_key",
        Some(Reason::Blocked) => "blocked",
        Some(_) => "unavailable",
    };
    body.text("error", error);
    let detail = denial.detail();
    body.text("message", detail.as_deref().unwrap_or(denial.title()));
    if let Some(policy) = denial.shown_policies().first() {
        body.text("rule", policy.name);
    }
    OpenBody::Object(body.open())
}

fn text(denial: &Denial<'_>) -> OpenBody {
    let mut text = format!("{}.", denial.title());
    if let Some(detail) = denial.detail() {
        text.push(' ');
        text.push_str(&detail);
    }
    OpenBody::Text(text)
}
