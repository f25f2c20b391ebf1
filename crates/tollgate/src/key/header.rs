//! The value of a header as the key.

use http::{HeaderName, HeaderValue, request::Parts};
use tollgate_core::{KeyBuf, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor, NoKey},
    value::{push_named, sole},
};

/// Counts by the value of a header, such as an API key.
///
/// The value counts as it is, without spaces around it. An empty value is no key. A header that is there more than once is
/// [`NoKey::Ambiguous`]: a client that sends two keys must not choose which one is counted while the application reads the
/// other. A name that no header can have is refused when the rule is built.
///
/// The key has two parts of [`PartKind::HEADER`], the name in lower case and the value.
///
/// Anybody can make up a value. Let the rule count before authentication only together with a rule by
/// [`client_ip`](crate::key::client_ip()), or count by an [`extension`](crate::key::extension()) that stands for a key
/// which was looked up.
pub fn header(name: impl AsRef<str>) -> Header {
    Header {
        name: header_name(name.as_ref()),
    }
}

/// The extractor that [`header`] makes.
#[derive(Clone, Debug)]
pub struct Header {
    name: Result<HeaderName, String>,
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Parts, key: &mut KeyBuf) -> Extracted {
        match &self.name {
            Ok(name) => {
                let value = sole(head.headers.get_all(name).iter());
                let value = value.map(HeaderValue::as_bytes).map(<[u8]>::trim_ascii);
                push_named(key, PartKind::HEADER, name.as_str(), value)
            }
            Err(mistake) => Extracted::Nothing(NoKey::Misconfigured(mistake.clone().into())),
        }
    }

    fn validate(&self) -> Result<(), String> {
        self.name.as_ref().map(|_| ()).map_err(Clone::clone)
    }
}

/// The name, or a sentence that says what is wrong with it.
pub(crate) fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        format!("{name:?} is not the name of a header: take letters, digits and hyphens, as in \"x-api-key\"")
    })
}
