//! A service of two instances, and what may pass of its rules.
//!
//! For one key and while its window lasts:
//!
//! ```text
//! admitted ≤ limit + lost + alone
//!
//! lost     for each loss of the state in Redis, the units that it had counted and no longer knows; at most one limit
//! alone    the sum, over the instances, of what they have admitted by themselves
//!
//! alone    = 0                      where the rule denies while the store fails
//!          ≤ cap × instances        where it counts against a cap
//!          ≤ max(limit, instances)  where it counts against shares, if each instance knows how many there are
//!          = what was asked         where it lets pass
//! ```
//!
//! Calls whose outcome is not known do not appear: they may have taken units in Redis, and admit nothing there. They make
//! the number smaller, by at most one unit for each:
//!
//! ```text
//! admitted by Redis ≥ limit - what was not decided by Redis, once it says that nothing is left
//! ```

use tollgate_test_servers::eventually::eventually;

use crate::{
    instance::Instance,
    meter::Counts,
    rules::{INSTANCES, LIMIT, RULES, most_alone, rules},
};

/// The instances, and what Redis has forgotten of each rule.
#[derive(Debug)]
pub struct Service {
    /// The instances.
    pub instances: Vec<Instance>,
    lost: [u64; RULES],
}

impl Service {
    /// Starts the instances on the server at this address.
    pub async fn start(address: &str) -> Self {
        Self::named("faults", address).await
    }

    /// With states under this namespace.
    pub async fn named(namespace: &str, address: &str) -> Self {
        let mut instances = Vec::new();
        for _ in 0..INSTANCES {
            instances.push(Instance::named(namespace, address).await);
        }
        Self {
            instances,
            lost: [0; RULES],
        }
    }

    /// Redis forgets everything.
    pub fn loses_everything(&mut self) {
        self.lost = self.lost.map(|lost| lost + LIMIT);
    }

    /// Redis forgets at most these units of each rule.
    pub fn loses(&mut self, units: [u64; RULES]) {
        for (lost, units) in self.lost.iter_mut().zip(units) {
            *lost += units.min(LIMIT);
        }
    }

    /// What Redis has admitted of each rule.
    #[must_use]
    pub fn admitted(&self) -> [u64; RULES] {
        std::array::from_fn(|place| self.sum(place, Counts::admitted))
    }

    /// What Redis has denied, by instance and rule.
    pub fn denied(&self) -> Vec<u64> {
        let meters = self.instances.iter().map(|instance| &instance.meter);
        let counts = meters.flat_map(|meter| meter.rules());
        counts.map(Counts::denied).collect()
    }

    fn sum(&self, place: usize, what: fn(&Counts) -> u64) -> u64 {
        let counts = self.instances.iter();
        counts.map(|each| what(&each.meter.rules()[place])).sum()
    }

    /// By instance, the requests that Redis did not decide.
    #[must_use]
    pub fn alone(&self) -> Vec<u64> {
        let meters = self.instances.iter().map(|instance| &instance.meter);
        meters.map(|meter| meter.alone()).collect()
    }

    /// All requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let meters = self.instances.iter().map(|instance| &instance.meter);
        meters.map(|meter| meter.requests()).sum()
    }

    /// Waits until each instance has decided without Redis.
    pub async fn feels_it(&self) {
        let alone = self.alone();
        eventually("the failure is felt", || async {
            let mut instances = self.alone().into_iter().zip(&alone);
            instances.all(|(now, before)| now > *before).then_some(())
        })
        .await;
    }

    /// Waits until Redis decides for every instance and every rule again, and until it says that nothing is left, so that
    /// the next loss gives away as much as it can.
    pub async fn recovers(&self, from: &str) {
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
            let sum = |what| self.sum(place, what);
            let (admitted, alone) = (sum(Counts::admitted), sum(Counts::alone_admitted));
            let most = LIMIT + self.lost[place];
            let name = rule.name();
            assert!(admitted <= most, "{name}: {admitted} of {most} by Redis");
            let most = most_alone(rule).unwrap_or_else(|| sum(Counts::alone));
            assert!(alone <= most, "{name}: {alone} of {most} without Redis");
        }
    }

    /// Waits for the instances, whose last reply from Redis had no units left.
    ///
    /// # Panics
    ///
    /// More or less was admitted than the bounds allow.
    pub async fn end(&mut self) {
        self.stop().await;
        for (place, rule) in rules().iter().enumerate() {
            let least = LIMIT.saturating_sub(self.sum(place, Counts::alone));
            let admitted = self.sum(place, Counts::admitted);
            let name = rule.name();
            assert!(admitted >= least, "{name}: {admitted} of at least {least}");
        }
    }

    /// Waits for the instances.
    ///
    /// # Panics
    ///
    /// More was admitted than the bounds allow.
    pub async fn stop(&mut self) {
        for instance in &mut self.instances {
            instance.end().await;
        }
        self.keeps_its_bounds();
    }
}
