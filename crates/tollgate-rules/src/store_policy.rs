//! How a rule uses a shared store: `consistency` and `on_store_error`.

use tollgate_core::{Consistency, LeaseShare, MAX_UNITS, OnStoreError};

use crate::{
    node::{Node, Value},
    reader::Reader,
};

/// The fields of a consistency as a table.
pub(crate) const CONSISTENCY_FIELDS: &[&str] = &["leased", "eventual"];
/// The fields of an eventual consistency.
pub(crate) const EVENTUAL_FIELDS: &[&str] = &["interval", "max_unreported"];
/// The fields of an answer to a store failure as a table.
pub(crate) const STORE_ERROR_FIELDS: &[&str] = &["cap"];
/// The words for answers to a store failure.
pub(crate) const STORE_ERRORS: &[(&str, OnStoreError)] = &[
    ("local_share", OnStoreError::LocalShare),
    ("allow", OnStoreError::Allow),
    ("deny", OnStoreError::Deny),
    ("degraded", OnStoreError::Degraded),
];

pub(crate) fn consistency(reader: Reader<'_>, node: &Node) -> Option<Consistency> {
    if matches!(node.value, Value::Text(_)) {
        return reader.word(node, "consistency", &[("exact", Consistency::Exact)]);
    }
    let (name, value) = reader.only_field(node, "a consistency", CONSISTENCY_FIELDS)?;
    if name.text == "leased" {
        let permille = reader.permille(value, 50)?;
        // At most 500.
        let share = LeaseShare::permille(permille as u16);
        return Some(Consistency::Leased { share });
    }
    let fields = reader.fields(value, "eventual", EVENTUAL_FIELDS)?;
    let interval = fields.required(reader, "eventual", "interval", "\"50ms\"");
    let interval = interval.and_then(|node| reader.duration(node));
    let most = fields.required(reader, "eventual", "max_unreported", "100");
    let most = most.and_then(|node| reader.number(node, "a number of units", 0, MAX_UNITS));
    Some(Consistency::Eventual {
        interval: interval?,
        max_unreported: most?,
    })
}

pub(crate) fn store_error(reader: Reader<'_>, node: &Node) -> Option<OnStoreError> {
    if matches!(node.value, Value::Table(_)) {
        let (_, cap) =
            reader.only_field(node, "an answer to a store failure", STORE_ERROR_FIELDS)?;
        return reader
            .quota(cap, None)
            .map(|cap| OnStoreError::Cap(cap.value));
    }
    reader.word(node, "answer to a store failure", STORE_ERRORS)
}
