//! The status of a gRPC call that was rejected in the head of the response.

use std::time::Duration;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, header};
use prost::Message;

/// `RESOURCE_EXHAUSTED`.
const EXHAUSTED: &[u8] = b"8";
/// `UNAVAILABLE`.
const UNAVAILABLE: &[u8] = b"14";
/// `PERMISSION_DENIED` and `UNAUTHENTICATED`: a block, where the details say when it ends.
const BLOCKED: [&[u8]; 2] = [b"7", b"16"];

/// Longer details are ignored; clients cap a whole head at 8 KiB.
const MOST_DETAILS: usize = 16 << 10;

/// With or without padding: servers send both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The status of a call that a gRPC server rejects for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrpcStatus {
    /// Whether the call may be retried. After `RESOURCE_EXHAUSTED` only if the server says when, as OTLP's clients do.
    pub(crate) may_retry: bool,
    /// How long the server asks to wait.
    pub(crate) wait: Option<Duration>,
}

impl GrpcStatus {
    /// The status, if it is `RESOURCE_EXHAUSTED`, `UNAVAILABLE`, or that of a block with an end.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let content_type = headers.get(header::CONTENT_TYPE)?.as_bytes();
        if !content_type
            .get(..16)?
            .eq_ignore_ascii_case(b"application/grpc")
        {
            return None;
        }
        let status = headers.get("grpc-status")?.as_bytes();
        let is_block = BLOCKED.contains(&status);
        if !is_block && ![EXHAUSTED, UNAVAILABLE].contains(&status) {
            return None;
        }
        let details = headers
            .get("grpc-status-details-bin")
            .map(|details| details.as_bytes())
            .filter(|details| details.len() <= MOST_DETAILS)
            .and_then(|details| BASE64.decode(details).ok());
        let retry_info = details.as_deref().and_then(retry_delay);
        if is_block && retry_info.is_none() {
            return None;
        }
        // A negative or malformed value means: do not retry (gRFC A6).
        let pushback = headers.get("grpc-retry-pushback-ms").map(|value| {
            let millis: i32 = value.to_str().ok()?.parse().ok()?;
            Some(Duration::from_millis(u64::try_from(millis).ok()?))
        });
        let wait = retry_info.max(pushback.flatten());
        let says_when = status == UNAVAILABLE || wait.is_some();
        Some(Self {
            may_retry: pushback != Some(None) && says_when,
            wait,
        })
    }
}

