//! Masters that sentinels name.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::net::TcpListener;
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::{error::CallErrorKind, options::NodeEvent, stream::memory},
    internal_tests::connection::bench::{Bench, calls_of, eventually},
};

/// The port of the loopback that a sentinel names, and how often it was asked.
struct Named {
    port: AtomicU16,
    asked: AtomicUsize,
}

impl Named {
    fn new(port: u16) -> Arc<Self> {
        Arc::new(Self {
            port: port.into(),
            asked: 0.into(),
        })
    }

    fn answer(&self) -> String {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let digits = self.port.load(Ordering::Relaxed).to_string();
        format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{digits}\r\n", digits.len())
    }
}

/// Answers each question for the master.
async fn names(listener: TcpListener, named: Arc<Named>) {
    while let Ok((stream, _)) = listener.accept().await {
        let named = Arc::clone(&named);
        let say = move |_: &[&str]| named.answer();
        tokio::spawn(memory::serve(stream, Arc::new(say)));
    }
}

/// A sentinel that names the master with this port of the loopback, and its own port.
async fn sentinel(port: u16) -> (u16, tokio::task::JoinHandle<()>) {
    sentinel_of(Named::new(port)).await
}

async fn sentinel_of(named: Arc<Named>) -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let own = listener.local_addr().unwrap().port();
    (own, tokio::spawn(names(listener, named)))
}

/// As one that was cut off from its sentinels does.
#[tokio::test]
async fn a_master_that_sentinels_no_longer_name_is_left_although_it_serves() {
    let (old, new) = (RedisServer::start(&[]).await, RedisServer::start(&[]).await);
    let named = Named::new(old.port());
    let (sentinel, _) = sentinel_of(Arc::clone(&named)).await;
    let url = format!("redis-sentinel://127.0.0.1:{sentinel}/mymaster");
    let bench = Bench::start_with(&url, |options| {
        options.sentinel_interval = Duration::from_millis(10);
        // No server is left because a busy machine is late.
        options.deadline = Duration::from_secs(60);
    });
    bench.recovers("k").await;
    let asked = named.asked.load(Ordering::Relaxed);
    eventually("the sentinel is asked some more times", || async {
        (named.asked.load(Ordering::Relaxed) > asked + 4).then_some(())
    })
    .await;
    let lost = |event: &NodeEvent| matches!(event, NodeEvent::Lost { .. });
    assert_eq!(bench.count(lost), 0);
    named.port.store(new.port(), Ordering::Relaxed);
    bench
        .happens(
            "it is left",
            |event| matches!(event, NodeEvent::Lost { why, .. } if why.contains("another server is the master")),
        )
        .await;
    assert_eq!(bench.recovers("after").await, 1);
    assert!(new.command(&["GET", "after"]).await.starts_with("$1"));
}

#[tokio::test]
async fn a_master_behind_a_nat_is_reached_where_the_map_says() {
    let server = RedisServer::start(&[]).await;
    let (named, there) = (1, server.port());
    let (sentinel, _) = sentinel(named).await;
    let url = format!("redis-sentinel://127.0.0.1:{sentinel}/mymaster");
    let bench = Bench::start_with(&url, |options| {
        options.address_map = Some(Arc::new(move |host, port| {
            (host == "127.0.0.1" && port == named).then(|| ("localhost".to_owned(), there))
        }));
    });
    bench.recovers("k").await;
}

#[tokio::test]
async fn a_replica_that_is_named_is_not_asked_until_it_is_the_master() {
    let replica = RedisServer::start(&[]).await;
    let (sentinel, sentinel_task) = sentinel(replica.port()).await;
    let by_sentinel = format!("redis-sentinel://127.0.0.1:{sentinel}/mymaster");
    for url in [by_sentinel, replica.url()] {
        replica.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
        let asked = calls_of(&replica, "evalsha").await;
        let bench = Bench::start(&url);
        bench
            .happens(
                "it is turned away",
                |event| matches!(event, NodeEvent::NotConnected(_, why) if why.contains("it is a replica")),
            )
            .await;
        assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
        let connected = |event: &NodeEvent| matches!(event, NodeEvent::Connected(_));
        assert_eq!(bench.count(connected), 0);
        assert_eq!(calls_of(&replica, "evalsha").await, asked);
        replica.command(&["REPLICAOF", "NO", "ONE"]).await;
        bench.recovers("k").await;
    }
    sentinel_task.abort();
}
