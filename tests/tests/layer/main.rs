//! The layer as its users meet it: in stacks, over sockets, in handlers, in metrics and events.

mod construction;
mod contract;
mod failing;
mod handler;
mod keys;
mod live;
mod messages;
mod names;
mod observed;
mod proxies;
mod rules;
mod shed;
mod stacks;
mod wire;

use http::{Request, request};
use tollgate::{ManualClock, MemoryStore, key::PeerAddr};

/// Noon of some day, so that windows begin where the tests do.
const NOON: u64 = 1_767_268_800_000_000;

/// A store whose time moves only when told to.
fn still() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::new(NOON);
    (MemoryStore::builder().clock(&clock).build(), clock)
}

/// A request from an address.
fn get(path: &str) -> request::Builder {
    let peer = "192.0.2.1:40000".parse().expect("an address");
    Request::get(path).extension(PeerAddr(peer))
}
