//! The tables that are for a document as a whole: how addresses are found, lists in files, how load is shed.

use std::{path::Path, sync::Arc};

use tollgate::{
    RuleError,
    key::{ClientIp, KeyExtractor, client_ip},
    key_list::KeyList,
    shed::{Capacity, ShedLayer},
};

use crate::{
    bindings::hashed_list,
    list_file::ListFile,
    node::{Name, Node, Value},
    reader::Reader,
};

/// Reads how a client's address is found: `client_ip = { header = "x-forwarded-for", trusted_proxies = ["10.0.0.0/8"] }`.
pub(crate) fn read_client_ip(reader: Reader<'_>, node: &Node) -> Option<ClientIp> {
    let fields = reader.fields(node, "client_ip", "client_ip")?;
    let header = fields.header("header", "x-forwarded-for");
    let mut client = client_ip();
    for node in fields.list("trusted_proxies") {
        let proxy = reader.text(node, "a network as \"10.0.0.0/8\"")?;
        let alone = client_ip().trusted_proxies([proxy]).x_forwarded_for();
        if let Err(wrong) = alone.validate() {
            return reader.refuse(&node.span, wrong);
        }
        client = client.trusted_proxies([proxy]);
    }
    if fields.get("hops").is_some() {
        // At most 64.
        client = client.hops(fields.number("hops", "a number of proxies", 1, 64)? as usize);
    } else if fields.get("trusted_proxies").is_none() {
        let message = "any client may write a header; add «trusted_proxies = [\"10.0.0.0/8\"]» with the networks of your proxies, or \
                       «hops = 1» with their number";
        return reader.refuse(&node.span, message);
    }
    client = match header?.as_str() {
        "x-forwarded-for" => client.x_forwarded_for(),
        "forwarded" => client.forwarded(),
        name => client.single_header(name),
    };
    match client.validate() {
        Ok(()) => Some(client),
        Err(wrong) => reader.refuse(&node.span, wrong),
    }
}

/// Reads a list: `lists.partners = { file = "partners.txt" }`, where the file is named relative to `folder`.
pub(crate) fn read_list(
    reader: Reader<'_>,
    name: &Name,
    node: &Node,
    folder: Option<&Path>,
) -> Option<Arc<ListFile>> {
    let bindings = reader.bindings;
    if !matches!(node.value, Value::Table(_)) {
        return reader.expected(node, "a list as { «file = \"partners.txt\"» }");
    }
    let fields = reader.fields(node, "a list", "list")?;
    let path = fields.text("file", "the name of a file as \"partners.txt\"");
    let is_hashed = fields.is("hashed");
    let path = path?;
    let refuse = |message: &str| {
        fields.wrong("file", message);
        None
    };
    if bindings.is_push {
        return refuse(
            "rules in Redis cannot name a file, which their processes do not have; bind the list in code, by Bindings::list, or keep \
             the rules in a file",
        );
    }
    let Some(folder) = folder else {
        return refuse(
            "only a file names the file of a list; bind the list in code, by Bindings::list",
        );
    };
    if bindings.lists.contains_key(&name.text) {
        let message = format!(
            "there is a list {:?} already, in another text or in the code of the service; give each a name of its own",
            name.text
        );
        return reader.refuse(&name.span, message);
    }
    let list = match (is_hashed, &bindings.hash_key) {
        (true, None) => {
            return refuse(
                "keys are found by their hash with the secret that made it, and there is none; write the keys themselves, or give the \
                 secret by Bindings::secret",
            );
        }
        (true, Some(hash_key)) => hashed_list(&name.text, Arc::clone(hash_key)),
        _ => KeyList::new(&*name.text),
    };
    let key = (name.text.clone(), folder.join(path), is_hashed);
    let opened = bindings.list_files.open(key, &list);
    opened.map_or_else(|wrong| refuse(&format!("{path:?}: {wrong}")), Some)
}

