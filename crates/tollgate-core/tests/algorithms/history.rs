//! Random histories: quotas, steps of time, costs.

use std::time::Duration;

use proptest::{
    prelude::*,
    test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner},
};
use tollgate_core::{AlgorithmKind, DAY, HOUR, MAX_PERIOD, MINUTE, Quota, SECOND, Tick};

use crate::oracle::FEW;

/// One request: time moves, then some units are requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) step: Step,
    pub(crate) cost: Cost,
}

/// How time moves before a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Still,
    Ahead(u64),
    /// By a part of the period, in 1/1000.
    Part(u64),
    /// To the next boundary of an aligned window, and so many µs more or less.
    Boundary(i64),
    /// To the tick at which the last denial said that it would fit, less so many µs.
    Retry(u64),
    Back(u64),
    BackPart(u64),
}

/// The cost of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// In 1/1000 of the limit, at least 1.
    Part(u64),
    /// All that is left.
    Rest,
    /// One more than is left.
    TooMuch,
}

impl Step {
    pub(crate) fn from(self, now: Tick, period: u64, retry: Tick) -> Tick {
        match self {
            Self::Still => now,
            Self::Ahead(by) => now.saturating_add(by).min(1 << 61),
            Self::Part(part) => now + (u128::from(period) * u128::from(part) / 1_000) as u64,
            Self::Boundary(by) => (now / period + 1)
                .saturating_mul(period)
                .saturating_add_signed(by)
                .max(now),
            Self::Retry(less) => retry.saturating_sub(less).max(now),
            Self::Back(by) => now.saturating_sub(by),
            Self::BackPart(part) => {
                now.saturating_sub((u128::from(period) * u128::from(part) / 1_000) as u64)
            }
        }
    }
}

impl Cost {
    pub(crate) fn of(self, limit: u64, left: u64) -> u64 {
        match self {
            Self::Units(units) => units,
            Self::Part(part) => (u128::from(limit) * u128::from(part) / 1_000).max(1) as u64,
            Self::Rest => left,
            Self::TooMuch => left + 1,
        }
    }
}

fn ahead() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Still),
        2 => (1..4_u64).prop_map(Step::Ahead),
        1 => (1..100_000_000_u64).prop_map(Step::Ahead),
        1 => (1..1_u64 << 50).prop_map(Step::Ahead),
        4 => (0..2_500_u64).prop_map(Step::Part),
        3 => (-2..3_i64).prop_map(Step::Boundary),
        4 => (0..3_u64).prop_map(Step::Retry),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => ahead(),
        1 => (1..4_u64).prop_map(Step::Back),
        1 => (1..1_u64 << 62).prop_map(Step::Back),
        1 => (1..3_500_u64).prop_map(Step::BackPart),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        1 => Just(Cost::Units(0)),
        5 => Just(Cost::Units(1)),
        4 => (0..1_001_u64).prop_map(Cost::Part),
        3 => Just(Cost::Rest),
        2 => Just(Cost::TooMuch),
        1 => prop_oneof![Just(u64::MAX), 1..2_000_000_u64].prop_map(Cost::Units),
    ]
}

/// Requests while time stands or goes ahead.
pub(crate) fn requests(most: usize) -> impl Strategy<Value = Vec<Request>> {
    let request = (ahead(), cost()).prop_map(|(step, cost)| Request { step, cost });
    proptest::collection::vec(request, 1..most)
}

/// Requests while time stands, goes ahead and goes back.
pub(crate) fn requests_back(most: usize) -> impl Strategy<Value = Vec<Request>> {
    let request = (any_step(), cost()).prop_map(|(step, cost)| Request { step, cost });
    proptest::collection::vec(request, 1..most)
}

pub(crate) fn start() -> impl Strategy<Value = Tick> {
    prop_oneof![
        Just(0),
        0..10_000_000_u64,
        1_600_000_000_000_000..1_800_000_000_000_000_u64
    ]
}

fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..12_u64,
        2 => prop::sample::select(vec![7, 60, 100, 997, 999_983, 1_000_000, 94_906_265]),
        2 => 1..1_001_u64,
        1 => 1..5_000_000_u64,
        1 => 1..1_u64 << 49,
    ]
}

fn period() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => prop::sample::select(vec![
            Duration::from_micros(1),
            Duration::from_micros(7),
            Duration::from_micros(997),
            Duration::from_millis(10),
            SECOND,
            MINUTE,
            HOUR,
            DAY,
            MAX_PERIOD,
        ]),
        2 => (1..1_000_000_u64).prop_map(Duration::from_micros),
        1 => (1..100_000_000_000_u64).prop_map(Duration::from_micros),
    ]
}

/// A valid quota of this algorithm.
pub(crate) fn quota(kind: AlgorithmKind) -> impl Strategy<Value = Quota> {
    (limit(), period(), limit(), any::<bool>()).prop_filter_map(
        "not a quota",
        move |(limit, period, burst, flag)| {
            let quota = match kind {
                AlgorithmKind::FixedWindow => Quota::fixed_window(limit, period),
                AlgorithmKind::SlidingWindow => Quota::sliding_window(limit, period),
                AlgorithmKind::SlidingBuckets if flag => {
                    Quota::sliding_buckets(limit, period).buckets(FEW)
                }
                AlgorithmKind::SlidingBuckets => Quota::sliding_buckets(limit, period),
                AlgorithmKind::SlidingLog => Quota::sliding_log(limit % 1_000 + 1, period),
                _ if flag => Quota::gcra(limit, period),
                _ => Quota::token_bucket(burst).refill(limit, period),
            };
            quota.validate().is_ok().then_some(quota)
        },
    )
}

/// A test for each state machine: `$check::<oracle>(kind)`, in a module that is named after what must hold.
macro_rules! for_each_algorithm {
    ($($sentence:ident => $check:ident;)*) => {$(
        mod $sentence {
            use tollgate_core::AlgorithmKind;

            use crate::oracle;

            #[test]
            fn gcra() {
                super::$check::<oracle::GcraOracle>(AlgorithmKind::Gcra);
            }

            #[test]
            fn fixed_window() {
                super::$check::<oracle::FixedWindowOracle>(AlgorithmKind::FixedWindow);
            }

            #[test]
            fn sliding_window() {
                super::$check::<oracle::SlidingWindowOracle>(AlgorithmKind::SlidingWindow);
            }

            #[test]
            fn sliding_buckets() {
                super::$check::<oracle::SlidingBucketsOracle>(AlgorithmKind::SlidingBuckets);
            }

            #[test]
            fn sliding_log() {
                super::$check::<oracle::SlidingLogOracle>(AlgorithmKind::SlidingLog);
            }
        }
    )*};
}

pub(crate) use for_each_algorithm;

/// Runs a property over random values, and keeps the seeds of failures next to the tests.
pub(crate) fn property<S: Strategy>(
    cases: u32,
    values: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let mut runner = TestRunner::new(Config {
        cases,
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/algorithms/regressions.txt"
        )))),
        max_global_rejects: 1_000_000,
        max_local_rejects: 1_000_000,
        ..Config::default()
    });
    if let Err(error) = runner.run(values, test) {
        panic!("{error}");
    }
}
