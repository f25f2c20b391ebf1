//! Servers that answer, and do not serve.

use tokio::{io::AsyncWriteExt, net::TcpStream};
use tollgate_test_servers::redis_server::RedisServer;

use crate::internal_tests::connection::bench::{Bench, eventually};

#[tokio::test]
async fn a_breaker_closes_before_a_server_that_only_refuses_to_write() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    server.stop();
    bench.opens().await;
    server.resume();
    bench.closes("k").await;
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
    bench.opens().await;
    eventually("the script is killed", || async {
        let killed = server.command(&["SCRIPT", "KILL"]).await;
        killed.starts_with("+OK").then_some(())
    })
    .await;
    bench.is_well().await;
}
