//! Servers that are far away, and what servers are told about a connection.

use std::{io, time::Duration};

use tokio::time::timeout;
use tollgate_core::{DAY, Key, Limiter, Quota, Rule, Source};
use tollgate_test_servers::{
    full_backlog::FullBacklog,
    proxy::{Fault, Proxy},
    redis_server::{PATIENCE, RedisServer},
};

use crate::{
    Keys, RedisStore,
    connection::{event::NodeEvent, test_hosts},
    internal_tests::connection::bench::{Bench, eventually},
};

/// Each way.
pub(super) const FAR: Duration = Duration::from_millis(130);

/// A proxy that holds back each piece, both ways. The handshake of TCP takes a round trip too: the kernel of the loopback
/// completes it at once, so the connection is begun later by as much.
pub(super) async fn far(port: u16) -> Proxy {
    let proxy = Proxy::start(port, 3).await;
    proxy.set(Fault::Delay(FAR, FAR));
    test_hosts::set_round_trip(([127, 0, 0, 1], proxy.port()).into(), 2 * FAR);
    proxy
}

#[tokio::test]
async fn a_host_whose_first_address_refuses_connections_is_reached_by_the_next() {
    let server = RedisServer::start(&[]).await;
    let full = FullBacklog::start().await;
    let live = ([127, 0, 0, 1], server.port()).into();
    test_hosts::resolve("two-addresses.test", &[full.address(), live]);
    let store = RedisStore::builder("redis://two-addresses.test/1", "shop", Keys::plain())
        .deadline(PATIENCE)
        .connect()
        .expect("a valid address");
    let connected = timeout(PATIENCE, store.connected()).await;
    connected.expect("the second address is tried");
    let limiter = Limiter::new(store, [Rule::new("api", Quota::fixed_window(5, DAY))]);
    let limiter = limiter.expect("a valid rule");
    let check = limiter.check("api", &Key::of("client"));
    let decision = limiter.acquire(&[check.expect("it is there")]).await;
    assert_eq!(decision.verdicts()[0].source(), Source::Store);
    let keys = server.commands(&[&["SELECT", "1"], &["KEYS", "*:api:*"]]);
    assert!(keys.await.contains("*1\r\n"));
}

#[tokio::test]
async fn a_resolver_of_the_application_says_where_a_host_is() {
    let server = RedisServer::start(&[]).await;
    let full = FullBacklog::start().await;
    let (dead, live) = (full.address(), ([127, 0, 0, 1], server.port()).into());
    let store = RedisStore::builder("redis://cache.test:7", "shop", Keys::plain())
        .dns_resolver(move |host, port| async move {
            assert_eq!((&*host, port), ("cache.test", 7));
            Ok(vec![dead, live])
        })
        .connect()
        .expect("a valid address");
    let connected = timeout(PATIENCE, store.connected()).await;
    connected.expect("the second address is tried");
    // What it answers is why there is no connection.
    let store = RedisStore::builder("redis://cache.test:7", "shop", Keys::plain())
        .dns_resolver(|_, _| async { Err(io::Error::other("the zone is gone")) })
        .connect()
        .expect("a valid address");
    eventually("it is shown", || async {
        let why = store.connection_error()?;
        why.contains("cache.test is not found: the zone is gone")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_130_ms_away_is_connected_to_with_a_database() {
    let server = RedisServer::start(&[]).await;
    let proxy = far(server.port()).await;
    // Also where no call could be answered in time.
    let bench = Bench::start(&format!("{}/1", proxy.url()));
    bench
        .happens("it is connected", |event| {
            matches!(event, NodeEvent::Connected(_))
        })
        .await;
    let bench = Bench::start_with(&format!("{}/1", proxy.url()), |options| {
        options.deadline = Duration::from_secs(5);
    });
    assert_eq!(bench.recovers("k").await, 1);
    let answer = server.commands(&[&["SELECT", "1"], &["GET", "k"]]).await;
    assert_eq!(answer, "+OK\r\n$1\r\n1\r\n");
}

#[tokio::test]
async fn a_server_shows_who_is_connected_and_an_event_shows_the_server() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start_with(&server.url(), |options| {
        options.client_name = Some("tollgate:shop".to_owned());
    });
    bench.recovers("k").await;
    let clients = server.command(&["CLIENT", "LIST"]).await;
    assert!(clients.contains(" name=tollgate:shop "), "{clients}");
    let events = bench.events();
    let peer = events.iter().find_map(|event| match event {
        NodeEvent::Connected(peer) => Some(peer),
        _ => None,
    });
    let peer = peer.expect("there was an event");
    assert_eq!((&*peer.role, peer.protocol), ("master", 3));
    assert!(!peer.version.is_empty() && !peer.server.is_empty());
    let version = format!("redis_version:{}", peer.version);
    let info = server.command(&["INFO", "server"]).await;
    let is_it =
        info.contains(&version) || info.contains(&format!("valkey_version:{}", peer.version));
    assert!(is_it, "{peer}");
}
