//! The response in gRPC: `Trailers-Only`, with the details that clients know.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
    request::Parts,
};
use tollgate_core::{Reason, Retry, RuleSet};

use crate::{
    header::{
        PerQuota,
        name::{GRPC_MESSAGE, GRPC_RETRY_PUSHBACK, GRPC_STATUS, GRPC_STATUS_DETAILS},
    },
    key::{NoKey, service_and_method},
    protocol::Spoken,
    rejection::{
        denial::Denial,
        facts::{Exceeded, Facts},
        protobuf::{Message, any, retry_info},
    },
};

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
const QUOTA_FAILURE: &str = "type.googleapis.com/google.rpc.QuotaFailure";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// Of a `QuotaFailure`: with everything beside it, in base64, less than 4 KiB. Clients take 8 KiB of header fields in all.
const LONGEST_FAILURE: usize = 2_560;

/// Denials in gRPC for one rule set. Made once, when the rule set comes into force.
#[derive(Debug)]
pub(crate) struct GrpcRejection {
    /// The `QuotaFailure` of the usual denial, by one quota.
    used_up: PerQuota<Message>,
}

/// A status with its message: plain, and percent-encoded for the header.
#[derive(Clone, Copy, Debug)]
struct Told {
    code: u8,
    message: &'static str,
    encoded: &'static str,
}

const EXCEEDED: Told = told(8, "rate limit exceeded", "rate%20limit%20exceeded");
const UNAVAILABLE: Told = told(14, "service unavailable", "service%20unavailable");
const UNAUTHENTICATED: u8 = 16;

const fn told(code: u8, message: &'static str, encoded: &'static str) -> Told {
    Told {
        code,
        message,
        encoded,
    }
}

impl GrpcRejection {
    /// Prepares the details.
    pub(crate) fn new(rules: &RuleSet) -> Self {
        Self {
            used_up: PerQuota::new(rules, |rule, quota| {
                quota_failure(&Facts::used_up(rule, quota, StatusCode::TOO_MANY_REQUESTS).exceeded)
            }),
        }
    }

    /// The response, without `Retry-After` and the quota's fields. `spoken` is a form of gRPC.
    ///
    /// A response without a body whose fields say the status is `Trailers-Only`: clients may retry it, which they may not
    /// once a response has begun.
    pub(crate) fn respond(&self, denial: &Denial<'_>, spoken: Spoken) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        // Room for these, `Retry-After` and two fields about the quota.
        let mut fields = HeaderMap::with_capacity(8);
        fields.insert(CONTENT_TYPE, content_type(denial.head(), spoken));
        self.write_status(&mut fields, denial);
        if let Some(pushback) = pushback(denial) {
            fields.insert(GRPC_RETRY_PUSHBACK, pushback);
        }
        *response.headers_mut() = fields;
        response
    }

    /// The trailers of a response that has begun: the status and its details. When to come back is in the details; the
    /// fields about the quota must not be in trailers, and a call that has begun is not retried.
    pub(crate) fn trailers(&self, denial: &Denial<'_>) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(3);
        self.write_status(&mut fields, denial);
        fields
    }

    fn write_status(&self, fields: &mut HeaderMap, denial: &Denial<'_>) {
        let told = told_of(denial);
        fields.insert(GRPC_STATUS, HeaderValue::from(u16::from(told.code)));
        fields.insert(GRPC_MESSAGE, HeaderValue::from_static(told.encoded));
        if told.code == EXCEEDED.code {
            fields.insert(GRPC_STATUS_DETAILS, self.details(told, denial));
        }
    }

