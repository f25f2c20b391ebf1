//! How a rule uses a shared store: `consistency` and `on_store_error`.

use std::sync::Arc;

use tollgate_core::{Consistency, LeaseShare, MAX_UNITS, OnStoreError};

use crate::{
    bindings::{Bindings, Predicate},
    condition::Condition,
    node::{Node, Value},
    reader::Reader,
};

/// The words for answers that depend on the request: they count nothing.
pub(crate) const ANSWERS: &[(&str, OnStoreError)] = &[
    ("allow", OnStoreError::Allow),
    ("deny", OnStoreError::Deny),
    ("degraded", OnStoreError::Degraded),
];
/// The words for answers to a store failure.
pub(crate) const STORE_ERRORS: &[(&str, OnStoreError)] = &[
    ("local_share", OnStoreError::LocalShare),
    ("allow", OnStoreError::Allow),
    ("deny", OnStoreError::Deny),
    ("degraded", OnStoreError::Degraded),
];

pub(crate) fn consistency(reader: Reader<'_>, node: &Node) -> Option<Consistency> {
    if let Value::Text(text) = &node.value {
        let table = match text.as_str() {
            "leased" => "{ leased = \"10%\" }",
            "eventual" => "{ eventual = { interval = \"100ms\", max_unreported = 50 } }",
            _ => return reader.word(node, "consistency", &[("exact", Consistency::Exact)]),
        };
        let table = reader.example(table);
        reader.wrong(
            &node.span,
            format!("{text} needs its numbers; write {table}"),
        );
        return None;
    }
    let (name, value) = reader.only_field(node, "a consistency", "consistency_table")?;
    if name.text == "leased" {
        let permille = reader.permille(value, 50)?;
        // At most 500.
        let share = LeaseShare::permille(permille as u16);
        return Some(Consistency::Leased { share });
    }
    let fields = reader.fields(value, "eventual", "eventual")?;
    let interval = fields.required("interval", "\"50ms\"");
    let interval = interval.and_then(|node| reader.duration(node));
    let most = fields.required("max_unreported", "100");
    let most = most.and_then(|node| reader.number(node, "a number of units", 0, MAX_UNITS));
    Some(Consistency::Eventual {
        interval: interval?,
        max_unreported: most?,
    })
}

/// How a rule decides while the store fails: each request by the first of its answers whose condition holds, or else by the
/// rule's own.
#[derive(Clone, Default)]
pub(crate) struct StoreErrorAnswers {
    pub(crate) own: OnStoreError,
    pub(crate) by_condition: Vec<(Arc<Predicate>, OnStoreError)>,
}

impl StoreErrorAnswers {
    /// Reads one answer for all requests, or a list of answers.
    pub(crate) fn read(reader: Reader<'_>, node: &Node, bindings: &Bindings) -> Option<Self> {
        let Value::List(nodes) = &node.value else {
            let own = store_error(reader, node)?;
            return Some(Self {
                own,
                ..Self::default()
            });
        };
        if nodes.is_empty() {
            let example = reader.example("{ when = { methods = [\"GET\"] }, answer = \"allow\" }");
            let message =
                format!("there is no answer in the list; write one as \"deny\", or {example}");
            reader.wrong(&node.span, message);
        }
        let mut answers = Self::default();
        for (index, node) in nodes.iter().enumerate() {
            let what = "an entry of on_store_error";
            let Some(fields) = reader.fields(node, what, "store_error_answer") else {
                continue;
            };
            let answer = fields.required("answer", "\"deny\"");
            match (fields.get("when"), answer) {
                (Some(when), answer) => {
                    let condition = Condition::read(reader, when, bindings);
                    let answer = answer.and_then(|node| by_condition(reader, node));
                    answers
                        .by_condition
                        .extend(answer.map(|answer| (condition.predicate(), answer)));
                }
                (None, Some(answer)) if index + 1 == nodes.len() => {
                    answers.own = store_error(reader, answer).unwrap_or_default();
                }
                (None, Some(_)) => {
                    let message = "this answer applies to all requests, so none after it ever applies; put it last, or add when";
                    reader.wrong(&node.span, message);
                }
                (None, None) => {}
            }
        }
        Some(answers)
    }
}

/// The answer for the requests of a condition.
fn by_condition(reader: Reader<'_>, node: &Node) -> Option<OnStoreError> {
    if matches!(&node.value, Value::Text(text) if text == "local_share") {
        let message = "a local share counts all requests of the rule, so it has no condition; take allow, deny or degraded";
        reader.wrong(&node.span, message);
        return None;
    }
    reader.word(node, "answer", ANSWERS)
}

fn store_error(reader: Reader<'_>, node: &Node) -> Option<OnStoreError> {
    if matches!(node.value, Value::Table(_)) {
        let (_, cap) =
            reader.only_field(node, "an entry of on_store_error", "on_store_error_table")?;
        return reader
            .quota(cap, None)
            .map(|cap| OnStoreError::Cap(cap.value));
    }
    reader.word(node, "answer of on_store_error", STORE_ERRORS)
}
