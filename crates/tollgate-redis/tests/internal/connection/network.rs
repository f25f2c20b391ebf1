//! Networks that delay, swallow and cut.

use std::io::ErrorKind;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tollgate_test_servers::{
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};

use crate::{
    connection::{error::CallErrorKind, event::NodeEvent},
    internal_tests::connection::bench::{Bench, count_of, eventually},
};

async fn behind_a_proxy() -> (RedisServer, Proxy, Bench) {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 11).await;
    let bench = Bench::start(&proxy.url());
    bench.recovers("warm").await;
    bench.forget_events();
    (server, proxy, bench)
}

fn is_lost(event: &NodeEvent) -> bool {
    matches!(event, NodeEvent::Lost { .. })
}

#[tokio::test]
async fn a_network_that_swallows_everything_costs_the_connection_and_is_recovered_from() {
    let (server, proxy, bench) = behind_a_proxy().await;
    proxy.set(Fault::BlackHole);
    bench.hears_nothing("k").await;
    bench.happens("the connection is dropped", is_lost).await;
    bench
        .happens("a connection is not ready in time", |event| {
            matches!(event, NodeEvent::NotConnected(_, why) if why.contains("not ready within"))
        })
        .await;
    assert!(!bench.fails("k").await.eq(&CallErrorKind::Unknown));
    proxy.set(Fault::None);
    bench.is_well().await;
    assert_eq!(count_of(&server, "k").await, 0);
}

#[tokio::test]
async fn a_reset_after_any_number_of_bytes_of_answers_runs_nothing_twice() {
    let (server, proxy, bench) = behind_a_proxy().await;
    bench.is_well().await;
    let (mut answered, mut unknown) = (0, 0);
    for bytes in 0..40 {
        proxy.set(Fault::ResetAfter(bytes));
        let calls = bench.call("k", 8);
        for answer in bench.answers(calls).await {
            match answer {
                Ok(_) => answered += 1,
                Err(error) if error.may_have_run() => unknown += 1,
                Err(_) => {}
            }
        }
        proxy.set(Fault::None);
        bench.recovers("warm").await;
    }
    assert!(unknown > 0);
    let ran = count_of(&server, "k").await;
    assert!(
        (answered..=answered + unknown).contains(&ran),
        "{answered} were answered and {unknown} may have run, and {ran} did"
    );
    bench.is_well().await;
}

#[tokio::test]
async fn a_network_that_refuses_or_closes_is_tried_again_with_pauses() {
    let (_server, proxy, bench) = behind_a_proxy().await;
    for fault in [Fault::Refuse, Fault::Close] {
        bench.forget_events();
        proxy.set(fault);
        bench.happens("the connection is lost", is_lost).await;
        eventually("some attempts have failed", || async {
            let failed = bench.count(|event| matches!(event, NodeEvent::NotConnected(..)));
            (failed >= 5).then_some(())
        })
        .await;
        assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
        proxy.set(Fault::None);
        bench.is_well().await;
    }
    assert!(proxy.accepted() > 2);
}

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
        // To `HELLO`, and twice that it may know who we are.
        .write_all(b"+OK\r\n+OK\r\n+OK\r\n")
        .await
        .unwrap();
    bench.hears_nothing("k").await;
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
