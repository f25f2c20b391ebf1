//! Which responses count: `count_if = { status = [401, 403] }`.

use std::{ops::RangeInclusive, sync::Arc};

use tollgate::rules::InnerResponse;

use crate::{
    bindings::{Bindings, ResponseFn},
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
pub(crate) fn read(
    reader: Reader<'_>,
    node: &Node,
    bindings: &Bindings,
) -> Option<Arc<ResponseFn>> {
    if let Value::Text(name) = &node.value {
        return named(reader, node, name, bindings);
    }
    let fields = reader.fields(
        node,
        "a condition on the response",
        "response_condition_table",
    )?;
    let list = |name: &str| {
        let node = fields.get(name)?;
        let nodes = reader.list_or_one(node);
        if nodes.is_empty() {
            let message = format!("{name} is an empty list; give it at least one value");
            reader.wrong(&node.span, message);
        }
        Some(nodes)
    };
    let mut all: Vec<Option<Arc<ResponseFn>>> = Vec::new();
    if let Some(nodes) = list("status") {
        all.push(statuses(reader, nodes));
    }
    if let Some(nodes) = list("grpc_status") {
        let codes = nodes
            .iter()
            .map(|node| reader.word(node, "gRPC status", GRPC_STATUSES));
        let codes: Option<Vec<i32>> = codes.collect();
        all.push(codes.map(|codes| {
            of(move |response| {
                let status = response.grpc_status();
                status.is_some_and(|status| codes.contains(&status))
            })
        }));
    }
    if let Some(node) = fields.get("header") {
        all.push(header(reader, node));
    }
    for node in list("is").unwrap_or_default() {
        let name = reader.text(node, "the name of a bound condition on the response");
        all.push(name.and_then(|name| named(reader, node, name.value, bindings)));
    }
    for node in list("not").unwrap_or_default() {
        let not = read(reader, node, bindings);
        all.push(not.map(|not| of(move |response| !not(response))));
    }
    if let Some(nodes) = list("any") {
        let any = nodes.iter().map(|node| read(reader, node, bindings));
        let any: Option<Vec<_>> = any.collect();
        all.push(any.map(|any| of(move |response| any.iter().any(|holds| holds(response)))));
    }
    if let Value::Table(fields) = &node.value
        && fields.is_empty()
    {
        let example = reader.example("{ status = [401, 403] }");
        let message =
            format!("all responses count; write which, such as {example}, or leave this out");
        reader.wrong(&node.span, message);
    }
    let all: Vec<Arc<ResponseFn>> = all.into_iter().collect::<Option<_>>()?;
    match &all[..] {
        [only] => Some(Arc::clone(only)),
        _ => Some(of(move |response| all.iter().all(|holds| holds(response)))),
    }
}

fn of(holds: impl Fn(&InnerResponse<'_>) -> bool + Send + Sync + 'static) -> Arc<ResponseFn> {
    Arc::new(holds)
}

/// All failures, or what the service binds.
fn named(
    reader: Reader<'_>,
    node: &Node,
    name: &str,
    bindings: &Bindings,
) -> Option<Arc<ResponseFn>> {
    let bound = bindings.response_conditions.get(name).cloned();
    if bound.is_none() && name == FAILURE {
        return Some(of(|response| response.is_failure()));
    }
    if bound.is_none() {
        let bound = bindings.response_conditions.keys().map(String::as_str);
        let known = bound.chain([FAILURE]);
        reader.unknown(&node.span, "condition on the response", name, known);
    }
    bound
}

fn statuses(reader: Reader<'_>, nodes: &[Node]) -> Option<Arc<ResponseFn>> {
    let ranges = nodes.iter().map(|node| status(reader, node));
    let ranges: Option<Vec<_>> = ranges.collect();
    ranges.map(|ranges| {
        of(move |response| {
            let status = response.status().as_u16();
            ranges.iter().any(|range| range.contains(&status))
        })
    })
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
            reader.wrong(&node.span, message);
            None
        }
    }
}

fn header(reader: Reader<'_>, node: &Node) -> Option<Arc<ResponseFn>> {
    let (name, equals) = read_header(reader, node, "x-login")?;
    let equals = equals.map(|equals| equals.value.to_owned());
    Some(of(move |response| {
        let value = response.header(name.as_str());
        value.is_some_and(|value| equals.as_ref().is_none_or(|equals| equals == value))
    }))
}
