//! How a connection ends.

use std::io::ErrorKind;

use crate::{connection::options::NodeEvent, internal_tests::connection::bench::Bench};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Closed in the usual way, it would send on what has not left yet, and the server would run it although no call waits.
#[tokio::test]
async fn a_connection_to_a_server_that_stands_still_is_reset_and_not_closed() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let bench = Bench::start(&format!("redis://127.0.0.1:{port}"));
    let (mut server, _) = listener.accept().await.unwrap();
    let mut input = vec![0; 1_024];
    assert!(server.read(&mut input).await.unwrap() > 0);
    server
        // To `HELLO`, twice that it may know who we are, and whether it serves.
        .write_all(b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n")
        .await
        .unwrap();
    bench.hears_nothing("k").await;
    let is_lost = |event: &NodeEvent| matches!(event, NodeEvent::Lost { .. });
    bench.happens("it is dropped", is_lost).await;
    let error = loop {
        match server.read(&mut input).await {
            Ok(0) => panic!("the connection was closed in the usual way"),
            // What had arrived.
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
