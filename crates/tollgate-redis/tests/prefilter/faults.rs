//! Processes, servers and connections that fail, while units are out.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_test_servers::{
    eventually::eventually,
    moved_server::MovedServer,
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};

use crate::{
    clock,
    fleet::Fleet,
    load::{Kind, Load},
};

/// What a service would take. On a busy machine a server that is well may miss it; then no request is admitted.
const DEADLINE: Duration = Duration::from_millis(500);

const BURST: u64 = 300;

/// A job for each kind of rule.
fn loads() -> [Load; 3] {
    Kind::ALL.map(|kind| Load {
        kind,
        burst: BURST,
        pause: Duration::from_millis(16),
    })
}

/// Waits until the processes were admitted most of a burst: after two of these nothing is left of it.
async fn admitted_more(fleet: &Fleet) {
    let before = fleet.admitted().len();
    eventually("more is admitted", || async {
        // All of the book is read each time.
        sleep(Duration::from_millis(50)).await;
        (fleet.admitted().len() >= before + BURST as usize * 3 / 4).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_killed_and_replaced_while_they_hold_units() {
    let server = RedisServer::start(&[]).await;
    let mut fleet = Fleet::start(&server.url(), DEADLINE);
    for load in loads() {
        fleet.begin(&load);
        for place in [0, 3, 0, 7, 5] {
            admitted_more(&fleet).await;
            fleet.replace(place, &load);
        }
        fleet.end(&load, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_everything_gives_a_burst_again_and_no_more() {
    let mut server = RedisServer::start(&[]).await;
    let mut fleet = Fleet::start(&server.url(), DEADLINE);
    for load in loads() {
        fleet.begin(&load);
        for _ in 0..2 {
            admitted_more(&fleet).await;
            server.restart().await;
        }
        admitted_more(&fleet).await;
        fleet.end(&load, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_lets_nothing_more_through() {
    let server = RedisServer::start(&[]).await;
    let mut fleet = Fleet::start(&server.url(), DEADLINE);
    for load in loads() {
        fleet.begin(&load);
        admitted_more(&fleet).await;
        server.stop();
        // Shorter than a lease lives.
        let until = clock::now() + 1_200_000;
        while clock::now() < until {
            sleep(Duration::from_millis(20)).await;
        }
        server.resume();
        admitted_more(&fleet).await;
        fleet.end(&load, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_and_answers_that_are_lost_let_nothing_more_through() {
    let server = RedisServer::start(&[]).await;
    let proxy = Proxy::start(server.port(), 7).await;
    let mut fleet = Fleet::start(&proxy.url(), DEADLINE);
    for load in loads() {
        fleet.begin(&load);
        for fault in [
            Fault::ResetAfter(700),
            Fault::Delay(Duration::from_millis(5), Duration::from_millis(60)),
            Fault::ResetAfter(2_000),
            Fault::Close,
        ] {
            admitted_more(&fleet).await;
            proxy.set(fault);
            let accepted = proxy.accepted();
            eventually("the fault is felt", || async {
                let felt = matches!(fault, Fault::Delay(..)) || proxy.accepted() > accepted;
                felt.then_some(())
            })
            .await;
            if matches!(fault, Fault::Delay(..)) {
                admitted_more(&fleet).await;
            }
            proxy.set(Fault::None);
        }
        // What was in a report whose answer was lost is given up: as if so many processes had been killed.
        fleet.gave_up(3);
        fleet.end(&load, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ahead_gives_a_burst_again_and_one_that_jumps_back_nothing() {
    const NOW: i64 = 1_790_000_000_000_000;
    let mut server = MovedServer::start(NOW);
    let mut fleet = Fleet::start(&server.url(), DEADLINE);
    for load in loads() {
        fleet.begin(&load);
        for by in [300_000, -2_000_000, 12_000_000, -40_000_000] {
            admitted_more(&fleet).await;
            server.jump(by);
        }
        fleet.end(&load, 2);
    }
}
