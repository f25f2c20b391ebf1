//! Versions of a rule on one state, and plans of one rule, against an exact model of rational numbers.

use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};
use proptest::prelude::*;
use tollgate_core::{
    AlgorithmKind, Check, Key, Limiter, ManualClock, MemoryStore, Outcome, Quota, Retry, Rule,
    Tick, Verdict,
};

const START: Tick = 1_700_000_000_123_456;

fn units(number: impl Into<num_bigint::BigInt>) -> BigRational {
    BigRational::from_integer(number.into())
}

/// Units in a µs.
fn rate(quota: &Quota) -> BigRational {
    units(quota.rate()) / units(quota.period().as_micros())
}

fn whole(number: &BigRational) -> u64 {
    number.to_integer().to_u64().expect("a few units or years")
}

/// What is used, and which version has written it.
#[derive(Clone, Debug)]
struct Used {
    units: BigRational,
    at: Tick,
    writer: Quota,
}

/// A verdict for a version: whether the cost fits, the units left, and when it fits and the state is fresh.
#[derive(Debug, PartialEq)]
struct Expected {
    fits: bool,
    left: u64,
    retry: u64,
    reset: u64,
}

impl Used {
    fn at(&self, now: Tick) -> BigRational {
        let back = rate(&self.writer) * units(now - self.at);
        (self.units.clone() - back).max(BigRational::zero())
    }

    /// What it is for another version, which counts in µs of 1/denominator: each is so many parts of a unit.
    fn under(&self, quota: &Quota, now: Tick) -> Self {
        let parts = units(rate(quota).denom().clone());
        let carried = (self.at(now) * &parts).ceil() / parts;
        Self {
            units: if self.writer == *quota {
                self.at(now)
            } else {
                carried
            },
            at: now,
            writer: *quota,
        }
    }

    fn acquire(&mut self, quota: &Quota, now: Tick, cost: u64) -> Expected {
        let mut after = self.under(quota, now);
        let burst = units(quota.limit());
        let room = &burst - &after.units;
        let fits = units(cost) <= room;
        if fits {
            after.units += units(cost);
            *self = after;
        } else if rate(quota) > rate(&self.writer) && self.at(now) <= burst {
            *self = after;
        }
        let used = self.at(now);
        let left = (burst - self.under(quota, now).units).max(BigRational::zero());
        // If it fits, until it fits again.
        let missing = (&used + units(cost) - units(quota.limit())).max(BigRational::zero());
        Expected {
            fits,
            left: whole(&left.floor()),
            retry: whole(&(missing / rate(&self.writer)).ceil()),
            reset: whole(&(used / rate(&self.writer)).ceil()),
        }
    }
}

/// A bucket that has to hold what was admitted.
struct Bound {
    burst: u64,
    rate: BigRational,
    used: BigRational,
    at: Tick,
}

impl Bound {
    fn new(burst: u64, rate: BigRational) -> Self {
        let used = BigRational::zero();
        Self {
            burst,
            rate,
            used,
            at: START,
        }
    }

    fn admit(&mut self, now: Tick, cost: u64) -> bool {
        let back = &self.rate * units(now - self.at);
        self.used = (&self.used - back).max(BigRational::zero()) + units(cost);
        self.at = now;
        self.used <= units(self.burst)
    }
}

/// All versions of the rule on one store, or all plans of one rule.
struct Service {
    clock: ManualClock,
    /// The version that decides, and the plan.
    versions: Vec<(Limiter, Option<String>)>,
}

impl Service {
    /// Each version replaces the previous ones, which still decide requests.
    fn of_versions(quotas: &[Quota]) -> Self {
        let (clock, store) = Self::store();
        let mut versions: Vec<(Limiter, _)> = Vec::new();
        for quota in quotas {
            let before: Vec<_> = versions.iter().map(|(limiter, _)| limiter).collect();
            let rule = [Rule::new("rule", *quota)];
            let limiter = Limiter::replacing(&before, store.clone(), rule);
            versions.push((limiter.expect("a valid rule"), None));
        }
        Self { clock, versions }
    }

    fn of_plans(quotas: &[Quota]) -> Self {
        let (clock, store) = Self::store();
        let mut rule = Rule::new("rule", quotas[0]);
        for (number, quota) in quotas.iter().enumerate().skip(1) {
            rule = rule.plan(format!("plan-{number}"), *quota);
        }
        let limiter = Limiter::new(store, [rule]).expect("a valid rule");
        let plan = |number: usize| (number > 0).then(|| format!("plan-{number}"));
        let versions = (0..quotas.len()).map(|number| (limiter.clone(), plan(number)));
        Self {
            versions: versions.collect(),
            clock,
        }
    }

    fn store() -> (ManualClock, MemoryStore) {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(&clock).build();
        (clock, store)
    }

    fn check(&self, version: usize, cost: u64) -> [Check; 1] {
        let (limiter, plan) = &self.versions[version];
        let key = Key::of(["client"]);
        let check = match plan {
            None => limiter.check("rule", &key),
            Some(plan) => limiter.check_with_plan("rule", plan, &key),
        };
        [check.expect("the rule is there").with_cost(cost)]
    }

    fn acquire(&self, version: usize, cost: u64) -> Verdict {
        let check = self.check(version, cost);
        let decision = self.versions[version].0.acquire(&check).ready();
        decision.expect("memory answers at once").verdicts()[0]
    }
}

/// An ask of one of the versions, after some time.
#[derive(Clone, Copy, Debug)]
struct Request {
    version: usize,
    /// In 1/1000 of what is to wait for.
    time: u64,
    /// In 1/1000 of its limit.
    cost: u64,
}

