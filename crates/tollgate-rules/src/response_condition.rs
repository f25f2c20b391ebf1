//! Which responses count: `count_if = { status = [401, 403] }`.

use std::{ops::RangeInclusive, sync::Arc};

use crate::{bindings::ResponseFn, condition::read_header, node::Value, reader::Item};

/// The word for all responses that are errors.
pub(crate) const FAILURE: &str = "failure";

/// The codes of gRPC. OK is 0.
pub(crate) const GRPC_STATUSES: &[(&str, i32)] = &[
    ("OK", 0),
    ("CANCELLED", 1),
    ("UNKNOWN", 2),
    ("INVALID_ARGUMENT", 3),
    ("DEADLINE_EXCEEDED", 4),
    ("NOT_FOUND", 5),
    ("ALREADY_EXISTS", 6),
    ("PERMISSION_DENIED", 7),
    ("RESOURCE_EXHAUSTED", 8),
    ("FAILED_PRECONDITION", 9),
    ("ABORTED", 10),
    ("OUT_OF_RANGE", 11),
    ("UNIMPLEMENTED", 12),
    ("INTERNAL", 13),
    ("UNAVAILABLE", 14),
    ("DATA_LOSS", 15),
    ("UNAUTHENTICATED", 16),
];

/// Reads a condition on the response; notes what is wrong.
pub(crate) fn read(item: Item<'_>) -> Option<Arc<ResponseFn>> {
    if let Value::Text(_) = item.value() {
        return named(item);
    }
    let fields = item.fields("a condition on the response", "response_condition_table")?;
    // Without what is wrong, for which the document is refused.
    let mut all: Vec<Arc<ResponseFn>> = Vec::new();
    let ranges: Vec<_> = fields.some_of("status").filter_map(status).collect();
    if !ranges.is_empty() {
        all.push(Arc::new(move |response| {
            let status = response.status().as_u16();
            ranges.iter().any(|range| range.contains(&status))
        }));
    }
    let code = |item: Item<'_>| item.word("gRPC status", GRPC_STATUSES);
    let codes: Vec<i32> = fields.some_of("grpc_status").filter_map(code).collect();
    if !codes.is_empty() {
        all.push(Arc::new(move |response| {
            let status = response.grpc_status();
            status.is_some_and(|status| codes.contains(&status))
        }));
    }
    if let Some((name, equals)) = fields.read("header", |item| read_header(item, "x-login")) {
        all.push(Arc::new(move |response| {
            let value = response.header(name.as_str());
            value.is_some_and(|value| equals.as_ref().is_none_or(|equals| equals == value))
        }));
    }
    all.extend(fields.some_of("is").filter_map(named));
    for not in fields.some_of("not").filter_map(read) {
        all.push(Arc::new(move |response| !not(response)));
    }
    let any: Vec<_> = fields.some_of("any").filter_map(read).collect();
    if !any.is_empty() {
        all.push(Arc::new(move |response| {
            any.iter().any(|holds| holds(response))
        }));
    }
    if item.node.fields().is_empty() {
        item.wrong("all responses count; write which, such as «{ status = [401, 403] }», or leave this out");
    }
    Some(Arc::new(move |response| {
        all.iter().all(|holds| holds(response))
    }))
}

/// All failures, or what the service binds.
fn named(item: Item<'_>) -> Option<Arc<ResponseFn>> {
    let name = item.text("the name of a bound condition on the response")?;
    let conditions = &item.reader.bindings.response_conditions;
    match conditions.get(name) {
        Some(bound) => Some(Arc::clone(bound)),
        None if name == FAILURE => Some(Arc::new(|response| response.is_failure())),
        None => {
            let known = conditions.keys().map(String::as_str).chain([FAILURE]);
            item.unknown("condition on the response", name, known)
        }
    }
}

/// A status, or all of a class as `"5xx"`.
fn status(item: Item<'_>) -> Option<RangeInclusive<u16>> {
    let Value::Text(text) = item.value() else {
        let status = item.number("a status", 100, 599)?;
        // At most 599.
        return Some(status as u16..=status as u16);
    };
    let class = text.strip_suffix("xx").and_then(|class| class.parse().ok());
    match class {
        Some(class @ 1..=5_u16) => Some(class * 100..=class * 100 + 99),
        _ => item.refuse(format!(
            "{text:?} is not a status; write 401, or \"4xx\" for 400 to 499"
        )),
    }
}
