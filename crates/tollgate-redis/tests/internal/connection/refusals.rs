//! Servers that answer, and do not serve.

use tokio::{io::AsyncWriteExt, net::TcpStream};
use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::{error::ConnectErrorKind, options::NodeEvent},
    internal_tests::connection::bench::{Bench, eventually},
};

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

#[tokio::test]
async fn a_server_that_loads_its_data_is_no_connection_until_it_has() {
    let args = "--enable-debug-command yes --loading-process-events-interval-bytes 1024";
    let args: Vec<_> = args.split(' ').collect();
    let server = RedisServer::start(&args).await;
    server.command(&["DEBUG", "POPULATE", "20000"]).await;
    let slow = |micros: &'static str| ["CONFIG", "SET", "key-load-delay", micros];
    server.command(&slow("1000")).await;
    let start = async {
        eventually("it loads", || async {
            let answer = server.command(&["DBSIZE"]).await;
            answer.starts_with("-LOADING").then_some(())
        })
        .await;
        let bench = Bench::start(&server.url());
        bench
            .happens("it is refused", |event| {
                matches!(event, NodeEvent::NotConnected(ConnectErrorKind::Server, why) if why.contains("LOADING"))
            })
            .await;
        assert_eq!(
            bench.count(|event| matches!(event, NodeEvent::Connected(_))),
            0
        );
        server.command(&slow("0")).await;
        bench
    };
    let (_, bench) = tokio::join!(server.command(&["DEBUG", "RELOAD"]), start);
    bench.recovers("k").await;
}
