//! Header fields as the key: a header, an entry of a gRPC call's metadata, a cookie, credentials.

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
        extractor_fn::{Plus, decoded, exactly_one, named},
    },
};

/// Counts by the value of a header, such as an API key.
///
/// The value counts unchanged, without surrounding spaces. An empty value is no key. A repeated header is
/// [`NoKey::Ambiguous`]: a client must not be counted by one value while the application reads the other. An invalid name is an
/// error when the rule is built.
///
/// `header("host")` is the host of the request, in lower case, without port and final dot: that of the URI, as over HTTP/2, or of
/// the field `Host`. If they differ, it is ambiguous.
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
        only_line(head, name)
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
            return Ok(value);
        }
        match value.contains(&b',') {
            // A line may have several values, separated by commas.
            true => Err(NoKey::Ambiguous),
            false => BASE64
                .decode(&*value)
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

/// The value of a field that a request has on one line. Of `host`, its [host](host_of) in each version of HTTP.
pub fn only_line<'h>(head: &Head<'h>, name: &HeaderName) -> Result<Cow<'h, [u8]>, NoKey> {
    let headers = head.headers;
    if name == header::HOST {
        let target = head.uri.authority().map(|it| it.as_str().as_bytes());
        let fields = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let mut hosts = target.into_iter().chain(fields).map(host_of);
        let host = hosts.next().ok_or(NoKey::Absent)?;
        // The application may read either.
        let is_one = hosts.all(|other| other == host);
        return is_one.then_some(host.into()).ok_or(NoKey::Ambiguous);
    }
    let value = match headers.len() == headers.keys_len() {
        // No field is repeated.
        true => headers.get(name).ok_or(NoKey::Absent),
        false => exactly_one(headers.get_all(name).iter()),
    };
    value.map(|value| value.as_bytes().trim_ascii().into())
}

/// The host of an authority in one spelling: in lower case, without user, port and final dot (RFC 9110 §4.2.3, §7.2).
#[must_use]
pub fn host_of(authority: &[u8]) -> Vec<u8> {
    let user = authority.iter().rposition(|&b| b == b'@');
    let host = authority[user.map_or(0, |at| at + 1)..].trim_ascii();
    let port = host.iter().rposition(|&b| b == b':');
    // An IPv6 address has colons of its own, in brackets.
    let port = port.filter(|&at| !host[at..].contains(&b']'));
    let host = &host[..port.unwrap_or(host.len())];
    host.strip_suffix(b".").unwrap_or(host).to_ascii_lowercase()
}

/// The name, or an error message.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        format!("{name:?} is not the name of a header: take letters, digits and hyphens, as in \"x-api-key\"")
    })
}

/// Counts by the credentials in `Authorization`, in one spelling: `Bearer s`, `bearer s` and `BEARER  s` are one client.
///
/// What checks credentials compares the scheme without regard to case, and takes any number of spaces (RFC 9110 §11.1). With
/// [`header("authorization")`](crate::key::header()), each of these spellings has a budget of its own. A token counts as it is written, and
/// Basic credentials by what they encode.
///
/// A scheme without credentials is no key. Several fields, and credentials with parameters (`token=s`), which have many spellings,
/// are [`NoKey::Ambiguous`]: count these by what their check has found.
///
/// The key has two parts of [`PartKind::HEADER`]: `authorization`, and the credentials. A client can invent them: in front of
/// authentication, add a rule by [`client_ip`](crate::key::client_ip()); behind it, count by an
/// [`extension`](crate::key::extension()) that holds who was found.
///
/// ```
/// use tollgate::{Head, Key, key::{Extracted, KeyBuf, KeyExtractor, authorization}};
///
/// let key_of = |credentials: &str| {
///     let request = http::Request::builder().header("authorization", credentials);
///     let (head, ()) = request.body(()).unwrap().into_parts();
///     let mut key = KeyBuf::new();
///     assert!(matches!(authorization().extract(&Head::from(&head), &mut key), Extracted::Key));
///     Key::from(key)
/// };
/// assert_eq!(key_of("Bearer a7"), key_of("bearer  a7"));
/// assert_ne!(key_of("Bearer a7"), key_of("Bearer A7"));
/// ```
pub fn authorization() -> impl KeyExtractor + Clone + Debug {
    let name = Ok(header::AUTHORIZATION);
    named("authorization", PartKind::HEADER, name, |head, name| {
        in_one_spelling(&only_line(head, name)?).map(Cow::Owned)
    })
}

/// The credentials (RFC 9110 §11.4): the scheme in lower case, and a token as it is, but the one spelling of Basic credentials, which
/// servers take with other padding and unused bits too.
fn in_one_spelling(credentials: &[u8]) -> Result<Vec<u8>, NoKey> {
    let credentials = credentials.trim_ascii();
    let space = credentials.iter().position(u8::is_ascii_whitespace);
    let (scheme, token) = credentials.split_at(space.ok_or(NoKey::Absent)?);
    let token = token.trim_ascii();
    let is_of_parameters = |b: &u8| b.is_ascii_whitespace() || b",\"=".contains(b);
    // A token has `=` at its end only.
    let mut inside = token.iter().rev().skip_while(|&&b| b == b'=');
    if inside.any(is_of_parameters) {
        return Err(NoKey::Ambiguous);
    }
    let scheme = scheme.to_ascii_lowercase();
    let decoded = (scheme == b"basic").then(|| BASE64.decode(token));
    let encoded = decoded.and_then(Result::ok).map(|it| BASE64.encode(it));
    let token = encoded.as_ref().map_or(token, String::as_bytes);
    Ok([&scheme, &b" "[..], token].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_standard_says_is_equal_is_one_key_and_nothing_else_is() {
        let one = |credentials: &str| in_one_spelling(credentials.as_bytes());
        for equal in [
            &["Bearer s==", "bearer s==", "BEARER   s==", " Bearer\ts== "][..],
            &["Key a:b|c", "key  a:b|c"],
            &[
                "Basic dXNlcjpwYXM=",
                "basic dXNlcjpwYXM",
                "Basic dXNlcjpwYXN=",
            ],
        ] {
            for other in equal {
                assert_eq!(one(other), one(equal[0]), "{other}");
                assert!(one(other).is_ok());
            }
        }
        let different = ["Bearer s", "Bearer S", "Basic s", "Bearer s="];
        for (index, first) in different.iter().enumerate() {
            for second in &different[..index] {
                assert_ne!(one(first), one(second), "{first} {second}");
            }
        }
        for absent in ["", "Bearer", "Bearer  "] {
            assert_eq!(one(absent), Err(NoKey::Absent), "{absent}");
        }
        for ambiguous in [
            "Bearer a b",
            "Bearer a,b",
            "Bearer a,",
            "Digest username=\"ann\"",
            "Token token=s",
            "token TOKEN=s==",
        ] {
            assert_eq!(one(ambiguous), Err(NoKey::Ambiguous), "{ambiguous}");
        }
    }
}
