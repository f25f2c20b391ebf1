//! Quotas that checks bring along.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    quota::Quota,
    striped::PerStripe,
    sync::{Mutex, MutexGuard, lock},
    time::{Clock, Tick},
};

/// A quota for checks of one rule: made by [`Limiter::quota_for`](crate::Limiter::quota_for), put into a check by
/// [`Check::with_quota`](crate::Check::with_quota).
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckQuota {
    pub(crate) plan: u16,
    /// What the number `plan` was given out with; 0 for the rule's own quota and its plans, whose numbers stay.
    pub(crate) serial: u32,
}

impl CheckQuota {
    /// The quota of plan number `plan` of the rule; 0 is its own.
    pub const fn of_plan(plan: u16) -> Self {
        Self { plan, serial: 0 }
    }

    /// The number of the plan, or the one that this quota was given.
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
    shared: Arc<Shared>,
    clock: Clock,
    part: Part,
}

/// What counts of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    /// The share of one of these instances.
    Share(NonZeroU32),
    /// Another quota in its place.
    Cap(Quota),
}

/// The numbers, and what each stripe of threads remembers of them, so that a request writes nothing that others read.
#[derive(Default)]
struct Shared {
    numbers: Mutex<Numbers>,
    /// True while it is fresh: a number that was just used stays with its quota.
    near: OnceLock<PerStripe<Mutex<Numbers>>>,
}

#[derive(Default)]
struct Numbers {
    quotas: HashMap<u16, Numbered>,
    numbers: HashMap<Quota, u16>,
    /// Where the next look for one that is not used begins.
    cursor: usize,
}

#[derive(Clone, Copy)]
struct Numbered {
    quota: Quota,
    serial: u32,
    used_at: Tick,
}

/// How long a quota keeps its number without being used, in µs.
const KEPT: u64 = 600_000_000;
/// The numbers that are given out before one is used again.
const FEW: usize = 256;
/// How long a stripe of threads remembers a number without noting that it is used, in µs: far below [`KEPT`].
const NEAR: u64 = 60_000_000;
/// The numbers that a stripe of threads remembers.
const MOST_NEAR: usize = 1_024;
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

    /// The same numbers, of whose quotas this part counts.
    pub(crate) fn in_part(&self, part: Part) -> Self {
        Self {
            part,
            ..self.clone()
        }
    }

    /// The quota with this number, counted from 0.
    pub(crate) fn quota(&self, number: usize) -> Option<Quota> {
        let quota = self.numbered(number)?.quota;
        Some(match self.part {
            Part::Whole => quota,
            Part::Share(instances) => {
                let share = quota.share(instances.get());
                // The whole where a part of it cannot be counted: it is at least as much.
                share.validate().map_or(quota, |()| share)
            }
            Part::Cap(cap) => cap,
        })
    }

    /// The serial number with which this number was given out last.
    pub(crate) fn serial(&self, number: usize) -> Option<u32> {
        Some(self.numbered(number)?.serial)
    }

    /// The number of a quota that was accepted before.
    pub(crate) fn known(&self, quota: &Quota) -> Option<(u16, u32)> {
        let (now, mut near) = (self.clock.now(), self.near());
        if let Some(number) = near.numbers.get(quota)
            && let Some(numbered) = near.fresh(*number, now)
        {
            return Some((*number, numbered.serial));
        }
        let mut numbers = lock(&self.shared.numbers);
        let number = *numbers.numbers.get(quota)?;
        let numbered = numbers.quotas.get_mut(&number)?;
        numbered.used_at = numbered.used_at.max(now);
        if near.quotas.len() >= MOST_NEAR {
            *near = Numbers::default();
        }
        near.insert(number, *numbered);
        Some((number, numbered.serial))
    }

    /// What has this number, as this stripe of threads remembers it, or as it is.
    fn numbered(&self, number: usize) -> Option<Numbered> {
        let number = u16::try_from(number).ok()?;
        let near = self.near().fresh(number, self.clock.now());
        near.or_else(|| {
            let numbers = lock(&self.shared.numbers);
            numbers.quotas.get(&number).copied()
        })
    }

    fn near(&self) -> MutexGuard<'_, Numbers> {
        let near = self
            .shared
            .near
            .get_or_init(|| PerStripe::new(|_| Mutex::default()));
        lock(near.here())
    }

    /// A number for a quota, below `most`. `None`: that many others are in use.
    pub(crate) fn add(&self, quota: Quota, most: usize) -> Option<(u16, u32)> {
        let numbers = &mut *lock(&self.shared.numbers);
        let (serial, used_at) = (next_serial() as u32, self.clock.now());
        let numbered = Numbered {
            quota,
            serial,
            used_at,
        };
        let number = match numbers.unused(used_at) {
            Some(number) => number,
            None if numbers.quotas.len() >= most => return None,
            // It is below `most`, which is a plan's number at most.
            None => numbers.quotas.len() as u16,
        };
        numbers.insert(number, numbered);
        Some((number, serial))
    }
}

impl Numbers {
    /// What has this number, unless its use has to be noted again.
    fn fresh(&self, number: u16, now: Tick) -> Option<Numbered> {
        let numbered = self.quotas.get(&number).copied();
        numbered.filter(|it| now < it.used_at.saturating_add(NEAR))
    }

    /// Gives a number to a quota, instead of the one that had it.
    fn insert(&mut self, number: u16, numbered: Numbered) {
        if let Some(before) = self.quotas.insert(number, numbered) {
            self.numbers.remove(&before.quota);
        }
        self.numbers.insert(numbered.quota, number);
    }

    /// A number whose quota was not used for long.
    fn unused(&mut self, now: Tick) -> Option<u16> {
        if self.quotas.len() < FEW {
            return None;
        }
        for _ in 0..LOOKS {
            self.cursor = (self.cursor + 1) % self.quotas.len();
            let number = self.cursor as u16;
            let is_unused = |it: &Numbered| it.used_at.saturating_add(KEPT) <= now;
            if self.quotas.get(&number).is_some_and(is_unused) {
                return Some(number);
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

crate::debug_fields!(VariableQuota, it => quotas: { lock(&it.shared.numbers).quotas.len() }, part: it.part);

// Numbers that are given out once in a process.

/// A number that no rule set or quota of a check had before in this process. It is never 0.
pub(crate) fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
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
        for n in 0..70_000 {
            let (number, serial) = variable.add(quota(n), 2_000).expect("there is room");
            assert_eq!(variable.known(&quota(n)), Some((number, serial)));
            clock.advance(SECOND);
        }
        let numbers = lock(&variable.shared.numbers);
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
