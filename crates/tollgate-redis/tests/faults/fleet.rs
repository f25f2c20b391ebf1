//! A server behind a proxy, and two instances of a service that ask it.

use tollgate_test_servers::{
    eventually::eventually, numbers::Numbers, proxy::Proxy, redis_server::RedisServer,
};
use tollgate_test_services::service::Service;

use crate::fault::{Fault, SERVER, Seed};

#[derive(Debug)]
pub(crate) struct Fleet {
    server: RedisServer,
    proxy: Proxy,
    numbers: Numbers,
    service: Service,
}

impl Fleet {
    pub(crate) async fn start(seed: &Seed) -> Self {
        let mut numbers = seed.numbers();
        let server = RedisServer::start(&SERVER).await;
        let proxy = Proxy::start(server.port(), numbers.next()).await;
        let address = proxy.url().replace("redis://", "redis://rl:first@");
        Self {
            service: Service::start(&address).await,
            server,
            proxy,
            numbers,
        }
    }

    /// Lets all of these happen, one after the other.
    pub(crate) async fn suffers(&mut self, faults: &[Fault]) {
        let mut faults = faults.to_vec();
        self.service.recovers("the start").await;
        while !faults.is_empty() {
            let next = self.numbers.below(faults.len() as u64) as usize;
            self.suffer(faults.swap_remove(next)).await;
        }
        self.service.end().await;
    }

    async fn suffer(&mut self, fault: Fault) {
        let what = format!("{fault:?}");
        // A task may see the loss before this one goes on.
        for _ in 0..fault.losses() {
            self.service.loses_everything();
        }
        let (server, proxy) = (&mut self.server, &self.proxy);
        let (alone, requests) = (self.service.alone(), self.service.requests());
        let healing = fault.begin(server, proxy, &mut self.numbers).await;
        let lasts = 1 + self.numbers.below(100);
        let felt = fault.is_felt();
        let service = &self.service;
        eventually(&format!("{what} is felt"), || async {
            let felt = !felt || (0..).zip(service.alone()).all(|(n, now)| now > alone[n]);
            (felt && service.requests() >= requests + lasts).then_some(())
        })
        .await;
        fault.end(server, proxy, healing).await;
        self.service.recovers(&what).await;
    }
}
