//! The breaker of a node, from trouble to trust.

use tollgate_test_servers::redis_server::RedisServer;

use crate::{connection::error::CallErrorKind, internal_tests::connection::bench::Bench};

#[tokio::test]
async fn while_it_is_open_requests_do_no_io_and_probes_write() {
    let server = RedisServer::start(&[]).await;
    let bench = Bench::start_with(&server.url(), |options| {
        // So that it stays open while the test looks.
        options.breaker.pause = std::time::Duration::from_secs(600);
        options.breaker.longest_pause = options.breaker.pause;
    });
    bench.recovers("k").await;
    server.stop();
    bench.opens().await;
    server.resume();
    // What had been sent is run in the first round of the server, and this is answered in it or later.
    server.command(&["PING"]).await;
    server.command(&["PING"]).await;
    server.command(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..1_000 {
        assert_eq!(bench.fails("k").await, CallErrorKind::Unavailable);
    }
    let stats = server.command(&["INFO", "commandstats"]).await;
    assert!(!stats.contains("cmdstat_evalsha"), "{stats}");
}
