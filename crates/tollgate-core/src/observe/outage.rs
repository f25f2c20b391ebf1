//! The outages of a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An outage ends after this time without a failure.
const RECOVERY_SECONDS: u64 = 2;

/// Reports each outage of the store once when it begins and once when it ends.
#[derive(Debug, Default)]
pub(super) struct Outage {
    is_on: AtomicBool,
    last_failure: AtomicU64,
}

impl Outage {
    /// The same outage, of other rules on the store.
    pub(super) fn again(&self) -> Self {
        Self {
            is_on: AtomicBool::new(self.is_on.load(Ordering::Relaxed)),
            last_failure: AtomicU64::new(self.last_failure.load(Ordering::Relaxed)),
        }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether the outage begins with this failure.
    pub(super) fn failed(&self, second: u64) -> bool {
        self.last_failure.store(second, Ordering::Relaxed);
        !self.is_on.swap(true, Ordering::Relaxed)
    }

    /// Whether the outage ends with this success.
    pub(super) fn succeeded(&self, second: u64) -> bool {
        let last = self.last_failure.load(Ordering::Relaxed);
        second.abs_diff(last) >= RECOVERY_SECONDS && self.is_on.swap(false, Ordering::Relaxed)
    }
}

/// The second by the system's clock.
pub(super) fn second() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    #[expect(clippy::disallowed_methods, reason = "it only times events")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_reported_once_when_it_begins_and_once_when_it_ends() {
        let outage = Outage::default();
        assert_eq!(
            [outage.failed(10), outage.failed(10), outage.failed(11)],
            [true, false, false]
        );
        // Some requests succeed while others still fail.
        assert_eq!([outage.succeeded(11), outage.succeeded(12)], [false, false]);
        assert!(!outage.failed(12));
        assert_eq!([outage.succeeded(14), outage.succeeded(14)], [true, false]);
        assert!(!outage.is_on());
        assert!(outage.failed(15));
    }
}
