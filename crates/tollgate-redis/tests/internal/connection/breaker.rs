//! The breaker of a node, from trouble to trust.

use tollgate_test_servers::{
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};

use crate::{
    connection::{breaker_state::BreakerState, error::CallErrorKind, event::NodeEvent},
    internal_tests::connection::bench::{Bench, eventually},
};

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
    eventually("the breaker opens", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
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

#[tokio::test]
async fn it_closes_by_way_of_probes_and_growing_shares() {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 5).await;
    let bench = Bench::start(&proxy.url());
    bench.recovers("k").await;
    proxy.set(Fault::BlackHole);
    eventually("the breaker opens", || async {
        let _ = bench.take("k").await;
        (bench.node.breaker() == BreakerState::Open).then_some(())
    })
    .await;
    proxy.set(Fault::None);
    bench.is_well().await;
    let states: Vec<_> = bench
        .events()
        .into_iter()
        .filter_map(|event| match event {
            NodeEvent::Breaker { from, to } => Some((from, to)),
            _ => None,
        })
        .collect();
    for pair in states.windows(2) {
        assert_eq!(pair[0].1, pair[1].0);
    }
    let ramp = |percent| BreakerState::Ramping { percent };
    let way: Vec<_> = states.iter().map(|(_, to)| *to).rev().take(4).collect();
    assert_eq!(
        way,
        [
            BreakerState::Closed,
            ramp(50),
            ramp(10),
            BreakerState::Probing
        ]
    );
    let probe = server.command(&["PTTL", "{tests}:probe:one"]).await;
    assert!(!probe.starts_with(":-2"), "no probe has written: {probe}");
}
