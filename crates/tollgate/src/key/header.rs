//! The value of a header as the key.

use std::fmt::Debug;

use http::{HeaderName, HeaderValue};
use tollgate_core::{KeyBuf, PartKind};

use crate::{
    head::Head,
    key::{
        extractor::{Extracted, KeyExtractor, NoKey, extractor},
        value::{exactly_one, push_named},
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
    let mistake = name.clone().err();
    let extract = move |head: &Head<'_>, key: &mut KeyBuf| match &name {
        Ok(name) => {
            let value = exactly_one(head.headers.get_all(name).iter());
            let value = value.map(HeaderValue::as_bytes).map(<[u8]>::trim_ascii);
            push_named(key, PartKind::HEADER, name.as_str(), value)
        }
        Err(mistake) => Extracted::Nothing(NoKey::Misconfigured(mistake.clone().into())),
    };
    extractor("header", extract).with_mistake(mistake)
}

/// The name, or an error message.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        format!("{name:?} is not the name of a header: take letters, digits and hyphens, as in \"x-api-key\"")
    })
}
