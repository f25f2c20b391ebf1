//! The windows of a quota that is granted, by the store's clock.

use tollgate_core::{AlgorithmKind, Quota, Tick};

use crate::{effective::Effective, lease::terms::LeaseTerms};

/// How long a window is, and in how many of them its units weigh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    length: Tick,
    weighs: u64,
}

impl Windows {
    /// `None`: the quota is not granted, or is a bucket.
    pub(crate) fn new(quota: &Quota, effective: &Effective) -> Option<Self> {
        let Effective::Leased(terms) = effective else {
            return None;
        };
        let length = LeaseTerms::window(terms).filter(|length| *length > 0)?;
        let weighs = match quota.algorithm() {
            // For the window after it too.
            AlgorithmKind::SlidingWindow => 2,
            _ => 1,
        };
        Some(Self { length, weighs })
    }

    /// Until when the units weigh that are counted in the window of this number.
    pub(crate) fn weigh_until(self, window: u64) -> Tick {
        let after = window.saturating_add(self.weighs);
        after.saturating_mul(self.length)
    }

    /// Whether units of a window weigh in the next one too.
    pub(crate) fn slide(self) -> bool {
        self.weighs > 1
    }

    /// The number of the window whose units weigh until this time, which is known to half a window.
    pub(crate) fn that_weighs_until(self, until: Tick) -> Option<u64> {
        let after = until.saturating_add(self.length / 2) / self.length;
        after.checked_sub(self.weighs)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Consistency, LeaseShare, MINUTE};

    use super::*;

    #[test]
    fn a_window_is_found_by_the_time_until_which_its_units_weigh() {
        let leased = Consistency::Leased {
            share: LeaseShare::percent(50),
        };
        let of = |quota: Quota| Windows::new(&quota, &Effective::new(&quota, leased));
        for (quota, weighs) in [
            (Quota::fixed_window(100, MINUTE), 1),
            (Quota::sliding_window(100, MINUTE), 2),
        ] {
            let windows = of(quota).expect("it is granted");
            let until = windows.weigh_until(28_333_333);
            assert_eq!(until, (28_333_333 + weighs) * 60_000_000);
            for near in [until - 29_999_999, until, until + 29_999_999] {
                assert_eq!(windows.that_weighs_until(near), Some(28_333_333));
            }
        }
        assert!(of(Quota::gcra(100, MINUTE)).is_none());
        assert!(of(Quota::sliding_log(100, MINUTE)).is_none());
    }
}
