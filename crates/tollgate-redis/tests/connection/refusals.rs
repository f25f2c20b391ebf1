//! Servers that answer, and do not serve.

use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    connection::{breaker::BreakerState, error::CallErrorKind, event::NodeEvent},
    connection_tests::{
        bench::{Bench, count_of, eventually},
        redis_server::RedisServer,
    },
};

#[tokio::test]
async fn a_server_without_memory_is_unavailable_until_it_has_some() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = bench.take("k").await.unwrap_err();
    assert_eq!(error.kind(), CallErrorKind::Unavailable);
    assert!(error.to_string().starts_with("OOM"), "{error}");
    eventually("the breaker opens", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() != BreakerState::Closed).then_some(())
    })
    .await;
    assert_eq!(count_of(&server, "k").await, 1);
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await;
    bench.is_well().await;
    assert_eq!(bench.count(|event| matches!(event, NodeEvent::Lost(_))), 0);
}

#[tokio::test]
async fn a_key_of_another_type_fails_its_call_and_nothing_else() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    server.ask(&["HSET", "taken", "field", "value"]).await;
    for _ in 0..50 {
        let error = bench.take("taken").await.unwrap_err();
        assert_eq!(error.kind(), CallErrorKind::Misconfigured);
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    }
    assert_eq!(bench.node.breaker(), BreakerState::Closed);
    bench.take("k").await.unwrap();
    assert_eq!(bench.count(|event| matches!(event, NodeEvent::Lost(_))), 0);
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_left_and_used_again_when_it_is_a_master() {
    let master = RedisServer::start(&[]).await;
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    bench.forget_events();
    let port = master.port().to_string();
    server.ask(&["REPLICAOF", "127.0.0.1", &port]).await;
    eventually("a call is refused", || async {
        let error = bench.take("k").await.err()?;
        assert_ne!(error.kind(), CallErrorKind::Misconfigured, "{error}");
        Some(())
    })
    .await;
    bench
        .happens("the connection is dropped", |event| {
            matches!(event, NodeEvent::Lost(_))
        })
        .await;
    // Connections to a replica can be made, and must not be made without a pause.
    eventually("pauses grow until probes are all that is left", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    server.ask(&["REPLICAOF", "NO", "ONE"]).await;
    bench.is_well().await;
}

#[tokio::test]
async fn a_server_that_has_too_few_replicas_is_unavailable() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    server
        .ask(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    let error = bench.take("k").await.unwrap_err();
    assert_eq!(error.kind(), CallErrorKind::Unavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    server
        .ask(&["CONFIG", "SET", "min-replicas-to-write", "0"])
        .await;
    bench.is_well().await;
}

#[tokio::test]
async fn a_server_that_cannot_save_is_unavailable_until_it_can() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    server.ask(&["CONFIG", "SET", "save", "3600 1"]).await;
    // A folder of this name cannot be replaced by a file.
    let dump = server.dir().join("dump.rdb");
    std::fs::create_dir(&dump).unwrap();
    server.ask(&["BGSAVE"]).await;
    let error = eventually("a call is refused", || async {
        let error = bench.take("k").await.err()?;
        error.to_string().starts_with("MISCONF").then_some(error)
    })
    .await;
    assert_eq!(error.kind(), CallErrorKind::Unavailable);
    std::fs::remove_dir(&dump).unwrap();
    server.ask(&["BGSAVE"]).await;
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
        let killed = server.ask(&["SCRIPT", "KILL"]).await;
        killed.starts_with("+OK").then_some(())
    })
    .await;
    bench.is_well().await;
}
