//! Servers that stand still, and connections that end. Other faults are in `tests/faults/`.

use tollgate_test_servers::redis_server::RedisServer;

use crate::{
    connection::{
        command::{Command, Script},
        error::CallErrorKind,
        options::NodeEvent,
    },
    internal_tests::connection::bench::{Bench, answers, count_of, eventually},
};

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
        let ended = answers(calls).await;
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
async fn a_node_that_is_dropped_leaves_no_connection() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start(&server.url());
    bench.recovers("k").await;
    static SCRIPT: Script = Script::new("return 1");
    let call = bench.node.call(Command::new(&SCRIPT, &["k"], &[""; 0]));
    drop(bench);
    let error = call.await.unwrap_err();
    assert!(matches!(
        error.kind(),
        CallErrorKind::NoAnswer | CallErrorKind::Unavailable
    ));
    eventually("nobody is connected", || async {
        let clients = server.command(&["CLIENT", "LIST"]).await;
        (clients.matches("id=").count() == 1).then_some(())
    })
    .await;
}
