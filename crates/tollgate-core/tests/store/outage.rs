//! How much passes in and around an outage, held against exact bounds.

use std::{num::NonZeroU32, time::Duration};

use proptest::prelude::*;
use tollgate_conformance::SwitchedStore;
use tollgate_core::{Limiter, ManualClock, MemoryStore, Quota, Rule};

use crate::check;

const START: u64 = 1_700_000_040_000_000;

/// Several instances of a service on one store, and what passed when.
struct Service {
    clock: ManualClock,
    store: SwitchedStore,
    instances: Vec<Limiter>,
    /// Instant and units of each admission, and whether the store had failed.
    passed: Vec<(u64, u64, bool)>,
    off: bool,
}

/// One step: time passes, and an instance requests some units.
type Step = (u64, usize, u64);

impl Service {
    fn new(quota: Quota, instances: u32, reported_by_store: bool) -> Self {
        Self::of(&Rule::new("rule", quota), instances, reported_by_store)
    }

    fn of(rule: &Rule, instances: u32, reported_by_store: bool) -> Self {
        let clock = ManualClock::new(START);
        let store = SwitchedStore::at_once(MemoryStore::builder().clock(&clock).build());
        let given = if reported_by_store {
            store.know(instances);
            NonZeroU32::MIN
        } else {
            NonZeroU32::new(instances).expect("not zero")
        };
        let limiter = |_| {
            Limiter::new(store.clone(), [rule.clone()])
                .and_then(|limiter| limiter.shared_by(given))
                .expect("a valid rule")
        };
        Self {
            instances: (0..instances).map(limiter).collect(),
            clock,
            store,
            passed: Vec::new(),
            off: false,
        }
    }

    fn switch(&mut self, on: bool) {
        self.store.switch(on);
        self.off = !on;
    }

    fn steps(&mut self, steps: &[Step]) {
        self.steps_that_cost(steps, 1);
    }

    /// The same where requests turn out to cost so many times what they have asked for.
    fn steps_that_cost(&mut self, steps: &[Step], times: u64) {
        for (wait, instance, cost) in steps {
            self.clock.advance(Duration::from_micros(*wait));
            let limiter = &self.instances[instance % self.instances.len()];
            let checks = [check(limiter, "rule", "a", *cost)];
            let decision = limiter
                .acquire(&checks)
                .ready()
                .expect("it answers at once");
            if decision.is_allowed() {
                limiter.ticket(&checks, &decision).settle(cost * times);
                self.passed.push((self.clock.now(), cost * times, self.off));
            }
        }
    }

    /// The most that passed in a stretch of time beyond the rate: units less `rate · t`, in parts of `1/period`, over
    /// all stretches that begin and end with an admission for which `of` holds.
    fn most_beyond_rate(&self, quota: &Quota, of: impl Fn(bool) -> bool) -> i128 {
        let (rate, period) = (i128::from(quota.rate()), quota.period().as_micros() as i128);
        let (mut most, mut open, mut last) = (0, 0_i128, None);
        for (at, units, _) in self.passed.iter().filter(|(_, _, off)| of(*off)) {
            // The worst stretch that ends here: the worst that ended before, less what has come back, or a new one.
            let passed = last.map_or(0, |last| i128::from(at - last));
            open = (open - passed * rate).max(0) + i128::from(*units) * period;
            most = most.max(open);
            last = Some(*at);
        }
        most
    }
}

fn bucket() -> impl Strategy<Value = Quota> {
    (1_u64..40, 1_u64..50, 1_u64..20_000).prop_map(|(rate, burst, period)| {
        Quota::gcra(rate, Duration::from_micros(period * 997)).burst(burst)
    })
}

fn window() -> impl Strategy<Value = Quota> {
    (1_u64..40, 1_u64..20_000, 0..2).prop_map(|(limit, period, log)| {
        let period = Duration::from_micros(period * 997);
        if log == 0 {
            Quota::fixed_window(limit, period)
        } else {
            Quota::sliding_log(limit, period)
        }
    })
}

