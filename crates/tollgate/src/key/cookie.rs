//! The value of a cookie as the key.

use http::{HeaderValue, header, request::Parts};
use tollgate_core::{KeyBuf, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor},
    percent::{Plus, decoded},
    value::{push_named, sole},
};

/// Counts by the value of a cookie, such as a session.
///
/// All `Cookie` lines are read. Names and values are percent-decoded, and one pair of quotes around a value is taken off,
/// because cookie jars do so: otherwise each spelling of one session would have a budget of its own. A cookie that is there
/// more than once is [`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous), also where a browser holds it for two paths; an
/// empty one is no key.
///
/// The key has two parts of [`PartKind::COOKIE`], the name and the decoded value.
///
/// Anybody can make up a cookie. Combine the rule with one by [`client_ip`](crate::key::client_ip()), or count by an
/// [`extension`](crate::key::extension()) that stands for a session which was looked up.
pub fn cookie(name: impl Into<String>) -> Cookie {
    Cookie { name: name.into() }
}

/// The extractor that [`cookie`] makes.
#[derive(Clone, Debug)]
pub struct Cookie {
    name: String,
}

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
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
        let value = sole(values).map(|value| decoded(value, Plus::Literal).bytes());
        let value = value.as_deref().map(unquoted).map_err(Clone::clone);
        push_named(key, PartKind::COOKIE, &self.name, value)
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
