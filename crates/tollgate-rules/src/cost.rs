//! What a request costs: `cost = 5`, a bound name, or a header. And what it has cost, by its response.

use std::sync::Arc;

use tollgate_core::MAX_UNITS;

use crate::{
    bindings::{Bindings, CostFn, ResponseCostFn},
    node::{Node, Value},
    reader::Reader,
};

use tollgate::Head;

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
                if !bindings.costs.contains_key(name) && reader.is_quoted_number(node) {
                    return None;
                }
                let bound = reader.bound(node, "bound cost", name, &bindings.costs);
                bound.map(Self::Computed)
            }
            Value::Table(_) => {
                let fields = reader.fields(node, "a cost", "cost_header")?;
                let header = fields.required("header", "\"x-cost\"");
                let name = header.and_then(|node| reader.header_name(node, "x-cost"));
                let max = fields.required("max", "100");
                let max = max.and_then(|node| reader.number(node, "a cost in units", 1, MAX_UNITS));
                let (name, max) = (name?, max?);
                // What a client leaves out or misspells costs most.
                let cost = move |head: &Head<'_>| {
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

/// The units that a request has cost, by its response: a bound name, or a header of the service.
pub(crate) fn read_response_cost(
    reader: Reader<'_>,
    node: &Node,
    bindings: &Bindings,
) -> Option<Arc<ResponseCostFn>> {
    if let Value::Text(name) = &node.value {
        return reader.bound(node, "cost by the response", name, &bindings.response_costs);
    }
    let what = "a cost by the response";
    let fields = reader.fields(node, what, "response_cost")?;
    let header = fields.required("header", "\"x-tokens-used\"")?;
    let name = reader.header_name(header, "x-tokens-used")?;
    Some(Arc::new(move |response| {
        response.header(name.as_str())?.trim().parse().ok()
    }))
}