impl Request {
    fn cost(self, quota: &Quota) -> u64 {
        (quota.limit() * self.cost / 1_000).max(1)
    }
}

fn quota() -> impl Strategy<Value = Quota> {
    let rates = prop::sample::select(vec![1, 2, 3, 7, 11, 97, 997]);
    let periods = prop::sample::select(vec![7, 997, 10_000, 1_000_000, 60_000_000]);
    let period = periods.prop_map(std::time::Duration::from_micros);
    (1..80_u64, rates, period)
        .prop_map(|(burst, rate, period)| Quota::token_bucket(burst).refill(rate, period))
}

fn history() -> impl Strategy<Value = (Vec<Quota>, Vec<Request>)> {
    requests_of(prop::collection::vec(quota(), 2..5))
}

/// Windows of one length, with a limit each.
fn windows() -> impl Strategy<Value = (Vec<Quota>, Vec<Request>)> {
    let make: [fn(u64, std::time::Duration) -> Quota; 3] = [
        Quota::fixed_window,
        |limit, period| Quota::sliding_buckets(limit, period).buckets(7),
        Quota::sliding_log,
    ];
    let limits = prop::collection::vec(1..80_u64, 2..5);
    let period = prop::sample::select(vec![997, 1_000_000]);
    let quotas =
        (prop::sample::select(make.to_vec()), limits, period).prop_map(|(make, limits, period)| {
            let period = std::time::Duration::from_micros(period);
            limits
                .into_iter()
                .map(|limit| make(limit, period))
                .collect()
        });
    requests_of(quotas)
}

fn requests_of(
    quotas: impl Strategy<Value = Vec<Quota>>,
) -> impl Strategy<Value = (Vec<Quota>, Vec<Request>)> {
    let time = prop_oneof![3 => Just(0), 2 => 0..400_u64, 1 => Just(999), 3 => Just(1_000)];
    let cost = prop_oneof![4 => Just(0), 2 => 0..1_001_u64];
    let request = (0..4_usize, time, cost).prop_map(|(version, time, cost)| Request {
        version,
        time,
        cost,
    });
    (quotas, prop::collection::vec(request, 1..120)).prop_map(|(quotas, mut requests)| {
        for request in &mut requests {
            request.version %= quotas.len();
        }
        (quotas, requests)
    })
}

/// Runs a history; `seen` gets each request, its cost and its verdict.
fn run(
    service: &Service,
    quotas: &[Quota],
    requests: &[Request],
    mut seen: impl FnMut(&Service, usize, u64, &Verdict) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut wait = 1_000;
    for request in requests {
        let by = (u128::from(wait) * u128::from(request.time) / 1_000) as u64;
        service.clock.set(service.clock.now() + by);
        let cost = request.cost(&quotas[request.version]);
        let verdict = service.acquire(request.version, cost);
        wait = match verdict.retry() {
            Retry::After(wait) => wait,
            _ => verdict.reset_after(),
        }
        .as_micros() as u64;
        seen(service, request.version, cost, &verdict)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn each_version_decides_by_the_exact_state((quotas, requests) in history()) {
        for service in [Service::of_versions(&quotas), Service::of_plans(&quotas)] {
            let mut used = Used { units: BigRational::zero(), at: START, writer: quotas[0] };
            run(&service, &quotas, &requests, |service, version, cost, verdict| {
                let expected = Expected {
                    fits: verdict.outcome() == Outcome::Allow,
                    left: verdict.remaining(),
                    retry: verdict.retry().delay().expect("it is known").as_micros() as u64,
                    reset: verdict.reset_after().as_micros() as u64,
                };
                let now = service.clock.now();
                prop_assert_eq!(expected, used.acquire(&quotas[version], now, cost), "{} of {:?}", cost, quotas[version]);
                Ok(())
            })?;
        }
    }

    #[test]
    fn all_versions_together_admit_the_largest_burst_and_the_fastest_rate((quotas, requests) in history()) {
        let fastest = quotas.iter().map(rate).max().expect("two at least");
        let largest = quotas.iter().map(Quota::limit).max().expect("two at least");
        for service in [Service::of_versions(&quotas), Service::of_plans(&quotas)] {
            let mut together = Bound::new(largest, fastest.clone());
            let mut each: Vec<_> = quotas
                .iter()
                .map(|quota| Bound::new(quota.limit(), fastest.clone()))
                .collect();
            run(&service, &quotas, &requests, |service, version, cost, verdict| {
                if verdict.outcome() == Outcome::Allow {
                    let now = service.clock.now();
                    prop_assert!(together.admit(now, cost), "{:?}", quotas);
                    prop_assert!(each[version].admit(now, cost), "{:?} of {:?}", quotas[version], quotas);
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn all_plans_of_a_window_together_admit_the_largest_limit((quotas, requests) in windows()) {
        let largest = quotas.iter().map(Quota::limit).max().expect("two at least");
        let period = quotas[0].period().as_micros() as u64;
        let mut admitted: Vec<(Tick, u64)> = Vec::new();
        run(&Service::of_plans(&quotas), &quotas, &requests, |service, version, cost, verdict| {
            if verdict.outcome() == Outcome::Allow {
                let now = service.clock.now();
                admitted.push((now, cost));
                let is_fixed = quotas[version].algorithm() == AlgorithmKind::FixedWindow;
                let counts = |at: Tick| {
                    if is_fixed { at / period == now / period } else { at + period > now }
                };
                let sum: u64 = admitted.iter().filter(|(at, _)| counts(*at)).map(|(_, cost)| cost).sum();
                prop_assert!(sum <= largest, "{} of {:?}", sum, quotas);
            }
            Ok(())
        })?;
    }
}
