//! Quotas that checks bring along.

use std::{collections::HashMap, fmt, num::NonZeroU32, sync::Arc};

use crate::{
    quota::Quota,
    serial::next_serial,
    sync::{Mutex, lock},
    time::{Clock, Tick},
};

/// A quota for checks of one rule: made by [`Limiter::quota_for`](crate::Limiter::quota_for), put into a check by
/// [`Check::with_quota`](crate::Check::with_quota).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckQuota {
    pub(crate) plan: u16,
    /// What the number `plan` was given out with; 0 for the rule's own quota and its plans, whose numbers stay.
    pub(crate) serial: u32,
}

impl CheckQuota {
    /// The quota of plan number `plan` of the rule; 0 is its own.
    #[inline]
    #[must_use]
    pub const fn of_plan(plan: u16) -> Self {
        Self { plan, serial: 0 }
    }

    /// The number of the plan, or the one that this quota was given.
    #[inline]
    #[must_use]
    pub const fn plan(self) -> u16 {
        self.plan
    }
}

/// The quotas that checks of a rule have brought along, by the numbers that checks and verdicts carry.
///
/// A number is free again when its quota was not used for ten minutes and others need it. A check that is older says so by
/// its serial number.
#[derive(Clone)]
pub(crate) struct VariableQuota {
    shared: Arc<Mutex<Numbers>>,
    clock: Clock,
    part: Part,
}

/// Which part of a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// The share of one of so many instances.
    Share(NonZeroU32),
    /// Another quota in its place.
    Cap(Quota),
}

#[derive(Default)]
struct Numbers {
    quotas: Vec<Numbered>,
    numbers: HashMap<Quota, u16>,
    /// Where the next look for one that is not used begins.
    cursor: usize,
}

struct Numbered {
    quota: Quota,
    serial: u32,
    used_at: Tick,
}

/// How long a quota keeps its number without being used, in µs.
const KEPT: u64 = 600_000_000;
/// The numbers that are given out before one is used again.
const FEW: usize = 256;
/// How many quotas are looked at for one that is not used.
const LOOKS: usize = 16;

impl VariableQuota {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::default(),
            clock: Clock::system(),
            part: Part::Whole,
        }
    }

    /// The same quotas for one of so many instances.
    pub(crate) fn shared_by(&self, instances: NonZeroU32) -> Self {
        Self {
            part: Part::Share(instances),
            ..self.clone()
        }
    }

    /// The same numbers, all with this quota.
    pub(crate) fn capped(&self, cap: Quota) -> Self {
        Self {
            part: Part::Cap(cap),
            ..self.clone()
        }
    }

    /// The quota with this number, counted from 0.
    pub(crate) fn quota(&self, number: usize) -> Option<Quota> {
        let quota = lock(&self.shared).quotas.get(number)?.quota;
        Some(match self.part {
            Part::Whole => quota,
            Part::Share(instances) => {
                let share = quota.share(instances.get());
                // The whole where a part of it cannot be counted: it is at least as much.
                if share.validate().is_ok() {
                    share
                } else {
                    quota
                }
            }
            Part::Cap(cap) => cap,
        })
    }

    /// The serial number with which this number was given out last.
    pub(crate) fn serial(&self, number: usize) -> Option<u32> {
        Some(lock(&self.shared).quotas.get(number)?.serial)
    }

    /// The number of a quota that was accepted before.
    pub(crate) fn known(&self, quota: &Quota) -> Option<(u16, u32)> {
        let now = self.clock.now();
        let mut numbers = lock(&self.shared);
        let number = *numbers.numbers.get(quota)?;
        let numbered = numbers.quotas.get_mut(usize::from(number))?;
        numbered.used_at = now;
        Some((number, numbered.serial))
    }

    /// A number for a quota, below `most`. `None`: that many others are in use.
    pub(crate) fn add(&self, quota: Quota, most: usize) -> Option<(u16, u32)> {
        let now = self.clock.now();
        let mut numbers = lock(&self.shared);
        let numbers = &mut *numbers;
        let serial = next_serial() as u32;
        let numbered = Numbered {
            quota,
            serial,
            used_at: now,
        };
        let number = match numbers.unused(now) {
            Some(number) => {
                numbers.numbers.remove(&numbers.quotas[number].quota);
                numbers.quotas[number] = numbered;
                number
            }
            None if numbers.quotas.len() >= most => return None,
            None => {
                numbers.quotas.push(numbered);
                numbers.quotas.len() - 1
            }
        };
        // It is below `most`, which is a plan's number at most.
        let number = number as u16;
        numbers.numbers.insert(quota, number);
        Some((number, serial))
    }
}

impl Numbers {
    /// A number whose quota was not used for long.
    fn unused(&mut self, now: Tick) -> Option<usize> {
        if self.quotas.len() < FEW {
            return None;
        }
        for _ in 0..LOOKS {
            self.cursor = (self.cursor + 1) % self.quotas.len();
            if self.quotas[self.cursor].used_at.saturating_add(KEPT) <= now {
                return Some(self.cursor);
            }
        }
        None
    }
}

/// Rules are equal whatever their checks have brought along.
impl PartialEq for VariableQuota {
    fn eq(&self, other: &Self) -> bool {
        self.part == other.part
    }
}

impl Eq for VariableQuota {}

impl fmt::Debug for VariableQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quotas = lock(&self.shared).quotas.len();
        write!(f, "VariableQuota({quotas} quotas, {:?})", self.part)
    }
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::{MINUTE, ManualClock, SECOND};

    fn variable() -> (VariableQuota, ManualClock) {
        let clock = ManualClock::new(1_700_000_000_000_000);
        let variable = VariableQuota {
            clock: Clock::from(&clock),
            ..VariableQuota::new()
        };
        (variable, clock)
    }

    fn quota(n: u64) -> Quota {
        Quota::gcra(n + 1, MINUTE)
    }

    #[test]
    fn a_quota_that_changes_each_second_never_runs_out_of_numbers() {
        let (variable, clock) = variable();
        for n in 0..200_000 {
            let (number, serial) = variable.add(quota(n), 2_000).expect("there is room");
            assert_eq!(variable.known(&quota(n)), Some((number, serial)));
            clock.advance(SECOND);
        }
        let numbers = lock(&variable.shared);
        assert!(numbers.quotas.len() <= 700);
        assert_eq!(numbers.numbers.len(), numbers.quotas.len());
    }

    #[test]
    fn a_quota_in_use_keeps_its_number_and_one_that_was_given_away_has_another_serial() {
        let (variable, clock) = variable();
        let used = variable.add(quota(0), 1_000);
        let idle = variable.add(quota(1), 1_000).expect("there is room");
        for n in 2..5_000 {
            variable.add(quota(n), 1_000).expect("there is room");
            assert_eq!(variable.known(&quota(0)), used);
            clock.advance(SECOND);
        }
        assert_eq!(variable.known(&quota(1)), None);
        let now = variable.serial(usize::from(idle.0));
        assert_ne!(now, Some(idle.1));
    }

    #[test]
    fn with_all_numbers_in_use_a_further_quota_has_none_for_a_while() {
        let (variable, clock) = variable();
        for n in 0..1_000 {
            assert!(variable.add(quota(n), 1_000).is_some());
        }
        assert_eq!(variable.add(quota(1_000), 1_000), None);
        clock.advance(Duration::from_micros(KEPT - 1));
        assert_eq!(variable.add(quota(1_000), 1_000), None);
        clock.advance(Duration::from_micros(1));
        assert!(variable.add(quota(1_000), 1_000).is_some());
    }
}
