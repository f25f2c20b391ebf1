//! Servers that are far away.

use std::time::Duration;

use tollgate_test_servers::{
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};

use crate::{connection::options::NodeEvent, internal_tests::connection::bench::Bench};

/// Each way.
const FAR: Duration = Duration::from_millis(130);

/// A proxy that holds back each piece, both ways.
async fn far(port: u16) -> Proxy {
    let proxy = Proxy::start(port, 3).await;
    proxy.set(Fault::Delay(FAR, FAR));
    proxy
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
        options.deadline = Duration::from_secs(60);
    });
    assert_eq!(bench.recovers("k").await, 1);
    let answer = server.commands(&[&["SELECT", "1"], &["GET", "k"]]).await;
    assert_eq!(answer, "+OK\r\n$1\r\n1\r\n");
}
