//! A service of two instances, and what may pass of its rules.

use super::{
    eventually::eventually,
    instance::Instance,
    meter::Counts,
    rules::{INSTANCES, LIMIT, RULES, most_alone, rules},
};

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
