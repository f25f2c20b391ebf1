//! Denials in gRPC: `Trailers-Only` responses with standard error details.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use tollgate_core::{Reason, Retry};

use crate::{
    head::Head,
    header::name::{GRPC_MESSAGE, GRPC_RETRY_PUSHBACK, GRPC_STATUS, GRPC_STATUS_DETAILS},
    key::{NoKey, service_and_method},
    protocol::WireProtocol,
    rejection::{
        denial::Denial,
        details::{Exceeded, Message, any, retry_info},
        http::Responses,
    },
};

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &str = "type.googleapis.com/google.rpc.QuotaFailure";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// The maximum length of a `QuotaFailure`: with the other details, in base64, less than 4 KiB. Clients accept 8 KiB of header
/// fields in total.
const MAX_QUOTA_FAILURE: usize = 2_560;

/// A status with its message, whose characters need no percent-encoding: printable ASCII without `%`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status(u8, &'static str);

const EXCEEDED: Status = Status(8, "rate limit exceeded");
/// That of a call that is shed, and of a failure on our side.
pub(crate) const UNAVAILABLE: Status = Status(14, "service unavailable");
/// That of a request in gRPC-Web that reached a limit on messages without being translated to gRPC.
pub(crate) const UNIMPLEMENTED: Status = Status(
    12,
    "gRPC-Web is not translated to gRPC in front of the limit on messages",
);
const UNAUTHENTICATED: u8 = 16;

impl Responses {
    /// The response, without `Retry-After` and the quota's fields. `protocol` is gRPC or gRPC-Web.
    ///
    /// A response without a body and with the status in its header fields is `Trailers-Only`: clients may retry it, unlike one
    /// that has begun.
    pub(super) fn grpc(&self, denial: &Denial<'_>, protocol: WireProtocol) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        // Room for these, `Retry-After` and two fields about the quota.
        let mut fields = HeaderMap::with_capacity(8);
        fields.insert(CONTENT_TYPE, content_type(&denial.head(), protocol));
        self.write_status(&mut fields, denial);
        if let Some(pushback) = pushback(denial) {
            fields.insert(GRPC_RETRY_PUSHBACK, pushback);
        }
        *response.headers_mut() = fields;
        response
    }

    /// The trailers of a response that has begun: the status and its details, which include the retry time. Quota fields must
    /// not be in trailers, and clients do not retry a call that has begun.
    pub(crate) fn trailers(&self, denial: &Denial<'_>) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(3);
        self.write_status(&mut fields, denial);
        fields
    }

    fn write_status(&self, fields: &mut HeaderMap, denial: &Denial<'_>) {
        let status = status_of(denial);
        insert_status(fields, status);
        if status.0 == EXCEEDED.0 || denial.reason() == Reason::Blocked {
            fields.insert(GRPC_STATUS_DETAILS, self.details(status, denial));
        }
    }

    /// `google.rpc.Status` with RetryInfo, QuotaFailure and ErrorInfo; with a hidden quota RetryInfo alone.
    fn details(&self, Status(code, text): Status, denial: &Denial<'_>) -> HeaderValue {
        // Enough for a denial by one quota.
        let mut status = Message::with_capacity(512)
            .uint(1, code.into())
            .text(2, text);
        if let Some(wait) = denial.retry_after() {
            status = status.message(3, &any(RETRY_INFO, &retry_info(wait)));
        }
        if !denial.hides_quota() {
            let make = || quota_failure(&denial.shown_policies());
            let only = denial.only_quota();
            status = match only.and_then(|(rule, plan)| self.failures.cell(rule, plan)) {
                Some(prepared) => status.and(prepared.get_or_init(make)),
                None => status.and(&make()),
            };
            status = status.message(3, &any(ERROR_INFO, &error_info(denial)));
        }
        // Without padding, as senders should. It is ASCII.
        let encoded = BASE64_STANDARD_NO_PAD.encode(status.as_bytes());
        HeaderValue::from_maybe_shared(Bytes::from(encoded))
            .unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// A response that is only a status, with a pushback if the client may retry after a time. `protocol` is gRPC or gRPC-Web.
pub(crate) fn trailers_only(
    head: &Head<'_>,
    protocol: WireProtocol,
    status: Status,
    wait: Option<Duration>,
) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, content_type(head, protocol));
    insert_status(fields, status);
    if let Some(millis) = wait.and_then(millis) {
        fields.insert(GRPC_RETRY_PUSHBACK, HeaderValue::from(millis));
    }
    response
}

fn insert_status(fields: &mut HeaderMap, Status(code, message): Status) {
    fields.insert(GRPC_STATUS, HeaderValue::from(u16::from(code)));
    fields.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
}

