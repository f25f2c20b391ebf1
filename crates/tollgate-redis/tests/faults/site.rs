//! A server behind a proxy, and two instances of a service that ask it.

use crate::{
    fault::{Fault, SERVER},
    instance::Instance,
    meter::Counts,
    rules::{INSTANCES, LIMIT, RULES, most_alone, rules},
    seed::Seed,
    support::{eventually::eventually, numbers::Numbers, proxy::Proxy, redis_server::RedisServer},
};

#[derive(Debug)]
pub(crate) struct Site {
    server: RedisServer,
    proxy: Proxy,
    numbers: Numbers,
    service: Service,
}

impl Site {
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
        self.service.losses += fault.losses();
        let (server, proxy) = (&mut self.server, &self.proxy);
        let (alone, asked) = (self.service.alone(), self.service.asked());
        let healing = fault.begin(server, proxy, &mut self.numbers).await;
        let lasts = 1 + self.numbers.below(100);
        let felt = fault.is_felt();
        let service = &self.service;
        eventually(&format!("{what} is felt"), || async {
            let felt = !felt || (0..).zip(service.alone()).all(|(n, now)| now > alone[n]);
            (felt && service.asked() >= asked + lasts).then_some(())
        })
        .await;
        fault.end(server, proxy, healing).await;
        self.service.recovers(&what).await;
    }
}

/// The instances, and how often their state was lost.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) instances: Vec<Instance>,
    pub(crate) losses: u64,
}

impl Service {
    pub(crate) async fn start(address: &str) -> Self {
        let mut instances = Vec::new();
        for _ in 0..INSTANCES {
            instances.push(Instance::start(address).await);
        }
        Self {
            instances,
            losses: 0,
        }
    }

    /// By instance, the requests that Redis did not decide.
    pub(crate) fn alone(&self) -> Vec<u64> {
        let meters = self.instances.iter().map(|instance| &instance.meter);
        meters.map(|meter| meter.alone()).collect()
    }

    pub(crate) fn asked(&self) -> u64 {
        let meters = self.instances.iter().map(|instance| &instance.meter);
        meters.map(|meter| meter.asked()).sum()
    }

    /// Waits until Redis decides for every instance and every rule again, and until it says that nothing is left, so that
    /// the next loss gives away as much as it can.
    pub(crate) async fn recovers(&self, from: &str) {
        let denied = |place: usize| {
            let meters = self.instances.iter().map(|instance| &instance.meter);
            meters.map(move |meter| meter.rules()[place].denied())
        };
        let before: Vec<Vec<_>> = (0..RULES).map(|place| denied(place).collect()).collect();
        eventually(&format!("it recovers from {from}"), || async {
            let trusting = self.instances.iter().all(Instance::is_trusting);
            let used_up = (0..RULES).all(|place| {
                let mut both = denied(place).zip(&before[place]);
                both.all(|(now, before)| now > *before)
            });
            (trusting && used_up).then_some(())
        })
        .await;
        self.keeps_its_bounds();
    }

    /// The bounds of this program's documentation.
    fn keeps_its_bounds(&self) {
        for (place, rule) in rules().iter().enumerate() {
            let sum = |what: fn(&Counts) -> u64| -> u64 {
                let counts = self.instances.iter().map(|each| &each.meter.rules()[place]);
                counts.map(what).sum()
            };
            let (admitted, alone) = (sum(Counts::admitted), sum(Counts::alone_admitted));
            let most = LIMIT * (1 + self.losses);
            let name = rule.name();
            assert!(admitted <= most, "{name}: {admitted} of {most} by Redis");
            let most = most_alone(rule).unwrap_or_else(|| sum(Counts::alone));
            assert!(alone <= most, "{name}: {alone} of {most} without Redis");
        }
    }

    pub(crate) async fn end(&mut self) {
        for instance in &mut self.instances {
            instance.end().await;
        }
        self.keeps_its_bounds();
        for instance in &self.instances {
            for (rule, counts) in rules().iter().zip(instance.meter.rules()) {
                let told = instance.limiter.admitted_alone(rule.name());
                assert_eq!(told.ok(), Some(counts.alone_admitted()), "{}", rule.name());
            }
        }
    }
}
