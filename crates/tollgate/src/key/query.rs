//! A parameter of the query as the key.

use std::borrow::Cow;

use tollgate_core::{KeyBuf, PartKind};

use crate::key::{
    extractor::{Extracted, KeyExtractor},
    percent::{Plus, decoded},
    value::{exactly_one, push_named},
};

use crate::head::Head;

/// Counts by a parameter of the query: `query("token")` finds `abc` in `/search?token=abc`.
///
/// Names and values are percent-decoded, and `+` is a space, so that another spelling of a value is no second budget. Pairs are
/// separated by `&` only. A repeated parameter, in any spelling, is [`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous); an empty
/// one is no key. Case matters.
///
/// The key has two parts of [`PartKind::QUERY_PARAMETER`], the name and the decoded value.
pub fn query(name: impl Into<String>) -> Query {
    Query { name: name.into() }
}

/// The extractor that [`query`] makes.
#[derive(Clone, Debug)]
pub struct Query {
    name: String,
}

impl KeyExtractor for Query {
    fn extract(&self, head: &Head<'_>, key: &mut KeyBuf) -> Extracted {
        let query = head.uri.query().unwrap_or_default();
        let values = query.as_bytes().split(|&b| b == b'&').filter_map(|pair| {
            let end = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (name, value) = pair.split_at(end);
            decoded(name, Plus::Space)
                .eq(self.name.bytes())
                .then(|| value.get(1..).unwrap_or_default())
        });
        let value = exactly_one(values).map(|value| decoded(value, Plus::Space).bytes());
        push_named(key, PartKind::QUERY_PARAMETER, &self.name, value)
    }

    fn subject_type(&self) -> Cow<'static, str> {
        "query".into()
    }

    fn validate(&self) -> Result<(), String> {
        if self.name.is_empty() {
            return Err(
                "query(\"\") names no parameter; use its name, as in query(\"token\")".into(),
            );
        }
        Ok(())
    }
}
