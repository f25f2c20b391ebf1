//! Never more than the quota, over every window of a history.

use proptest::prelude::*;
use tollgate_core::{AlgorithmKind, Quota, Tick};

use crate::{
    agreement::Run,
    history::{Request, for_each_algorithm, property, quota, requests, requests_back, start},
    oracle::Oracle,
};

for_each_algorithm! {
    no_window_of_any_length_admits_more_than_the_promise => time_ahead;
    no_window_of_elapsed_time_admits_more_while_the_clock_goes_back => time_back;
}

/// Units that were admitted, and when: by the clock, and by the time that has elapsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) at: Tick,
    pub(crate) elapsed: Tick,
    pub(crate) units: u64,
}

fn time_ahead<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), start(), requests(120));
    property(60, &values, |(quota, start, requests)| {
        let admitted = admitted::<O>(quota, start, requests);
        promised(&quota, 0, &admitted)?;
        if matches!(kind, AlgorithmKind::FixedWindow) {
            per_aligned_window(&quota, &admitted)?;
        }
        Ok(())
    });
}

fn time_back<O: Oracle>(kind: AlgorithmKind) {
    let values = (quota(kind), start(), requests_back(120));
    property(60, &values, |(quota, start, requests)| {
        promised(&quota, 0, &admitted::<O>(quota, start, requests))
    });
}

fn admitted<O: Oracle>(quota: Quota, start: Tick, requests: Vec<Request>) -> Vec<Admitted> {
    let mut run = Run::<O>::new(quota, start);
    let mut elapsed = 0;
    let mut admitted = Vec::new();
    for request in requests {
        let before = run.now;
        let cost = run.moved(request);
        // No time elapses while a clock goes back.
        elapsed += run.now.saturating_sub(before);
        if cost > 0 && run.decide(cost).fits {
            admitted.push(Admitted {
                at: run.now,
                elapsed,
                units: cost,
            });
        }
    }
    admitted
}

/// The most that the page of the algorithm allows in `[t, t + length]`, in 1/period units.
fn most(quota: &Quota, length: Tick) -> u128 {
    let period = quota.period().as_micros();
    let limit = u128::from(quota.limit()) * period;
    match quota.algorithm() {
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow => {
            // Each further window begun adds its limit.
            limit * (2 + u128::from(length) / period)
        }
        AlgorithmKind::SlidingLog | AlgorithmKind::SlidingBuckets => {
            limit * (1 + u128::from(length) / period)
        }
        _ => limit + u128::from(quota.rate()) * u128::from(length),
    }
}

/// No more than the quota allows in any window, and what may be owed.
pub(crate) fn promised(
    quota: &Quota,
    debt: u64,
    admitted: &[Admitted],
) -> Result<(), TestCaseError> {
    let period = quota.period().as_micros();
    for (index, first) in admitted.iter().enumerate() {
        let mut units = 0;
        for last in &admitted[index..] {
            units += u128::from(last.units);
            let length = last.elapsed - first.elapsed;
            prop_assert!(
                units * period <= most(quota, length) + u128::from(debt) * period,
                "{quota:?} admitted {units} units in {length} µs from {first:?} to {last:?}"
            );
        }
    }
    Ok(())
}

fn per_aligned_window(quota: &Quota, admitted: &[Admitted]) -> Result<(), TestCaseError> {
    let period = quota.period().as_micros() as u64;
    for windows in admitted.chunk_by(|a, b| a.at / period == b.at / period) {
        let units: u64 = windows.iter().map(|admitted| admitted.units).sum();
        prop_assert!(
            units <= quota.limit(),
            "{quota:?} admitted {units} units in one window"
        );
    }
    Ok(())
}
