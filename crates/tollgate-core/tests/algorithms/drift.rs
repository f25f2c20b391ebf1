//! Ten million steps at awkward rates: not a unit more or less than the formula.

use std::time::Duration;

use tollgate_core::{
    DAY, Quota, SECOND,
    algorithm::{Algorithm, Gcra, GcraState},
};

const START: u64 = 1_700_000_000_000_000;

/// Uses the burst up, then requests one unit every `step` µs: at most the time of a unit, so that none is ever wasted.
fn admitted_in(quota: Quota, steps: u64, step: u64) {
    let algorithm = Gcra::new(&quota).expect("a valid quota");
    let mut state = GcraState::default();
    let mut now = START;
    let mut admitted = quota.limit();
    algorithm.take(&mut state, now, admitted);
    for _ in 0..steps {
        if algorithm.assess(&state, now, 1).fits {
            algorithm.take(&mut state, now, 1);
            admitted += 1;
        }
        now += step;
    }
    let elapsed = u128::from(now - step - START);
    let refilled = elapsed * u128::from(quota.rate()) / quota.period().as_micros();
    assert_eq!(
        u128::from(admitted),
        u128::from(quota.limit()) + refilled,
        "{quota:?}"
    );
}

#[test]
fn seven_a_second_lose_nothing_in_ten_million_steps() {
    admitted_in(Quota::gcra(7, SECOND), 10_000_000, 142_857);
}

#[test]
fn three_in_ten_milliseconds_lose_nothing_in_ten_million_steps() {
    admitted_in(Quota::gcra(3, Duration::from_millis(10)), 10_000_000, 3_333);
}

#[test]
fn one_a_day_loses_nothing_in_ten_million_steps() {
    admitted_in(Quota::gcra(1, DAY).burst(2), 10_000_000, 86_399_999_999);
}

#[test]
fn a_prime_rate_near_a_million_a_second_loses_nothing_in_ten_million_steps() {
    admitted_in(Quota::gcra(999_983, SECOND), 10_000_000, 1);
}

#[test]
fn a_million_a_second_loses_nothing_in_ten_million_steps() {
    admitted_in(Quota::gcra(1_000_000, SECOND), 10_000_000, 1);
}
