//! What Envoy asks about, as parts of a request.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header::HOST, request::Parts};
use tollgate::{key::PeerAddr, siblings::RequestPart};
use tollgate_rules::operators::Descriptor;

use crate::{
    path::normal_path,
    proto::{RateLimitDescriptor, RateLimitRequest, rate_limit_descriptor::Entry},
};

const MAX_DESCRIPTORS: usize = 32;
const MAX_ENTRIES: usize = 16;
/// The most bytes of a key, which is one of Envoy's configuration. Values are a client's, and bounded with the message: what is refused
/// for its length would pass.
const MAX_KEY: usize = 1_024;
/// No quota has more units.
const MAX_HITS: u64 = 1 << 53;

/// The parts of a request by its descriptors, without those that give hits back, of which nothing is taken.
pub(crate) fn parts_of(message: RateLimitRequest) -> Result<Vec<RequestPart>, String> {
    let RateLimitRequest {
        domain,
        descriptors,
        hits_addend,
    } = message;
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(format!(
            "{} descriptors are more than {MAX_DESCRIPTORS}",
            descriptors.len()
        ));
    }
    if domain.len() > MAX_KEY {
        return Err(format!(
            "a domain of {} bytes is longer than {MAX_KEY}",
            domain.len()
        ));
    }
    // 0 is what a message without a number says.
    let hits = u64::from(hits_addend.max(1));
    let parts = descriptors.into_iter().map(|descriptor| {
        let hits = descriptor.hits_addend.unwrap_or(hits);
        if hits > MAX_HITS {
            return Err(format!("{hits} hits are more than any limit"));
        }
        let gives_back = descriptor.is_negative_hits;
        let part = part_of(&domain, descriptor)?.hits(hits);
        Ok((!gives_back).then_some(part))
    });
    parts.filter_map(Result::transpose).collect()
}

fn part_of(domain: &str, descriptor: RateLimitDescriptor) -> Result<RequestPart, String> {
    let entries = descriptor.entries;
    if entries.len() > MAX_ENTRIES {
        return Err(format!(
            "{} entries are more than {MAX_ENTRIES}",
            entries.len()
        ));
    }
    let (mut head, ()) = Request::new(()).into_parts();
    // A descriptor without a path is on none.
    head.uri = Uri::from_static("*");
    for Entry { key, value } in &entries {
        if key.len() > MAX_KEY {
            return Err(format!(
                "a key of {} bytes is longer than {MAX_KEY}",
                key.len()
            ));
        }
        read(key, value, &mut head)
            .ok_or_else(|| format!("the entry {key:?} has a value that no request has"))?;
    }
    let has = |name: &str| entries.iter().any(|entry| entry.key == name);
    let is_whole = has("path") && has("method");
    if !has("method") {
        // As no request has it: a condition on methods does not hold.
        head.method = Method::from_bytes(b"-").unwrap_or_default();
    }
    // A client that sends an empty field must not leave its limit by it.
    let is_whole = is_whole || entries.iter().any(|entry| entry.value.is_empty());
    let entries = entries
        .iter()
        .map(|Entry { key, value }| (Cow::Borrowed(&**key), String::from_utf8_lossy(value)));
    Descriptor::new(domain, entries).describe(&mut head);
    let part = RequestPart::new(head);
    Ok(if is_whole { part } else { part.fragment() })
}

/// Reads an entry that says something of the request's head. `None`: nothing that a head can have.
fn read(key: &str, value: &Bytes, head: &mut Parts) -> Option<()> {
    match key {
        "path" => head.uri = normal_path(value).into(),
        "method" => head.method = Method::from_bytes(value).ok()?,
        "host" => drop(
            head.headers
                .insert(HOST, HeaderValue::from_maybe_shared(value.clone()).ok()?),
        ),
        "remote_address" => {
            let address: IpAddr = str::from_utf8(value).ok()?.parse().ok()?;
            head.extensions
                .insert(PeerAddr(SocketAddr::new(address, 0)));
        }
        _ => {
            if let Some(name) = key.strip_prefix("header:") {
                let name: HeaderName = name.parse().ok()?;
                head.headers
                    .append(name, HeaderValue::from_maybe_shared(value.clone()).ok()?);
            }
        }
    }
    Some(())
}