/// Some short waits and some long ones, at costs from 0 on.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![4 => Just(0_u64), 4 => 0..200_000_u64, 1 => 0..30_000_000_u64];
    proptest::collection::vec((wait, 0..8_usize, 0..6_u64), 0..120)
}

proptest! {
    #[test]
    fn all_instances_together_keep_to_the_rate_and_the_larger_of_burst_and_their_number(
        quota in bucket(), instances in 1_u32..9, reported in any::<bool>(),
        before in steps(), during in steps(), after in steps(), again in steps(),
    ) {
        let mut service = Service::new(quota, instances, reported);
        service.steps(&before);
        service.switch(false);
        service.steps(&during);
        service.switch(true);
        service.steps(&after);
        let period = quota.period().as_micros() as i128;
        let burst = i128::from(quota.limit());
        let larger = burst.max(i128::from(instances));
        // Around one outage: the store's burst before it, the shares, and the store's burst after it.
        let around = service.most_beyond_rate(&quota, |_| true);
        prop_assert!(around <= (2 * burst + larger) * period, "{} around it", around as f64 / period as f64);
        service.switch(false);
        service.steps(&again);
        // What passed alone, in one outage or several.
        let alone = service.most_beyond_rate(&quota, |off| off);
        prop_assert!(alone <= larger * period, "{} alone", alone as f64 / period as f64);
        // What the store let pass keeps to its own bound, whatever passed alone.
        let by_store = service.most_beyond_rate(&quota, |off| !off);
        prop_assert!(by_store <= burst * period, "{} by the store", by_store as f64 / period as f64);
    }

    #[test]
    fn what_costs_more_than_it_took_keeps_to_the_rate_and_one_request_of_each_instance(
        quota in bucket(), instances in 1_u32..9, during in steps(), again in steps(), times in 2_u64..90,
    ) {
        // A request takes at most five units, and all that it costs more may be owed.
        let rule = Rule::new("rule", quota).debt(5 * times);
        let mut service = Service::of(&rule, instances, false);
        for steps in [during, again] {
            service.switch(false);
            service.steps_that_cost(&steps, times);
            service.switch(true);
        }
        let period = quota.period().as_micros() as i128;
        let larger = i128::from(quota.limit()).max(i128::from(instances));
        let most = larger + i128::from(instances) * i128::from(5 * times);
        let alone = service.most_beyond_rate(&quota, |off| off);
        prop_assert!(alone <= most * period, "{} of {most}", alone as f64 / period as f64);
    }

    #[test]
    fn an_instance_that_saw_the_last_state_goes_on_where_the_store_stopped(
        quota in bucket(), before in steps(), during in steps(),
    ) {
        let mut service = Service::new(quota, 1, false);
        service.steps(&before);
        service.switch(false);
        service.steps(&during);
        let all = service.most_beyond_rate(&quota, |_| true);
        let period = quota.period().as_micros() as i128;
        let burst = i128::from(quota.limit());
        prop_assert!(all <= burst * period, "{} of {burst}", all as f64 / period as f64);
    }

    #[test]
    fn all_instances_together_keep_to_a_window_or_to_one_unit_each(
        quota in window(), instances in 1_u32..9, reported in any::<bool>(),
        before in steps(), during in steps(), after in steps(), again in steps(),
    ) {
        let mut service = Service::new(quota, instances, reported);
        service.steps(&before);
        service.switch(false);
        service.steps(&during);
        service.switch(true);
        service.steps(&after);
        service.switch(false);
        service.steps(&again);
        let aligned = quota.algorithm() == tollgate_core::AlgorithmKind::FixedWindow;
        let period = quota.period().as_micros() as u64;
        let alone: Vec<_> = service.passed.iter().filter(|(_, _, off)| *off).collect();
        for (end, (at, _, _)) in alone.iter().enumerate() {
            let within = |then: u64| {
                if aligned { then / period == at / period } else { at - then < period }
            };
            let units = alone[..=end].iter().filter(|(then, _, _)| within(*then));
            let units: u64 = units.map(|(_, units, _)| units).sum();
            prop_assert!(units <= quota.limit().max(instances.into()), "{units} in a window");
        }
    }
}
