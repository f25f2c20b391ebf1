//! Users and passwords.

use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::breaker::BreakerState,
    internal_tests::connection::bench::{Bench, eventually},
};

fn url(server: &RedisServer, login: &str) -> String {
    format!("redis://{login}@127.0.0.1:{}", server.port())
}

#[tokio::test]
async fn a_probe_that_may_not_write_its_key_keeps_no_request_from_the_server() {
    let mut server = RedisServer::start(&[]).await;
    let user = ["ACL", "SETUSER", "rl", "on", ">pass", "~limits:*", "+@all"];
    server.command(&user).await;
    let bench = Bench::start(&url(&server, "rl:pass"));
    bench.recovers("limits:k").await;
    server.kill();
    eventually("the breaker opens", || async {
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    server.restart().await;
    server.command(&user).await;
    bench.closes("limits:k").await;
}

#[tokio::test]
async fn a_server_without_hello_is_logged_in_to() {
    let args = ["--rename-command", "HELLO", "", "--requirepass", "pass"];
    let server = RedisServer::start(&args).await;
    for login in [":pass", "default:pass"] {
        let bench = Bench::start(&url(&server, login));
        bench.recovers("k").await;
    }
}
