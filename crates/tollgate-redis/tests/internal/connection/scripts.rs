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

#[tokio::test]
async fn one_text_of_the_script_heals_all_calls_that_travelled_together() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::patient(&server.url());
    bench.recovers("warm").await;
    server.command(&["SCRIPT", "FLUSH"]).await;
    server.command(&["CONFIG", "RESETSTAT"]).await;
    let calls = bench.call("k", 100);
    let answers = bench.answers(calls).await;
    let mut counts: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=100).collect::<Vec<_>>());
    // A write that is on its way when the first answer comes needs the text once more, and no call by itself.
    let texts = calls_of(&server, "eval").await;
    let reads = reads_of(&server).await;
    assert!((1..=reads.min(50)).contains(&texts), "{texts} of {reads}");
}

#[tokio::test]
async fn calls_that_wait_travel_together() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::patient(&server.url());
    bench.recovers("warm").await;
    server.command(&["CONFIG", "RESETSTAT"]).await;
    let calls = bench.call("k", 1_000);
    for answer in bench.answers(calls).await {
        answer.unwrap();
    }
    // A thousand calls of some hundred bytes are a few reads of 16 KiB each.
    let reads = reads_of(&server).await;
    assert!(reads < 100, "{reads}");
}

/// How often the server has read from a connection.
async fn reads_of(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "stats"]).await;
    let mut lines = stats.lines();
    let reads = lines.find_map(|line| line.strip_prefix("total_reads_processed:"));
    reads.expect("it is shown").parse().unwrap()
}
