//! A part of the instances is cut off, and the others go on with their Redis.
//!
//! ```text
//! admitted ≤ (1 + cut off / N) · rate · t + burst + max(burst · cut off / N, cut off)
//! ```
//!
//! where `t` is how long the cut lasts: those that are cut off have their shares, and the others have all of the quota.

use std::{io::ErrorKind, net::SocketAddr, num::NonZeroU32, time::Duration};

use tokio::{
    net::{TcpSocket, TcpStream},
    task::yield_now,
};
use tollgate_core::{Check, Key, Limiter, MINUTE, ManualClock, Quota, Rule, SECOND, Source};
use tollgate_redis::{BreakerState, Keys, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_server::{RedisServer, free_port},
};

const INSTANCES: u32 = 4;
const CUT_OFF: usize = 2;
/// Units a second, and at once.
const RATE: u64 = 50;
const BURST: u64 = 50;
/// Twice as often as units come.
const STEP: Duration = Duration::from_millis(10);
const SECONDS: u64 = 10;

const NOW: u64 = 1_700_000_000_000_000;

/// By a clock that all of them share, the server too.
struct Service {
    _server: RedisServer,
    /// Before the first instances.
    proxies: Vec<Proxy>,
    stores: Vec<RedisStore>,
    limiters: Vec<(Limiter, Check)>,
    clock: ManualClock,
    admitted: u64,
}

impl Service {
    async fn start() -> Self {
        let server = RedisServer::start(&[]).await;
        let clock = ManualClock::new(NOW);
        let mut proxies = Vec::new();
        for seed in 0..CUT_OFF as u64 {
            proxies.push(Proxy::start(server.port(), seed).await);
        }
        let (mut stores, mut limiters) = (Vec::new(), Vec::new());
        for place in 0..INSTANCES as usize {
            let address = proxies.get(place).map_or(server.url(), Proxy::url);
            let store = RedisStore::builder(&address, "partial", Keys::plain())
                // Those that are not cut off are answered on a busy machine too; others are refused at once.
                .deadline(Duration::from_secs(20))
                .caller_clock(&clock, 60 * MINUTE)
                .without_deny_cache()
                .connect()
                .expect("a valid address");
            store.connected().await;
            let rule = Rule::new("rule", Quota::gcra(RATE, SECOND).burst(BURST));
            let instances = NonZeroU32::new(INSTANCES).expect("there are some");
            let limiter = Limiter::with_instances(store.clone(), [rule], instances)
                .and_then(|limiter| limiter.with_local_clock(&clock))
                .expect("a valid rule");
            let check = limiter.check("rule", &Key::of("client"));
            limiters.push((limiter, check.expect("it is there")));
            stores.push(store);
        }
        Self {
            _server: server,
            proxies,
            stores,
            limiters,
            clock,
            admitted: 0,
        }
    }

    /// All instances let through what they can, and time goes on.
    async fn step(&mut self) {
        for (limiter, check) in &self.limiters {
            while limiter.acquire(&[*check]).await.is_allowed() {
                self.admitted += 1;
            }
        }
        self.clock.advance(STEP);
    }

    async fn seconds(&mut self, seconds: u64) {
        let steps = Duration::from_secs(seconds).as_millis() / STEP.as_millis();
        for _ in 0..steps {
            self.step().await;
        }
    }

    /// The first ones do not reach the server any more.
    async fn cut(&self) {
        for (proxy, (limiter, check)) in self.proxies.iter().zip(&self.limiters) {
            proxy.set(Fault::Refuse);
            eventually("it decides for itself", || async {
                let looked = limiter.acquire(&[check.with_cost(0)]).await;
                (looked.verdicts()[0].source() == Source::Fallback).then_some(())
            })
            .await;
        }
    }

    /// They reach it again.
    async fn join(&self) {
        for (proxy, store) in self.proxies.iter().zip(&self.stores) {
            proxy.set(Fault::None);
            eventually("it asks again", || async {
                (store.breaker() == BreakerState::Closed).then_some(())
            })
            .await;
            store.connected().await;
        }
    }

    /// What may pass in so many seconds in which the first ones are cut off, or are so now and then.
    fn most(seconds: u64) -> u64 {
        let (cut_off, all) = (CUT_OFF as u64, u64::from(INSTANCES));
        let rate = RATE + RATE * cut_off / all;
        rate * seconds + BURST + (BURST * cut_off / all).max(cut_off)
    }
}

/// Otherwise a server of another test could take the port, and answer processes that are cut off.
#[tokio::test]
async fn the_port_of_a_proxy_that_refuses_stays_its_own() {
    let proxy = Proxy::start(free_port(), 1).await;
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    proxy.set(Fault::Refuse);
    // It has no connections, which would keep the port for a while too, and it closes its listener when this one yields.
    yield_now().await;
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let other = TcpSocket::new_v4().expect("a socket");
    let taken = other.bind(address).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

#[tokio::test]
async fn those_that_are_cut_off_add_their_shares_to_the_whole_quota() {
    let mut service = Service::start().await;
    service.cut().await;
    service.seconds(SECONDS).await;
    let (admitted, most) = (service.admitted, Service::most(SECONDS));
    assert!(admitted <= most, "{admitted} of {most}");
    // It is no less either: not the bound of an outage of all.
    let outage = RATE * SECONDS + BURST.max(u64::from(INSTANCES));
    assert!(
        admitted > outage + RATE * SECONDS / 4,
        "{admitted} and {outage}"
    );
}

#[tokio::test]
async fn those_that_come_and_go_add_no_more_than_those_that_stay_cut_off() {
    let mut service = Service::start().await;
    let mut seconds = 0;
    for _ in 0..3 {
        service.cut().await;
        service.seconds(1).await;
        service.join().await;
        service.seconds(1).await;
        seconds += 2;
    }
    let (admitted, most) = (service.admitted, Service::most(seconds));
    assert!(admitted <= most, "{admitted} of {most}");
}
