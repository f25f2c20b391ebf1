//! The value of a cookie as the key.

use std::borrow::Cow;

use http::{HeaderValue, header};
use tollgate_core::{KeyBuf, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor},
    percent::{Plus, decoded},
    value::{exactly_one, push_named},
};

use crate::head::Head;

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
pub fn cookie(name: impl Into<String>) -> Cookie {
    Cookie { name: name.into() }
}

/// The extractor that [`cookie`] makes.
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        let lines = head.headers.get_all(header::COOKIE).iter();
        let pairs = lines
            .map(HeaderValue::as_bytes)
            .flat_map(|line| line.split(|&b| b == b';'));
        let values = pairs.filter_map(|pair| {
            let end = pair.iter().position(|&b| b == b'=')?;
            decoded(pair[..end].trim_ascii(), Plus::Literal)
                .eq(self.name.bytes())
                .then(|| pair[end + 1..].trim_ascii())
        });
        let value = exactly_one(values).map(|value| decoded(value, Plus::Literal).bytes());
        let value = value.as_deref().map(unquoted).map_err(Clone::clone);
        push_named(key, PartKind::COOKIE, &self.name, value)
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "cookie".into()
    }

    fn validate(&self) -> Result<(), String> {
        let wrong =
            |b: u8| b.is_ascii_whitespace() || b.is_ascii_control() || b"=;,\"".contains(&b);
        if self.name.is_empty() || self.name.bytes().any(wrong) {
            return Err(format!(
                "{:?} is not the name of a cookie: take its name alone, as in cookie(\"session\")",
                self.name
            ));
        }
        Ok(())
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        _ => value,
    }
}