    /// `google.rpc.Status` with RetryInfo, QuotaFailure and ErrorInfo; on a quiet route with RetryInfo alone.
    fn details(&self, told: Told, denial: &Denial<'_>) -> HeaderValue {
        // As much as the usual denial takes.
        let mut status = Message::with_capacity(512)
            .uint(1, told.code.into())
            .text(2, told.message);
        if let Some(wait) = denial.retry_after() {
            status = status.message(3, &any(RETRY_INFO, &retry_info(wait)));
        }
        if !denial.is_quiet() {
            status = match self.prepared(denial) {
                Some(failure) => status.and(failure),
                None => status.and(&quota_failure(&Facts::of(denial).exceeded)),
            };
            status = status.message(3, &any(ERROR_INFO, &error_info(denial)));
        }
        // Without padding, as senders should. It is ASCII.
        let encoded = BASE64_STANDARD_NO_PAD.encode(status.as_bytes());
        HeaderValue::from_maybe_shared(Bytes::from(encoded))
            .unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// The `QuotaFailure` of the usual denial.
    fn prepared(&self, denial: &Denial<'_>) -> Option<&Message> {
        let mut exceeded = denial.exceeded();
        match (denial.reason(), exceeded.next(), exceeded.next()) {
            (Reason::Quota, Some(only), None) => self.used_up.find(only.rule(), only.plan()),
            _ => None,
        }
    }
}

/// The status of a denial (STATUS CODES of gRPC: a quota is RESOURCE_EXHAUSTED, what failed on our side UNAVAILABLE).
fn told_of(denial: &Denial<'_>) -> Told {
    match denial.reason() {
        Reason::Quota => EXCEEDED,
        Reason::Never => told(
            8,
            "the request costs more than the limit ever allows",
            "the%20request%20costs%20more%20than%20the%20limit%20ever%20allows",
        ),
        Reason::NoKey => without_key(denial),
        _ => UNAVAILABLE,
    }
}

/// The rule says a status of HTTP; the code is the one that means the same.
fn without_key(denial: &Denial<'_>) -> Told {
    let code = match denial.status().as_u16() {
        400 | 422 => 3,
        403 => 7,
        404 => 5,
        429 => return EXCEEDED,
        500.. => return UNAVAILABLE,
        _ => UNAUTHENTICATED,
    };
    match denial.no_key() {
        _ if denial.is_quiet() => told(code, "refused", "refused"),
        Some(NoKey::Ambiguous) => told(
            code,
            "the request carries its key more than once",
            "the%20request%20carries%20its%20key%20more%20than%20once",
        ),
        // How a service is set up is no business of its clients.
        Some(NoKey::Misconfigured(_)) => told(
            code,
            "the service cannot tell who is asking",
            "the%20service%20cannot%20tell%20who%20is%20asking",
        ),
        _ => told(
            code,
            "the request has no key",
            "the%20request%20has%20no%20key",
        ),
    }
}

/// `details` with a `QuotaFailure`: a violation for each policy that was exceeded, as far as there is room.
fn quota_failure(exceeded: &[Exceeded<'_>]) -> Message {
    let mut failure = Message::default();
    if exceeded.is_empty() {
        return failure;
    }
    for policy in exceeded {
        let violation = Message::default()
            .text(1, &format!("policy:{}", policy.name))
            .text(2, &policy.to_string())
            .text(5, policy.name)
            .uint(7, policy.limit());
        let longer = failure.clone().message(1, &violation);
        if longer.as_bytes().len() > LONGEST_FAILURE {
            break;
        }
        failure = longer;
    }
    Message::default().message(3, &any(QUOTA_FAILURE, &failure))
}

/// Why, for programs: the reason, and the service that was called as the domain in which the reason means something.
fn error_info(denial: &Denial<'_>) -> Message {
    let reason = match denial.reason() {
        Reason::Never => "COST_EXCEEDS_LIMIT",
        _ => "RATE_LIMIT_EXCEEDED",
    };
    let service = service_and_method(denial.head().uri.path());
    let domain = service.map_or("", |(service, _)| service);
    // A client may have made it up.
    let domain = if domain.len() <= 128 { domain } else { "" };
    Message::default().text(1, reason).text(2, domain)
}

/// `grpc-retry-pushback-ms` (gRFC A6): when the client may retry, or -1 where a retry is of no use. None where nothing is
/// known, so that the client's own backoff decides.
fn pushback(denial: &Denial<'_>) -> Option<HeaderValue> {
    const NEVER: HeaderValue = HeaderValue::from_static("-1");
    if denial.retry() == Retry::Never {
        return Some(NEVER);
    }
    // What does not fit is weeks away; a sooner one would be too early.
    Some(millis(denial.retry_after()?).map_or(NEVER, HeaderValue::from))
}

/// Rounded up; `None` where it is more than a signed number of 32 bits.
fn millis(wait: Duration) -> Option<u32> {
    let millis = wait.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).ok()?.try_into().ok()
}

fn content_type(head: &Parts, spoken: Spoken) -> HeaderValue {
    const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
    const WEB: HeaderValue = HeaderValue::from_static("application/grpc-web+proto");
    const WEB_TEXT: HeaderValue = HeaderValue::from_static("application/grpc-web-text+proto");
    match spoken {
        Spoken::GrpcWeb { text } if wants_text(head).unwrap_or(text) => WEB_TEXT,
        Spoken::GrpcWeb { .. } => WEB,
        Spoken::Http | Spoken::Grpc => GRPC,
    }
}

/// Which form of gRPC-Web the client accepts, if it says so.
fn wants_text(head: &Parts) -> Option<bool> {
    let accept = head.headers.get(ACCEPT)?.to_str().ok()?;
    if accept.contains("application/grpc-web-text") {
        Some(true)
    } else if accept.contains("application/grpc-web") {
        Some(false)
    } else {
        None
    }
}
