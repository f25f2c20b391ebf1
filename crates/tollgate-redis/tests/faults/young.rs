//! Instances find a set of themselves that is young, because their Redis has begun anew.

use std::time::Duration;

use tollgate_core::{Key, Limiter, MAX_PERIOD, Quota, Rule, Source};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{eventually::eventually, redis_server::RedisServer};

const INSTANCES: usize = 4;
const LIMIT: u64 = 1_000;

struct Service {
    server: RedisServer,
    stores: Vec<RedisStore>,
    limiters: Vec<Limiter>,
}

impl Service {
    async fn start() -> Self {
        let server = RedisServer::start(&[]).await;
        let (mut stores, mut limiters) = (Vec::new(), Vec::new());
        for _ in 0..INSTANCES {
            let store = RedisStore::builder(server.url(), "young", Keys::plain())
                .deadline(Duration::from_secs(1))
                .connect()
                .expect("a valid address");
            store.connected().await;
            let rule = Rule::new("rule", Quota::fixed_window(LIMIT, MAX_PERIOD));
            limiters.push(Limiter::new(store.clone(), [rule]).expect("a valid rule"));
            stores.push(store);
        }
        Self {
            server,
            stores,
            limiters,
        }
    }

    fn known(&self) -> Vec<u32> {
        self.stores.iter().map(RedisStore::instances).collect()
    }

    /// It ends, begins anew with nothing, and hears each instance once.
    async fn restarts(&mut self) {
        self.server.kill();
        self.server.restart().await;
        eventually("each has been heard", || async {
            assert_eq!(self.known(), [INSTANCES as u32; INSTANCES]);
            let received = self.server.command(&["ZCARD", "{young}:instances"]).await;
            (received == format!(":{INSTANCES}\r\n")).then_some(())
        })
        .await;
    }

    /// What all instances together let through while it is gone.
    async fn admits_alone(&mut self) -> u64 {
        self.server.kill();
        let mut admitted = 0;
        for limiter in &self.limiters {
            let check = limiter.check("rule", &Key::of("client"));
            let check = check.expect("it is there");
            loop {
                let decision = limiter.acquire(&[check]).await;
                assert_eq!(decision.verdicts()[0].source(), Source::Fallback);
                if !decision.is_allowed() {
                    break;
                }
                admitted += 1;
            }
        }
        admitted
    }
}

#[tokio::test]
async fn after_two_crashes_of_an_empty_server_each_instance_still_knows_of_all() {
    let mut service = Service::start().await;
    eventually("all know of each other", || async {
        let known = service.known();
        (known == [INSTANCES as u32; INSTANCES]).then_some(())
    })
    .await;
    service.restarts().await;
    assert_eq!(service.admits_alone().await, LIMIT);
}
