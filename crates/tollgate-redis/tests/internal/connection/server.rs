//! Servers that end, stand still, are full, or load.

use std::{sync::Arc, time::Duration};

use tollgate_test_servers::redis_server::{RedisServer, free_port};

use crate::{
    connection::{error::CallErrorKind, event::NodeEvent, request::Request, script::Script},
    internal_tests::connection::bench::{Bench, count_of, eventually},
};

#[tokio::test]
async fn a_node_may_start_before_its_server() {
    let port = free_port();
    let bench = Bench::start(&format!("redis://127.0.0.1:{port}"));
    assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
    bench
        .happens("an attempt fails", |event| {
            matches!(event, NodeEvent::NotConnected(..))
        })
        .await;
    let _server = RedisServer::start_on(port, &[]).await;
    assert_eq!(bench.recovers("k").await, 1);
}

#[tokio::test]
async fn a_server_that_is_killed_and_started_again_is_found_again() {
    let mut server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    for _ in 0..3 {
        bench.forget_events();
        server.kill();
        bench
            .happens("the loss is noticed", |event| {
                matches!(event, NodeEvent::Lost { .. })
            })
            .await;
        assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
        server.restart().await;
        // The new server knows neither the key nor the script.
        assert_eq!(bench.recovers("fresh").await, 1);
        bench.is_well().await;
    }
}

#[tokio::test]
async fn calls_before_a_server_that_stands_still_end_and_few_of_them_run_when_it_goes_on() {
    const UNANSWERED: u64 = 64;
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start_with(&server.url(), |options| {
        options.unanswered = UNANSWERED as usize;
        options.waiting = 256;
    });
    bench.recovers("zombies").await;
    bench.recovers("warm").await;
    let before = count_of(&server, "zombies").await;
    server.stop();
    // Callers that go on asking until the connection is gone.
    let asked = eventually("the connection is dropped", || async {
        let calls = bench.call("zombies", 500);
        assert!(bench.node.waiting() <= 256);
        let ended = bench.answers(calls).await;
        assert!(ended.iter().all(Result::is_err));
        let lost = bench.count(|event| matches!(event, NodeEvent::Lost { .. })) > 0;
        lost.then_some(ended.len())
    })
    .await;
    assert_eq!(asked, 500);
    server.resume();
    bench.is_well().await;
    let zombies = count_of(&server, "zombies").await - before;
    assert!(
        zombies <= UNANSWERED,
        "{zombies} takes ran that nobody waited for"
    );
}

#[tokio::test]
async fn a_short_standstill_costs_no_connection() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start_with(&server.url(), |options| {
        // Half a minute, in which a call is late and the server goes on, however busy the machine is.
        options.silence = Some(Duration::from_secs(30));
    });
    bench.recovers("k").await;
    bench.forget_events();
    server.stop();
    eventually("a call is late", || async {
        let error = bench.take("k").await.err()?;
        matches!(
            error.kind(),
            CallErrorKind::Unknown | CallErrorKind::Expired
        )
        .then_some(error)
    })
    .await;
    server.resume();
    bench.recovers("k").await;
    assert_eq!(
        bench.count(|event| matches!(event, NodeEvent::Lost { .. })),
        0
    );
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_asked_by_probes_only_and_used_when_it_is_done() {
    let server = RedisServer::start(&["--enable-debug-command", "yes"]).await;
    let bench = Bench::start_with(&server.url(), |options| {
        // While it saves what it will load it answers no call. Late calls must not open the breaker then.
        options.deadline = Duration::from_secs(2);
    });
    bench.recovers("k").await;
    server
        .commands(&[
            &["DEBUG", "POPULATE", "60000"],
            &["CONFIG", "SET", "key-load-delay", "50"],
            &[
                "CONFIG",
                "SET",
                "loading-process-events-interval-bytes",
                "1024",
            ],
        ])
        .await;
    let reported = eventually("a call fails with it", || async {
        let error = bench.take("k").await.err()?;
        error.to_string().starts_with("LOADING").then_some(error)
    });
    // It takes seconds, but a call may be kept waiting for as long.
    let reloads = async {
        loop {
            server.command(&["DEBUG", "RELOAD"]).await;
        }
    };
    let loading = tokio::select! {
        loading = reported => loading,
        () = reloads => unreachable!("it goes on for ever"),
    };
    assert_eq!(loading.kind(), CallErrorKind::Unavailable);
    bench.is_well().await;
}

#[tokio::test]
async fn a_full_server_is_asked_again_until_there_is_a_place() {
    let server = RedisServer::start(&["--maxclients", "1"]).await;
    let guest = tokio::net::TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let bench = Bench::start(&server.url());
    bench
        .happens("it is turned away", |event| {
            matches!(event, NodeEvent::NotConnected(_, why) if why.contains("max number of clients"))
        })
        .await;
    assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
    drop(guest);
    bench.is_well().await;
}

#[tokio::test]
async fn a_node_that_is_dropped_leaves_no_connection() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    let script = Arc::new(Script::new("return 1"));
    let call = bench.node.call(Request::new(&script, &["k"], &[]));
    drop(bench);
    let error = call.await.unwrap_err();
    assert!(matches!(
        error.kind(),
        CallErrorKind::Unknown | CallErrorKind::Unavailable
    ));
    eventually("nobody is connected", || async {
        let clients = server.command(&["CLIENT", "LIST"]).await;
        (clients.matches("id=").count() == 1).then_some(())
    })
    .await;
}
