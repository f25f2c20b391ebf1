//! How a document says that load is shed: `shed = { capacity = 200, thresholds = ["90%", "80%", "70%"] }`.

use std::sync::Arc;

use tollgate::shed::{Capacity, ShedError, ShedLayer, TrustedHeaders};

use crate::{
    json_text::one_line,
    node::{Node, Value},
    reader::Reader,
};

/// The settings of a shedder. Each layer that is made of them has a capacity of its own.
#[derive(Clone)]
pub(crate) struct ShedEntry {
    /// What the document says, to be compared.
    pub(crate) said: String,
    make: Arc<dyn Fn() -> Result<ShedLayer, ShedError> + Send + Sync>,
}

impl ShedEntry {
    /// Reads the table.
    pub(crate) fn read(reader: Reader<'_>, node: &Node) -> Option<Self> {
        let fields = reader.fields(node, "shed", "shed")?;
        let before = reader.problems.len();
        let capacity = fields.required("capacity", "\"adaptive\"");
        let capacity = capacity.and_then(|node| capacity_of(reader, node));
        let thresholds = fields.read("thresholds", |node| thresholds(reader, node));
        let retry_after = fields.read("retry_after", |node| reader.duration(node));
        let header = |name| fields.read(name, |node| reader.header_name(node, "x-priority"));
        let (priority, request_id) = (header("priority_header"), header("request_id_header"));
        let trusted = fields.read("trusted", |node| {
            let networks = reader.list_or_one(node).iter();
            let networks = networks.map(|node| reader.text(node, "a network as \"10.0.0.0/8\""));
            let networks = networks.map(|text| Some(text?.value.to_owned()));
            networks.collect::<Option<Vec<_>>>()
        });
        let capacity = capacity?;
        if reader.problems.len() > before {
            return None;
        }
        if trusted.is_none() && (priority.is_some() || request_id.is_some()) {
            let trusted = reader.example("trusted = [\"10.0.0.0/8\"]");
            let message = format!(
                "any client may write a header; add {trusted} with the networks of your gateways"
            );
            reader.wrong(&node.span, message);
            return None;
        }
        if trusted.is_some() && priority.is_none() && request_id.is_none() {
            let header = reader.example("priority_header = \"x-priority\"");
            reader.wrong(
                &node.span,
                format!(
                    "nothing is read from peers that are trusted; add {header}, or remove trusted"
                ),
            );
            return None;
        }
        let make = move || {
            let mut layer = ShedLayer::new(capacity()?);
            if let Some([p1, p2, p3]) = thresholds {
                layer = layer.thresholds(p1, p2, p3)?;
            }
            if let Some(least) = retry_after {
                layer = layer.retry_after(least);
            }
            if let Some(trusted) = &trusted {
                let mut headers = TrustedHeaders::from(trusted)?;
                if let Some(name) = &priority {
                    headers = headers.priority(name.as_str())?;
                }
                if let Some(name) = &request_id {
                    headers = headers.request_id(name.as_str())?;
                }
                layer = layer.trusted_headers(headers);
            }
            Ok::<_, ShedError>(layer)
        };
        if let Err(wrong) = make() {
            reader.wrong(&node.span, wrong.to_string());
            return None;
        }
        Some(Self {
            said: one_line(&node.value),
            make: Arc::new(make),
        })
    }

    pub(crate) fn are_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        one.map(|entry| &entry.said) == other.map(|entry| &entry.said)
    }

    /// A layer with these settings. Without settings nothing is shed.
    pub(crate) fn layer(entry: Option<&Self>) -> ShedLayer {
        // It was made once, when the document was read.
        let made = entry.and_then(|entry| (entry.make)().ok());
        made.unwrap_or_else(|| ShedLayer::new(Capacity::measured(|| 0.0)))
    }
}

type MakeCapacity = Box<dyn Fn() -> Result<Capacity, ShedError> + Send + Sync>;

/// `"adaptive"`, a number of requests in flight, `{ least = 8, most = 500 }` or `{ worker_delay = "50ms" }`.
fn capacity_of(reader: Reader<'_>, node: &Node) -> Option<MakeCapacity> {
    const MOST: u64 = 1_000_000;
    match &node.value {
        Value::Text(_) => {
            reader.word(node, "capacity", &[("adaptive", ())])?;
            Some(Box::new(|| Ok(Capacity::adaptive())))
        }
        Value::Table(_) => {
            let fields = reader.fields(node, "a capacity", "shed_capacity")?;
            if let Some(delay) = fields.get("worker_delay") {
                if fields.get("least").or(fields.get("most")).is_some() {
                    reader.wrong(
                        &node.span,
                        "a capacity is worker_delay, or least and most; remove the others",
                    );
                    return None;
                }
                let full = reader.duration(delay)?;
                return Some(Box::new(move || Capacity::worker_delay(full)));
            }
            let bound = |name| {
                let node = fields.required(name, "100")?;
                // At most a million.
                Some(reader.number(node, "requests in flight", 1, MOST)? as usize)
            };
            let (least, most) = (bound("least")?, bound("most")?);
            Some(Box::new(move || Capacity::adaptive_within(least, most)))
        }
        _ => {
            let requests = reader.number(node, "requests in flight", 1, MOST)? as usize;
            Some(Box::new(move || Capacity::in_flight(requests)))
        }
    }
}

/// The shares from which on P1, P2 and P3 are shed.
fn thresholds(reader: Reader<'_>, node: &Node) -> Option<[f64; 3]> {
    let Value::List(nodes) = &node.value else {
        reader.expected(
            node,
            "the thresholds of P1, P2 and P3 as [\"90%\", \"80%\", \"70%\"]",
        );
        return None;
    };
    let shares = nodes
        .iter()
        .map(|node| Some(reader.permille(node, 100)? as f64 / 1_000.0));
    let shares = shares.collect::<Option<Vec<_>>>()?;
    let three = <[f64; 3]>::try_from(shares).ok();
    if three.is_none() {
        reader.wrong(
            &node.span,
            "there are three thresholds, of P1, P2 and P3; write [\"90%\", \"80%\", \"70%\"]",
        );
    }
    three
}
