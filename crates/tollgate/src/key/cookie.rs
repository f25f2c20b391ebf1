//! The value of a cookie as the key.

use std::fmt::Debug;

use http::{HeaderValue, header};
use tollgate_core::{KeyBuf, PartKind};

use crate::{
    head::Head,
    key::{
        extractor::{KeyExtractor, extractor},
        percent::{Plus, decoded},
        value::{exactly_one, push_named},
    },
};

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
    let mistake = (name.is_empty() || name.bytes().any(wrong)).then(|| {
        format!(
            "{name:?} is not the name of a cookie: take its name alone, as in cookie(\"session\")"
        )
    });
    let extract = move |head: &Head<'_>, key: &mut KeyBuf| {
        let lines = head.headers.get_all(header::COOKIE).iter();
        let pairs = lines
            .map(HeaderValue::as_bytes)
            .flat_map(|line| line.split(|&b| b == b';'));
        let values = pairs.filter_map(|pair| {
            let end = pair.iter().position(|&b| b == b'=')?;
            decoded(pair[..end].trim_ascii(), Plus::Literal)
                .eq(name.bytes())
                .then(|| pair[end + 1..].trim_ascii())
        });
        let value = exactly_one(values).map(|value| decoded(value, Plus::Literal).bytes());
        let value = value.as_deref().map(unquoted).map_err(Clone::clone);
        push_named(key, PartKind::COOKIE, &name, value)
    };
    extractor("cookie", extract).with_mistake(mistake)
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}
