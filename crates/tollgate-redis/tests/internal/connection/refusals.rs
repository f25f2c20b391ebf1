//! Servers that answer, and do not serve.

use tokio::{io::AsyncWriteExt, net::TcpStream};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::breaker::BreakerState,
    internal_tests::connection::bench::{Bench, eventually},
};

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
