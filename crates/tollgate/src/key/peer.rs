//! The address of the socket's peer.

use std::net::{IpAddr, SocketAddr};

use crate::{head::Head, key::extractor::NoKey};

/// The address of the socket peer, as an extension of the request.
///
/// It takes precedence over the frameworks' own extensions. Set it if the framework does not know the peer, or a wrong one:
///
/// - behind a load balancer that speaks the PROXY protocol, the code that accepts connections reads the address from the
///   protocol's header and sets it here. Accept that header only from the load balancer.
/// - with a server of your own on hyper, a middleware around each connection sets what `accept` has returned.
/// - in tests. axum's `MockConnectInfo` as a layer around the router works as well (feature `axum`).
///
/// Never set it from a header of the request; that is what [`client_ip`](crate::key::client_ip()) is for.
///
/// ```
/// use tollgate::key::{PeerAddr, client_ip};
///
/// let (mut head, ()) = http::Request::new(()).into_parts();
/// head.extensions.insert(PeerAddr("192.0.2.1:40000".parse().unwrap()));
/// assert_eq!(client_ip().resolve(&head).unwrap().to_string(), "192.0.2.1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The peer's address, an IPv4-mapped one as IPv4.
pub(crate) fn peer(head: &Head<'_>) -> Option<IpAddr> {
    // A dual-stack socket reports IPv4 peers as `::ffff:a.b.c.d`. Masked to a prefix they would all share one budget.
    with_peer(head, |peer| peer.ip().to_canonical())
}

pub(crate) fn no_peer() -> NoKey {
    NoKey::Misconfigured(
        "the request has no peer address: serve axum's router with \
         into_make_service_with_connect_info::<SocketAddr>() and tollgate's feature `axum`, tonic's server with the \
         feature `tonic`, or put tollgate::key::PeerAddr into the request's extensions; on a Unix socket, where there is none, \
         behind a proxy that says who the client is, count by client_ip().trusted_proxies([\"unix:\"]).x_forwarded_for(), and let the \
         proxy set the header, as nginx does with proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; \
         tollgate-server has it from its proxy, by the entry remote_address or X-Forwarded-For"
            .into(),
    )
}

/// What `then` makes of the peer's address where it lies: an address is slow to copy, byte by byte. `None`: it is not known.
///
/// The sources, by precedence. Add the connect info of another framework here.
#[inline]
pub(crate) fn with_peer<T>(head: &Head<'_>, then: impl FnOnce(&SocketAddr) -> T) -> Option<T> {
    if let Some(PeerAddr(peer)) = head.extensions.get() {
        return Some(then(peer));
    }
    #[cfg(feature = "axum")]
    if let Some(peer) = axum_peer(head) {
        return Some(then(peer));
    }
    #[cfg(feature = "tonic")]
    return tonic_peer(head).map(|peer| then(&peer));
    #[cfg(not(feature = "tonic"))]
    None
}

#[cfg(feature = "axum")]
#[inline]
fn axum_peer<'h>(head: &Head<'h>) -> Option<&'h SocketAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let info = head.extensions.get::<ConnectInfo<SocketAddr>>();
    let mock = || head.extensions.get::<MockConnectInfo<SocketAddr>>();
    info.map(|info| &info.0)
        .or_else(|| mock().map(|mock| &mock.0))
}

#[cfg(feature = "tonic")]
fn tonic_peer(head: &Head<'_>) -> Option<SocketAddr> {
    use tonic::{Request, metadata::MetadataMap, transport::server::TcpConnectInfo};

    if let Some(plain) = head.extensions.get::<TcpConnectInfo>() {
        return plain.remote_addr;
    }
    // Under TLS it is another type, which depends on the application's TLS library. tonic resolves it from a clone of the
    // extensions.
    let extensions = head.extensions.clone();
    Request::from_parts(MetadataMap::new(), extensions, ()).remote_addr()
}