/// The status of a denial (STATUS CODES of gRPC: a quota is RESOURCE_EXHAUSTED, a failure on our side UNAVAILABLE).
fn status_of(denial: &Denial<'_>) -> Status {
    match denial.shown_reason() {
        _ if denial.reason() == Reason::NoKey => without_key(denial),
        Some(Reason::Quota) => EXCEEDED,
        Some(Reason::Never) => Status(8, "the request costs more than the limit ever allows"),
        Some(Reason::Slots) => Status(8, "too many requests at once"),
        Some(Reason::QueueFull) => Status(8, "too many requests wait"),
        Some(Reason::WaitExpired) => Status(8, "the time to wait is over"),
        Some(Reason::Blocked) => Status(code_of(denial.status()), "blocked"),
        Some(_) => UNAVAILABLE,
        None => Status(code_of(denial.status()), "refused"),
    }
}

/// The code that corresponds to the HTTP status of the rule.
fn code_of(status: StatusCode) -> u8 {
    match status.as_u16() {
        400 | 422 => 3,
        403 => 7,
        404 => 5,
        429 => EXCEEDED.0,
        500.. => UNAVAILABLE.0,
        _ => UNAUTHENTICATED,
    }
}

fn without_key(denial: &Denial<'_>) -> Status {
    let code = code_of(denial.status());
    match denial.no_key() {
        _ if code == EXCEEDED.0 => EXCEEDED,
        _ if code == UNAVAILABLE.0 => UNAVAILABLE,
        _ if denial.hides_quota() => Status(code, "refused"),
        Some(NoKey::Ambiguous) => Status(code, "the request carries its key more than once"),
        // Clients learn nothing about the set-up.
        Some(NoKey::Misconfigured(_)) => Status(code, "the service cannot tell who is asking"),
        _ => Status(code, "the request has no key"),
    }
}

/// `details` with a `QuotaFailure`: a violation for each exceeded policy, as many as fit.
fn quota_failure(exceeded: &[Exceeded<'_>]) -> Message {
    let mut failure = Message::default();
    if exceeded.is_empty() {
        return failure;
    }
    for policy in exceeded {
        let violation = Message::default()
            .text(1, &format!("policy:{}", policy.name))
            .text(2, &policy.sentence())
            .text(5, policy.name)
            .uint(7, policy.limit());
        let longer = failure.clone().message(1, &violation);
        if longer.as_bytes().len() > MAX_QUOTA_FAILURE {
            break;
        }
        failure = longer;
    }
    Message::default().message(3, &any(QUOTA_FAILURE, &failure))
}

/// `ErrorInfo`: the machine-readable reason, with the called service as its domain.
fn error_info(denial: &Denial<'_>) -> Message {
    let reason = match denial.reason() {
        Reason::Never => "COST_EXCEEDS_LIMIT",
        Reason::Slots => "CONCURRENCY_LIMIT_EXCEEDED",
        Reason::QueueFull => "WAIT_QUEUE_FULL",
        Reason::WaitExpired => "WAIT_EXPIRED",
        Reason::Blocked => "BLOCKED",
        _ => "RATE_LIMIT_EXCEEDED",
    };
    let service = service_and_method(denial.head().uri.path());
    let domain = service.map_or("", |(service, _)| service);
    // The client chooses it.
    let domain = if domain.len() <= 128 { domain } else { "" };
    Message::default().text(1, reason).text(2, domain)
}

/// `grpc-retry-pushback-ms` (gRFC A6): when the client may retry, or -1 if it should not. `None` if the time is unknown, so
/// that the client uses its own backoff.
fn pushback(denial: &Denial<'_>) -> Option<HeaderValue> {
    const NEVER: HeaderValue = HeaderValue::from_static("-1");
    if denial.retry() == Retry::Never {
        return Some(NEVER);
    }
    // A time that does not fit is weeks away; a shorter one would be too early.
    Some(millis(denial.retry_after()?).map_or(NEVER, HeaderValue::from))
}

/// Rounded up; `None` if it does not fit into an `i32`.
fn millis(wait: Duration) -> Option<u32> {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).ok()?.try_into().ok()
}

fn content_type(head: &Head<'_>, protocol: WireProtocol) -> HeaderValue {
    const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
    const WEB: HeaderValue = HeaderValue::from_static("application/grpc-web+proto");
    const WEB_TEXT: HeaderValue = HeaderValue::from_static("application/grpc-web-text+proto");
    match protocol {
        WireProtocol::GrpcWeb { text } if wants_text(head).unwrap_or(text) => WEB_TEXT,
        WireProtocol::GrpcWeb { .. } => WEB,
        WireProtocol::Http | WireProtocol::Grpc => GRPC,
    }
}

/// Whether the client accepts the text form of gRPC-Web, if it says so.
fn wants_text(head: &Head<'_>) -> Option<bool> {
    let accept = head.headers.get(ACCEPT)?.to_str().ok()?;
    let is_text = accept.contains("application/grpc-web-text");
    (is_text || accept.contains("application/grpc-web")).then_some(is_text)
}
