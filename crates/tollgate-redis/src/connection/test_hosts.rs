//! Hosts that a test makes up: names without a resolver, and networks on which a connection takes its time.

use std::{cell::RefCell, collections::HashMap, net::SocketAddr, time::Duration};

use tokio::time::sleep;

thread_local! {
    /// A test with one thread finds its own.
    static HOSTS: RefCell<HashMap<String, Vec<SocketAddr>>> = RefCell::default();
    static ROUND_TRIPS: RefCell<HashMap<SocketAddr, Duration>> = RefCell::default();
}

/// From now on the host has these addresses, in this order.
pub(crate) fn resolve(host: &str, addresses: &[SocketAddr]) {
    HOSTS.with_borrow_mut(|hosts| hosts.insert(host.to_owned(), addresses.to_vec()));
}

/// From now on the TCP handshake with this address takes `round_trip`. The loopback completes it at once, in the kernel, so
/// the connection is begun later.
pub(crate) fn set_round_trip(address: SocketAddr, round_trip: Duration) {
    ROUND_TRIPS.with_borrow_mut(|times| times.insert(address, round_trip));
}

pub(super) fn addresses(host: &str) -> Option<Vec<SocketAddr>> {
    HOSTS.with_borrow(|hosts| hosts.get(host).cloned())
}

pub(super) async fn handshake(address: SocketAddr) {
    let round_trip = ROUND_TRIPS.with_borrow(|times| times.get(&address).copied());
    if let Some(round_trip) = round_trip {
        sleep(round_trip).await;
    }
}