/// Reads `shed = { capacity = 200, thresholds = ["90%", "80%", "70%"] }`: a layer with a capacity of its own.
pub(crate) fn read_shed(reader: Reader<'_>, node: &Node) -> Option<ShedLayer> {
    let fields = reader.fields(node, "shed", "shed")?;
    let before = reader.problems.len();
    let capacity = fields.read("capacity", |node| capacity_of(reader, node));
    let thresholds = fields.read("thresholds", |node| thresholds(reader, node));
    let retry_after = fields.duration("retry_after");
    let header = |name| fields.header(name, "x-priority");
    let (priority, request_id) = (header("priority_header"), header("request_id_header"));
    let trusted: Option<Vec<&str>> = fields.read("trusted", |node| {
        let networks = reader
            .list_or_one(node)
            .iter()
            .map(|node| reader.text(node, "a network as \"10.0.0.0/8\""));
        networks.collect()
    });
    let capacity = capacity.filter(|_| reader.problems.len() == before)?;
    let has_header = priority.is_some() || request_id.is_some();
    if trusted.is_none() && has_header {
        let message = "any client may write a header; add «trusted = [\"10.0.0.0/8\"]» with the networks of your gateways";
        return reader.refuse(&node.span, message);
    }
    if trusted.is_some() && !has_header {
        let message = "nothing is read from peers that are trusted; add «priority_header = \"x-priority\"», or remove trusted";
        return reader.refuse(&node.span, message);
    }
    let make = || {
        let mut layer = ShedLayer::new(capacity);
        if let Some([p1, p2, p3]) = thresholds {
            layer = layer.thresholds(p1, p2, p3)?;
        }
        if let Some(least) = retry_after {
            layer = layer.retry_after(least);
        }
        let trusted = trusted.unwrap_or_default();
        if let Some(name) = priority {
            layer = layer.priority_header(name.as_str(), &trusted)?;
        }
        if let Some(name) = request_id {
            layer = layer.request_id_header(name.as_str(), &trusted)?;
        }
        Ok(layer)
    };
    or_refuse(reader, node, make())
}

fn or_refuse<T>(reader: Reader<'_>, node: &Node, made: Result<T, RuleError>) -> Option<T> {
    made.map_err(|wrong| reader.wrong(&node.span, wrong.to_string()))
        .ok()
}

/// `"adaptive"`, a number of requests in flight, `{ least = 8, most = 500 }` or `{ worker_delay = "50ms" }`.
fn capacity_of(reader: Reader<'_>, node: &Node) -> Option<Capacity> {
    const MOST: u64 = 1_000_000;
    let made = match &node.value {
        Value::Text(_) => {
            reader.word(node, "capacity", &[("adaptive", ())])?;
            return Some(Capacity::adaptive());
        }
        Value::Table(_) => {
            let fields = reader.fields(node, "a capacity", "shed_capacity")?;
            let bound = |name| fields.number(name, "requests in flight", 1, MOST);
            match (
                bound("least"),
                bound("most"),
                fields.duration("worker_delay"),
            ) {
                // At most a million.
                (Some(least), Some(most), None) => {
                    Capacity::adaptive_within(least as usize, most as usize)
                }
                (None, None, Some(full)) => Capacity::worker_delay(full),
                _ => {
                    let message = "a capacity is worker_delay, or both least and most; write «{ least = 8, most = 500 }» or \
                                   «{ worker_delay = \"50ms\" }»";
                    return reader.refuse(&node.span, message);
                }
            }
        }
        _ => Capacity::in_flight(reader.number(node, "requests in flight", 1, MOST)? as usize),
    };
    or_refuse(reader, node, made)
}

/// The shares from which on P1, P2 and P3 are shed.
fn thresholds(reader: Reader<'_>, node: &Node) -> Option<[f64; 3]> {
    let three = "[\"90%\", \"80%\", \"70%\"]";
    let Value::List(nodes) = &node.value else {
        return reader.expected(node, &format!("the thresholds of P1, P2 and P3 as {three}"));
    };
    let share = |node| Some(reader.permille(node, 100)? as f64 / 1_000.0);
    let shares: Option<Vec<f64>> = nodes.iter().map(share).collect();
    <[f64; 3]>::try_from(shares?).ok().or_else(|| {
        let message = format!("there are three thresholds, of P1, P2 and P3; write {three}");
        reader.refuse(&node.span, message)
    })
}
