//! A limit of a document, as text or as a table.

use tollgate_core::{AlgorithmKind, MAX_UNITS, Quota};

use crate::{
    node::{Node, Value},
    reader::{At, Reader},
};

/// The words for algorithms.
pub(crate) const ALGORITHMS: &[(&str, AlgorithmKind)] = &[
    ("gcra", AlgorithmKind::Gcra),
    ("token_bucket", AlgorithmKind::TokenBucket),
    ("leaky_bucket", AlgorithmKind::LeakyBucket),
    ("fixed_window", AlgorithmKind::FixedWindow),
    ("sliding_window", AlgorithmKind::SlidingWindow),
    ("sliding_buckets", AlgorithmKind::SlidingBuckets),
    ("sliding_log", AlgorithmKind::SlidingLog),
];

/// A limit as text, or as a table: `{ algorithm = "sliding_window", units = 1000, per = "1m" }`.
pub(crate) fn limit(reader: Reader<'_>, node: &Node, of: Option<&Quota>) -> Option<At<Quota>> {
    if !matches!(node.value, Value::Table(_)) {
        return reader.quota(node, of);
    }
    let fields = reader.fields(node, "a limit", "limit_table")?;
    let algorithm = match fields.get("algorithm") {
        None => of.map_or(AlgorithmKind::Gcra, Quota::algorithm),
        Some(Node {
            value: Value::Text(name),
            span,
        }) if name == "concurrent" => {
            let right = reader.example("limit = \"concurrent 3\"");
            let message = format!("slots have no period, and are written as a text: {right}");
            reader.wrong(span, message);
            return None;
        }
        Some(node) => reader.word(node, "algorithm", ALGORITHMS)?,
    };
    let number = |name: &str| match fields.get(name) {
        None => Some(None),
        Some(node) => reader
            .number(node, "a number of units", 1, MAX_UNITS)
            .map(Some),
    };
    let units = fields.required(reader, "a limit", "units", "100");
    if let (Some(Value::Float(units)), Some(Value::Text(per))) = (
        units.map(|node| &node.value),
        fields.get("per").map(|node| &node.value),
    ) && let Err(wrong) = format!("{units}/{per}").parse::<Quota>()
    {
        reader.wrong(&node.span, wrong.message());
        return None;
    }
    let units = units.and_then(|node| reader.number(node, "a number of units", 0, MAX_UNITS));
    let per = fields.required(reader, "a limit", "per", "\"1min\"");
    let per = per.and_then(|node| reader.duration(node));
    let (burst, buckets) = (number("burst")?, number("buckets")?);
    let (units, per) = (units?, per?);
    let mut text = format!("{algorithm} {units}/{}us", per.as_micros());
    for (name, number) in [("burst", burst), ("buckets", buckets)] {
        if let Some(number) = number {
            text.push_str(&format!(" {name} {number}"));
        }
    }
    match text.parse() {
        Ok(value) => Some(At {
            span: node.span.clone(),
            value,
        }),
        Err(error) => {
            let error: tollgate_core::ParseQuotaError = error;
            reader.wrong(&node.span, error.message());
            None
        }
    }
}
