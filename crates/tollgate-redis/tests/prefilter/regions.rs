//! Half of the processes are far from the server: each piece of what they send and hear is held back.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_core::SECOND;
use tollgate_test_servers::{
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};

use crate::{
    fleet::Fleet,
    load::{Kind, Load},
};

/// Several round trips, and the time that a busy machine takes.
const DEADLINE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_for_two_regions_and_through_a_cut_between_them() {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 11).await;
    for (round_trip, burst) in [(80, 400), (150, 600)] {
        let way = Duration::from_millis(round_trip / 2);
        let delay = Fault::Delay(way, way + Duration::from_millis(3));
        proxy.set(delay);
        let mut fleet = Fleet::across(&server.url(), &proxy.url(), DEADLINE);
        for kind in Kind::ALL {
            let load = Load {
                kind,
                burst,
                pause: Duration::from_millis(8),
            };
            fleet.begin(&load);
            let more = |before| {
                let fleet = &fleet;
                async move {
                    let more = || async {
                        // All of the book is read each time.
                        sleep(SECOND / 20).await;
                        let now = fleet.admitted().len();
                        (now >= before + burst as usize * 3 / 2).then_some(now)
                    };
                    eventually("more is admitted", more).await
                }
            };
            let before = more(0).await;
            // The others go on.
            proxy.set(Fault::BlackHole);
            let before = more(before).await;
            proxy.set(delay);
            more(before).await;
            // What was in a report whose answer was lost is given up.
            fleet.gave_up(1);
            fleet.end(&load, 0);
        }
    }
}
