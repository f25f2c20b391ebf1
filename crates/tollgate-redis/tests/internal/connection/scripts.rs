//! Scripts that the server does not know, and calls that travel together.

use tollgate_test_servers::redis_server::RedisServer;

use crate::internal_tests::connection::bench::{Bench, calls_of, count_of};

#[tokio::test]
async fn a_flushed_script_is_brought_again_and_every_take_counts_once() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::patient(&server.url());
    bench.recovers("warm").await;
    for round in 1..=20 {
        let before = bench.call("k", 50);
        server.command(&["SCRIPT", "FLUSH"]).await;
        let after = bench.call("k", 50);
        for answer in bench.answers(before).await {
            answer.unwrap();
        }
        for answer in bench.answers(after).await {
            answer.unwrap();
        }
        assert_eq!(count_of(&server, "k").await, round * 100);
    }
    assert_eq!(calls_of(&server, "script|load").await, 0);
}
