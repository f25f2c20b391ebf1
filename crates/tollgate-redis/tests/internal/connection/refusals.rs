//! Servers that answer, and do not serve.

use std::time::Duration;

use tokio::{io::AsyncWriteExt, net::TcpStream};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::{
        breaker_state::BreakerState, error::CallErrorKind, event::NodeEvent, options::NodeOptions,
    },
    internal_tests::connection::bench::{Bench, count_of, eventually},
};

/// On a busy machine too, no call is late; and one failure opens the breaker, however fast the calls follow each other.
fn patient(options: &mut NodeOptions) {
    options.deadline = Duration::from_secs(10);
    options.breaker.failures = 1;
}

/// Asserts that each call is refused with this code, and that the server is asked all the same: it answers what does not
/// write.
async fn is_refused(bench: &Bench, code: &str) {
    for _ in 0..50 {
        let error = bench.take("k").await.unwrap_err();
        assert_eq!(error.kind(), CallErrorKind::NotWritable);
        assert!(error.to_string().contains(code), "{error}");
    }
    assert_eq!(bench.node.breaker(), BreakerState::Closed);
    assert_eq!(
        bench.count(|event| matches!(event, NodeEvent::Lost { .. })),
        0
    );
}

#[tokio::test]
async fn a_server_without_memory_refuses_to_write_until_it_has_some() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]).await;
    let bench = Bench::start_with(&server.url(), patient);
    bench.recovers("k").await;
    bench.is_well().await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    is_refused(&bench, "OOM").await;
    assert_eq!(count_of(&server, "k").await, 1);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(bench.take("k").await.unwrap(), 2);
}

#[tokio::test]
async fn a_breaker_closes_before_a_server_that_only_refuses_to_write() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    server.stop();
    eventually("the breaker opens", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    server.resume();
    eventually("the breaker is closed", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Closed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_key_of_another_type_fails_its_call_and_nothing_else() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::patient(&server.url());
    bench.recovers("k").await;
    server.command(&["HSET", "taken", "field", "value"]).await;
    for _ in 0..50 {
        let error = bench.take("taken").await.unwrap_err();
        assert_eq!(error.kind(), CallErrorKind::Misconfigured);
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    }
    assert_eq!(bench.node.breaker(), BreakerState::Closed);
    bench.take("k").await.unwrap();
    assert_eq!(
        bench.count(|event| matches!(event, NodeEvent::Lost { .. })),
        0
    );
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_left_and_used_again_when_it_is_a_master() {
    let master = RedisServer::start(&[]).await;
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    bench.forget_events();
    let port = master.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    eventually("a call is refused", || async {
        let error = bench.take("k").await.err()?;
        assert_ne!(error.kind(), CallErrorKind::Misconfigured, "{error}");
        Some(())
    })
    .await;
    bench
        .happens("the connection is dropped", |event| {
            matches!(event, NodeEvent::Lost { .. })
        })
        .await;
    // Connections to a replica can be made, and must not be made without a pause.
    eventually("pauses grow until probes are all that is left", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]).await;
    bench.is_well().await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_left_alone_until_the_script_ends() {
    let server = RedisServer::start(&["--busy-reply-threshold", "50"]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    stream
        .write_all(b"EVAL \"while true do end\" 0\r\n")
        .await
        .unwrap();
    eventually("the breaker opens", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    eventually("the script is killed", || async {
        let killed = server.command(&["SCRIPT", "KILL"]).await;
        killed.starts_with("+OK").then_some(())
    })
    .await;
    bench.is_well().await;
}
