//! Which responses count: `count_if = { status = [401, 403] }`.

use std::{ops::RangeInclusive, sync::Arc};

use tollgate::service::InnerResponse;

use crate::{
    bindings::ResponseFn,
    condition::read_header,
    node::{Node, Value},
    reader::Reader,
};

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
pub(crate) fn read(reader: Reader<'_>, node: &Node) -> Option<Arc<ResponseFn>> {
    if let Value::Text(_) = &node.value {
        return named(reader, node);
    }
    let what = "a condition on the response";
    let fields = reader.fields(node, what, "response_condition_table")?;
    let list = |name: &str| {
        let nodes = reader.list_or_one(fields.get(name)?);
        if nodes.is_empty() {
            fields.wrong(
                name,
                format!("{name} is an empty list; give it at least one value"),
            );
        }
        Some(nodes)
    };
    let mut all: Vec<Option<Arc<ResponseFn>>> = Vec::new();
    if let Some(nodes) = list("status") {
        let ranges: Option<Vec<_>> = nodes.iter().map(|node| status(reader, node)).collect();
        all.push(ranges.map(|ranges| {
            of(move |response| {
                let status = response.status().as_u16();
                ranges.iter().any(|range| range.contains(&status))
            })
        }));
    }
    if let Some(nodes) = list("grpc_status") {
        let code = |node| reader.word(node, "gRPC status", GRPC_STATUSES);
        let codes: Option<Vec<i32>> = nodes.iter().map(code).collect();
        all.push(codes.map(|codes| {
            of(move |response| {
                let status = response.grpc_status();
                status.is_some_and(|status| codes.contains(&status))
            })
        }));
    }
    if let Some(node) = fields.get("header") {
        let header = read_header(reader, node, "x-login");
        all.push(header.map(|(name, equals)| {
            of(move |response| {
                let value = response.header(name.as_str());
                value.is_some_and(|value| equals.as_ref().is_none_or(|equals| equals == value))
            })
        }));
    }
    let is = list("is").unwrap_or_default().iter();
    all.extend(is.map(|node| named(reader, node)));
    for node in list("not").unwrap_or_default() {
        let not = read(reader, node);
        all.push(not.map(|not| of(move |response| !not(response))));
    }
    if let Some(nodes) = list("any") {
        let any: Option<Vec<_>> = nodes.iter().map(|node| read(reader, node)).collect();
        all.push(any.map(|any| of(move |response| any.iter().any(|holds| holds(response)))));
    }
    if node.fields().is_empty() {
        let message = "all responses count; write which, such as «{ status = [401, 403] }», or leave this out";
        reader.wrong(&node.span, message);
    }
    let all: Vec<Arc<ResponseFn>> = all.into_iter().collect::<Option<_>>()?;
    Some(of(move |response| all.iter().all(|holds| holds(response))))
}

fn of(holds: impl Fn(&InnerResponse<'_>) -> bool + Send + Sync + 'static) -> Arc<ResponseFn> {
    Arc::new(holds)
}

/// All failures, or what the service binds.
fn named(reader: Reader<'_>, node: &Node) -> Option<Arc<ResponseFn>> {
    let name = reader.text(node, "the name of a bound condition on the response")?;
    let conditions = &reader.bindings.response_conditions;
    match conditions.get(name) {
        Some(bound) => Some(Arc::clone(bound)),
        None if name == FAILURE => Some(of(|response| response.is_failure())),
        None => {
            let known = conditions.keys().map(String::as_str).chain([FAILURE]);
            reader.unknown(node, "condition on the response", name, known)
        }
    }
}

/// A status, or all of a class as `"5xx"`.
fn status(reader: Reader<'_>, node: &Node) -> Option<RangeInclusive<u16>> {
    let Value::Text(text) = &node.value else {
        let status = reader.number(node, "a status", 100, 599)?;
        // At most 599.
        return Some(status as u16..=status as u16);
    };
    let class = text.strip_suffix("xx").and_then(|class| class.parse().ok());
    match class {
        Some(class @ 1..=5_u16) => Some(class * 100..=class * 100 + 99),
        _ => {
            let message = format!("{text:?} is not a status; write 401, or \"4xx\" for 400 to 499");
            reader.refuse(&node.span, message)
        }
    }
}
