//! What a request costs: `cost = 5`, a bound name, or a header.

use std::sync::Arc;

use http::{HeaderName, request::Parts};
use tollgate_core::MAX_UNITS;

use crate::{
    bindings::{Bindings, CostFn},
    node::{Node, Value},
    reader::Reader,
};

/// The fields of a cost in a header.
pub(crate) const FIELDS: &[&str] = &["header", "max"];

/// The units that a request takes.
#[derive(Clone)]
pub(crate) enum Cost {
    Fixed(u64),
    Computed(Arc<CostFn>),
}

impl Cost {
    pub(crate) fn read(reader: Reader<'_>, node: &Node, bindings: &Bindings) -> Option<Self> {
        match &node.value {
            Value::Text(name) => {
                let bound = bindings.costs.get(name).cloned();
                if bound.is_none() {
                    let known = bindings.costs.keys().map(String::as_str);
                    reader.unknown(&node.span, "bound cost", name, known);
                }
                bound.map(Self::Computed)
            }
            Value::Table(_) => {
                let fields = reader.fields(node, "a cost", FIELDS)?;
                let header = fields.required(reader, "a cost", "header", "\"x-cost\"");
                let header = header.and_then(|node| reader.text(node, "the name of a header"));
                let max = fields.required(reader, "a cost", "max", "100");
                let max = max.and_then(|node| reader.number(node, "a cost in units", 1, MAX_UNITS));
                let (header, max) = (header?, max?);
                let Ok(name) = HeaderName::from_bytes(header.value.as_bytes()) else {
                    let message = format!(
                        "{:?} is not the name of a header; write it as \"x-cost\"",
                        header.value
                    );
                    reader.wrong(&header.span, message);
                    return None;
                };
                // What a client leaves out or misspells costs most.
                let cost = move |head: &Parts| {
                    let value = head
                        .headers
                        .get(&name)
                        .and_then(|value| value.to_str().ok());
                    let units = value.and_then(|value| value.trim().parse::<u64>().ok());
                    units.map_or(max, |units| units.clamp(1, max))
                };
                Some(Self::Computed(Arc::new(cost)))
            }
            _ => {
                let number = reader.number(node, "a cost in units", 1, MAX_UNITS);
                number.map(Self::Fixed)
            }
        }
    }
}
