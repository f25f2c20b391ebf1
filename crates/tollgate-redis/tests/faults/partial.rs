//! A part of the instances is cut off, and the others go on with their Redis.
//!
//! ```text
//! admitted ≤ (1 + cut off / N) · rate · t + burst + max(burst · cut off / N, cut off)
//! ```
//!
//! where `t` is how long the cut lasts: those that are cut off have their shares, and the others have all of the quota.

use std::{num::NonZeroU32, time::Duration};

use tollgate_core::{Check, Key, Limiter, MINUTE, ManualClock, Quota, Rule, SECOND, Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{
    eventually::eventually,
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
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
        let mut limiters = Vec::new();
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
            let limiter = Limiter::new(store, [rule])
                .and_then(|limiter| limiter.shared_by(instances))
                .expect("a valid rule");
            let check = limiter.check("rule", &Key::of("client"));
            limiters.push((limiter, check.expect("it is there")));
        }
        Self {
            _server: server,
            proxies,
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

    /// What may pass in so many seconds in which the first ones are cut off.
    fn most(seconds: u64) -> u64 {
        let (cut_off, all) = (CUT_OFF as u64, u64::from(INSTANCES));
        let rate = RATE + RATE * cut_off / all;
        rate * seconds + BURST + (BURST * cut_off / all).max(cut_off)
    }
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
