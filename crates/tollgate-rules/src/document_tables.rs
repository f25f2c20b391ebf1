//! The tables that are for a document as a whole: how addresses are found, lists in files, how load is shed.

use std::{path::Path, sync::Arc};

use tollgate::{
    key::{ClientIp, KeyExtractor, client_ip},
    key_list::KeyList,
    shed::{Capacity, ShedLayer},
};

use crate::{
    bindings::hashed_list,
    list_file::ListFile,
    node::{Name, Value},
    reader::Item,
};

/// What thresholds look like.
const THRESHOLDS: &str =
    "the thresholds of P1, P2 and P3 are three shares that fall; write [\"90%\", \"80%\", \"70%\"]";
/// What a network looks like.
const NETWORK: &str = "a network as \"10.0.0.0/8\"";

/// Reads how a client's address is found: `client_ip = { header = "x-forwarded-for", trusted_proxies = ["10.0.0.0/8"] }`.
pub(crate) fn read_client_ip(item: Item<'_>) -> Option<ClientIp> {
    let fields = item.fields("client_ip", "client_ip")?;
    let header = fields.header("header", "x-forwarded-for");
    let mut client = client_ip();
    for item in fields.list("trusted_proxies") {
        let proxy = item.text(NETWORK)?;
        let alone = client_ip().trusted_proxies([proxy]).x_forwarded_for();
        item.or_refuse(alone.validate())?;
        client = client.trusted_proxies([proxy]);
    }
    if fields.get("hops").is_some() {
        // At most 64.
        client = client.hops(fields.number("hops", "a number of proxies", 1, 64)? as usize);
    } else if fields.get("trusted_proxies").is_none() {
        return item.refuse(
            "any client may write a header; add «trusted_proxies = [\"10.0.0.0/8\"]» with the networks of your proxies, or \
             «hops = 1» with their number",
        );
    }
    client = match header?.as_str() {
        "x-forwarded-for" => client.x_forwarded_for(),
        "forwarded" => client.forwarded(),
        name => client.single_header(name),
    };
    let wrong = fields.get("hops").unwrap_or(item);
    wrong.or_refuse(client.validate().map(|()| client))
}

/// Reads a list: `lists.partners = { file = "partners.txt" }`, where the file is named relative to `folder`.
pub(crate) fn read_list(
    item: Item<'_>,
    name: &Name,
    folder: Option<&Path>,
) -> Option<Arc<ListFile>> {
    let bindings = item.reader.bindings;
    if !matches!(item.value(), Value::Table(_)) {
        return item.expected("a list as { «file = \"partners.txt\"» }");
    }
    let fields = item.fields("a list", "list")?;
    let file = fields.get("file");
    let path = file.and_then(|file| file.text("the name of a file as \"partners.txt\""));
    let is_hashed = fields.is("hashed");
    let (file, path) = (file?, path?);
    if bindings.is_push {
        return file.refuse(
            "rules in Redis cannot name a file, which their processes do not have; bind the list in code, by Bindings::list, or keep \
             the rules in a file",
        );
    }
    let Some(folder) = folder else {
        return file.refuse(
            "only a file names the file of a list; bind the list in code, by Bindings::list",
        );
    };
    if bindings.lists.contains_key(&name.text) {
        let message = format!(
            "there is a list {:?} already, in another text or in the code of the service; give each a name of its own",
            name.text
        );
        return item.reader.refuse(&name.span, message);
    }
    let list = match (is_hashed, &bindings.hash_key) {
        (true, None) => {
            return file.refuse(
                "keys are found by their hash with the secret that made it, and there is none; write the keys themselves, or give the \
                 secret by Bindings::secret",
            );
        }
        (true, Some(hash_key)) => hashed_list(&name.text, Arc::clone(hash_key)),
        _ => KeyList::new(&*name.text),
    };
    let key = (name.text.clone(), folder.join(path), is_hashed);
    let opened = bindings.list_files.open(key, &list);
    file.or_refuse(opened.map_err(|wrong| format!("{path:?}: {wrong}")))
}

/// Reads `shed = { capacity = 200, thresholds = ["90%", "80%", "70%"] }`: a layer with a capacity of its own.
pub(crate) fn read_shed(item: Item<'_>) -> Option<ShedLayer> {
    let fields = item.fields("shed", "shed")?;
    let before = item.reader.problems.len();
    let capacity = fields.read("capacity", capacity);
    let thresholds = fields.read("thresholds", thresholds);
    let retry_after = fields.duration("retry_after");
    let header = |name| fields.header(name, "x-priority");
    let (priority, request_id) = (header("priority_header"), header("request_id_header"));
    let networks = fields.list("trusted");
    let trusted: Vec<&str> = networks.filter_map(|item| item.text(NETWORK)).collect();
    let capacity = capacity.filter(|_| item.reader.problems.len() == before)?;
    let has_header = priority.is_some() || request_id.is_some();
    match (fields.get("trusted").is_some(), has_header) {
        (false, true) => {
            return item.refuse("any client may write a header; add «trusted = [\"10.0.0.0/8\"]» with the networks of your gateways");
        }
        (true, false) => {
            return item.refuse("nothing is read from peers that are trusted; add «priority_header = \"x-priority\"», or remove trusted");
        }
        _ => {}
    }
    let mut layer = ShedLayer::new(capacity);
    if let Some([p1, p2, p3]) = thresholds {
        let Ok(falling) = layer.thresholds(p1, p2, p3) else {
            return fields.get("thresholds")?.refuse(THRESHOLDS);
        };
        layer = falling;
    }
    if let Some(least) = retry_after {
        layer = layer.retry_after(least);
    }
    if let Some(name) = priority {
        let made = layer.priority_header(name.as_str(), &trusted);
        layer = fields.get("trusted")?.or_refuse(made)?;
    }
    if let Some(name) = request_id {
        let made = layer.request_id_header(name.as_str(), &trusted);
        layer = fields.get("trusted")?.or_refuse(made)?;
    }
    Some(layer)
}

/// `"adaptive"`, a number of requests in flight, `{ least = 8, most = 500 }` or `{ worker_delay = "50ms" }`.
fn capacity(item: Item<'_>) -> Option<Capacity> {
    const MOST: u64 = 1_000_000;
    let made = match item.value() {
        Value::Text(_) => {
            item.word("capacity", &[("adaptive", ())])?;
            return Some(Capacity::adaptive());
        }
        Value::Table(_) => {
            let fields = item.fields("a capacity", "shed_capacity")?;
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
                    return item.refuse(
                        "a capacity is worker_delay, or both least and most; write «{ least = 8, most = 500 }» or \
                         «{ worker_delay = \"50ms\" }»",
                    );
                }
            }
        }
        _ => Capacity::in_flight(item.number("requests in flight", 1, MOST)? as usize),
    };
    item.or_refuse(made)
}

/// The shares from which on P1, P2 and P3 are shed.
fn thresholds(item: Item<'_>) -> Option<[f64; 3]> {
    if !matches!(item.value(), Value::List(_)) {
        return item.refuse(THRESHOLDS);
    }
    let share = |share: Item<'_>| Some(share.permille("0", 100)? as f64 / 1_000.0);
    let shares: Option<Vec<f64>> = item.list_or_one().map(share).collect();
    let three = <[f64; 3]>::try_from(shares?).ok();
    three.or_else(|| item.refuse(THRESHOLDS))
}
