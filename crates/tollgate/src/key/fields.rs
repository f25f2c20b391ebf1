//! Header fields as the key: a header, an entry of a gRPC call's metadata, a cookie.

use std::{borrow::Cow, fmt::Debug};

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderName, HeaderValue, header};
use tollgate_core::PartKind;

use crate::{
    head::Head,
    key::{
        extractor::{KeyExtractor, NoKey},
        extractor_fn::{exactly_one, named},
        percent::{Plus, decoded},
    },
};

/// Counts by the value of a header, such as an API key.
///
/// The value counts unchanged, without surrounding spaces. An empty value is no key. A repeated header is
/// [`NoKey::Ambiguous`]: a client must not be counted by one value while the application reads the other. An invalid name is an
/// error when the rule is built.
///
/// A header whose value has many spellings gives its clients many budgets. For `Authorization`, count by
/// [`authorization()`](crate::key::authorization()): whoever checks it takes `Bearer`, `bearer` and two spaces for the same.
///
/// The key has two parts of [`PartKind::HEADER`], the name in lower case and the value.
///
/// A client can invent values. In front of authentication, add a rule by [`client_ip`](crate::key::client_ip()); behind it, count
/// by an [`extension`](crate::key::extension()) that holds a verified key.
pub fn header(name: impl AsRef<str>) -> impl KeyExtractor + Clone + Debug {
    let name = header_name(name.as_ref());
    named("header", PartKind::HEADER, name, |head, name| {
        only_line(head, name).map(Cow::Borrowed)
    })
}

/// Padding is optional (gRPC over HTTP/2 §Custom-Metadata).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Counts by an entry of a gRPC call's metadata. The key has two parts of [`PartKind::METADATA`], the name and the bytes of
/// the value.
///
/// The name of a binary entry ends in `-bin`; its value is decoded, so that each spelling of a value is the same key. An empty
/// value, or one that is not base64, is no key; a repeated one is [`NoKey::Ambiguous`].
///
/// Clients may send any value: see [choosing a key](crate::key#choosing-a-key).
///
/// ```
/// use tollgate::{Head, key::{Extracted, KeyBuf, KeyExtractor, metadata}};
///
/// let key_of = |written: &str| {
///     let call = http::Request::post("/weather.v1.Weather/Current").header("tenant-bin", written);
///     let mut key = KeyBuf::new();
///     let found = metadata("tenant-bin").extract(&Head::from(&call.body(()).unwrap()), &mut key);
///     matches!(found, Extracted::Key).then_some(key)
/// };
/// assert_eq!(key_of("/w=="), key_of("/w"));
/// assert!(key_of("/w").is_some());
/// assert!(key_of("?").is_none());
/// ```
pub fn metadata(name: impl AsRef<str>) -> impl KeyExtractor + Clone + Debug {
    let name = header_name(name.as_ref());
    named("metadata", PartKind::METADATA, name, |head, name| {
        let value = only_line(head, name)?;
        if !name.as_str().ends_with("-bin") {
            return Ok(value.into());
        }
        match value.contains(&b',') {
            // A line may have several values, separated by commas.
            true => Err(NoKey::Ambiguous),
            false => BASE64
                .decode(value)
                .map(Cow::Owned)
                .map_err(|_| NoKey::Absent),
        }
    })
}

/// Counts by the value of a cookie, such as a session.
///
/// All `Cookie` lines are read. Names and values are percent-decoded, and one pair of quotes around a value is removed, as cookie
/// jars do: otherwise each spelling of a session would have its own budget. A repeated cookie is
/// [`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous), even if a browser holds it for two paths; an empty one is no key.
///
/// The key has two parts of [`PartKind::COOKIE`], the name and the decoded value.
///
/// A client can invent cookies. Add a rule by [`client_ip`](crate::key::client_ip()), or count by an
/// [`extension`](crate::key::extension()) that holds a verified session.
pub fn cookie(name: impl Into<String>) -> impl KeyExtractor + Clone + Debug {
    let name = name.into();
    let wrong = |b: u8| b.is_ascii_whitespace() || b.is_ascii_control() || b"=;,\"".contains(&b);
    let name = match name.is_empty() || name.bytes().any(wrong) {
        true => Err(format!(
            "{name:?} is not the name of a cookie: take its name alone, as in cookie(\"session\")"
        )),
        false => Ok(name),
    };
    named("cookie", PartKind::COOKIE, name, |head, name| {
        let lines = head.headers.get_all(header::COOKIE).iter();
        let pairs = lines
            .map(HeaderValue::as_bytes)
            .flat_map(|line| line.split(|&b| b == b';'));
        let values = pairs.filter_map(|pair| {
            let end = pair.iter().position(|&b| b == b'=')?;
            (*decoded(pair[..end].trim_ascii(), Plus::Literal) == *name.as_bytes())
                .then(|| pair[end + 1..].trim_ascii())
        });
        let value = decoded(exactly_one(values)?, Plus::Literal);
        Ok(match &*value {
            [b'"', inner @ .., b'"'] => inner.to_vec().into(),
            _ => value,
        })
    })
}

/// The value of a field that a request has on one line.
pub(crate) fn only_line<'h>(head: &Head<'h>, name: &HeaderName) -> Result<&'h [u8], NoKey> {
    let value = exactly_one(head.headers.get_all(name).iter());
    value.map(|value| value.as_bytes().trim_ascii())
}

/// The name, or an error message.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        format!("{name:?} is not the name of a header: take letters, digits and hyphens, as in \"x-api-key\"")
    })
}