/// `google.rpc.Status`, as far as it is read.
#[derive(Message)]
struct Status {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.RetryInfo`.
#[derive(Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// The delay of the `RetryInfo` in a serialised status, if it is not negative.
fn retry_delay(status: &[u8]) -> Option<Duration> {
    let mut details = Status::decode(status).ok()?.details.into_iter();
    details.find_map(|any| {
        let name = any.type_url.rsplit('/').next()?;
        let info = (name == "google.rpc.RetryInfo").then_some(&*any.value)?;
        let delay = RetryInfo::decode(info).ok()?.retry_delay?;
        delay.try_into().ok()
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Code 8, "rate limit exceeded", and a `RetryInfo` of 7 s.
    const SEVEN_SECONDS: &str = "CAgSE3JhdGUgbGltaXQgZXhjZWVkZWQaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIBw";

    fn of(fields: &[(&'static str, &str)]) -> Option<GrpcStatus> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc+proto"),
        );
        for (name, value) in fields {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        GrpcStatus::read(&headers)
    }

    fn budget(fields: &[(&'static str, &str)]) -> (bool, Option<u64>) {
        let status = of(fields).expect("a status that means later");
        let millis = status.wait.map(|wait| wait.as_millis() as u64);
        (status.may_retry, millis)
    }

    const EIGHT: (&str, &str) = ("grpc-status", "8");
    const FOURTEEN: (&str, &str) = ("grpc-status", "14");

    #[test]
    fn what_is_exhausted_is_tried_again_only_where_the_server_says_when() {
        assert_eq!(budget(&[EIGHT]), (false, None));
        for padding in ["", "=", "=="] {
            let value = format!("{SEVEN_SECONDS}{padding}");
            let details = ("grpc-status-details-bin", &*value);
            if padding != "=" {
                assert_eq!(budget(&[EIGHT, details]), (true, Some(7_000)));
            }
        }
        // A block ends when its details say; otherwise it is a call that is not allowed.
        let details = ("grpc-status-details-bin", SEVEN_SECONDS);
        for code in ["7", "16"] {
            assert_eq!(
                budget(&[("grpc-status", code), details]),
                (true, Some(7_000))
            );
            assert_eq!(of(&[("grpc-status", code)]), None);
        }
        let pushback = |millis| ("grpc-retry-pushback-ms", millis);
        assert_eq!(budget(&[EIGHT, pushback("1500")]), (true, Some(1_500)));
        assert_eq!(budget(&[EIGHT, pushback("0")]), (true, Some(0)));
    }

    #[test]
    fn details_of_more_than_16_kib_are_ignored() {
        for (bytes, expected) in [
            (12 << 10, (true, Some(7_000))),
            (12 << 10 | 1, (false, None)),
        ] {
            let mut status = status_of(&[8, 7]);
            // A field that is not known fills it.
            let rest = bytes - status.len() - 3;
            status.extend([0x7a, rest as u8 | 0x80, (rest >> 7) as u8]);
            status.resize(bytes, 0);
            let value = BASE64.encode(status);
            let details = ("grpc-status-details-bin", &*value);
            assert_eq!(budget(&[EIGHT, details]), expected, "{bytes}");
        }
    }

    #[test]
    fn what_is_unavailable_is_tried_again_unless_the_server_forbids_it() {
        assert_eq!(budget(&[FOURTEEN]), (true, None));
        for forbids in ["-1", "x", "", "1.5", "2147483648", "99999999999999999999"] {
            let fields = [FOURTEEN, ("grpc-retry-pushback-ms", forbids)];
            assert_eq!(budget(&fields), (false, None), "{forbids}");
        }
    }

    #[test]
    fn of_two_waits_the_longer_one_counts() {
        let details = ("grpc-status-details-bin", SEVEN_SECONDS);
        for (pushback, expected) in [("1", 7_000), ("8000", 8_000)] {
            let fields = [EIGHT, details, ("grpc-retry-pushback-ms", pushback)];
            assert_eq!(budget(&fields), (true, Some(expected)));
        }
    }

    #[test]
    fn other_codes_and_other_protocols_say_nothing() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("grpc-status", "0")]), None);
        assert_eq!(of(&[("grpc-status", "4")]), None);
        assert_eq!(of(&[("content-type", "application/json"), EIGHT]), None);
        assert_eq!(of(&[("content-type", "x"), EIGHT]), None);
    }

    #[test]
    fn details_that_make_no_sense_say_nothing() {
        for details in ["", "!", "AAAA", "////////////////", "GgUKA2Zvbw"] {
            let fields = [EIGHT, ("grpc-status-details-bin", details)];
            assert_eq!(budget(&fields), (false, None), "{details}");
        }
    }

    fn status_of(seconds: &[u8]) -> Vec<u8> {
        detail("google.rpc.RetryInfo", seconds)
    }

    /// A status with a detail of this type, with a message as its first field.
    fn detail(name: &str, seconds: &[u8]) -> Vec<u8> {
        let url = format!("type.googleapis.com/{name}").into_bytes();
        let field = |tag, bytes: &[u8]| [&[tag, bytes.len() as u8][..], bytes].concat();
        let info = field(0x0a, seconds);
        let any = [field(0x0a, &url), field(0x12, &info)].concat();
        field(0x1a, &any)
    }

    #[test]
    fn the_delay_is_found_behind_other_details_and_fields() {
        let seven = status_of(&[8, 7]);
        for before in [
            detail("google.rpc.DebugInfo", &[8, 99]),
            detail("other.RetryInfo", &[8, 99]),
            vec![0x7a, 2, 1, 2],
        ] {
            let status = [&before[..], &seven].concat();
            assert_eq!(
                retry_delay(&status),
                Some(Duration::from_secs(7)),
                "{before:?}"
            );
        }
    }
}
