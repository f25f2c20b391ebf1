//! A parameter of the query as the key.

use std::fmt::Debug;

use tollgate_core::{KeyBuf, PartKind};

use crate::{
    head::Head,
    key::{
        extractor::{KeyExtractor, extractor},
        percent::{Plus, decoded},
        value::{exactly_one, push_named},
    },
};

/// Counts by a parameter of the query: `query("token")` finds `abc` in `/search?token=abc`.
///
/// Names and values are percent-decoded, and `+` is a space, so that another spelling of a value is no second budget. Pairs are
/// separated by `&` only. A repeated parameter, in any spelling, is [`NoKey::Ambiguous`](crate::key::NoKey::Ambiguous); an empty
/// one is no key. Case matters.
///
/// The key has two parts of [`PartKind::QUERY_PARAMETER`], the name and the decoded value.
pub fn query(name: impl Into<String>) -> impl KeyExtractor + Clone + Debug {
    let name = name.into();
    let mistake = name
        .is_empty()
        .then(|| "query(\"\") names no parameter; use its name, as in query(\"token\")".to_owned());
    let extract = move |head: &Head<'_>, key: &mut KeyBuf| {
        let query = head.uri.query().unwrap_or_default();
        let values = query.as_bytes().split(|&b| b == b'&').filter_map(|pair| {
            let end = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
            let (other, value) = pair.split_at(end);
            decoded(other, Plus::Space)
                .eq(name.bytes())
                .then(|| value.get(1..).unwrap_or_default())
        });
        let value = exactly_one(values).map(|value| decoded(value, Plus::Space).bytes());
        push_named(key, PartKind::QUERY_PARAMETER, &name, value)
    };
    extractor("query", extract).with_mistake(mistake)
}
