//! A lease in a process's hands.

use tollgate_core::Tick;

/// A lease as a process holds it, or what it has left behind: no units, and what was known of it. Times are by the process's own
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    /// What a store grants is counted in 32 bits. More than the size where units of an earlier lease of the window came back.
    pub(super) units: u32,
    /// As how many units the store tracks it.
    pub(super) size: u32,
    /// When it came, or when the units of a scheduled lease begin to come due. What was spent before was of another. In a window: when
    /// the key was last reset from here.
    pub(super) since: Tick,
    pub(super) until: Tick,
    pub(super) kind: Kind,
}

/// What is known of it in addition to its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the generation in which the store tracks it.
    Tracked(u64),
    /// A lease of the window with this number, in which all of it is counted.
    Window(u64),
    /// Its units come due one after the other, all of them within this time, in µs.
    Scheduled(Tick),
}

impl HeldLease {
    pub(super) const fn is_scheduled(&self) -> bool {
        matches!(self.kind, Kind::Scheduled(_))
    }

    /// Whether nothing of it is here, and the store tracks nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.units == 0 && self.size == 0
    }

    /// The units that are left, if it has not run out.
    pub(super) fn alive(&self, now: Tick) -> u64 {
        if now < self.until {
            self.units.into()
        } else {
            0
        }
    }

    /// The units that are left of those that are due.
    #[inline]
    pub(super) fn due(&self, now: Tick) -> u64 {
        let Kind::Scheduled(span) = self.kind else {
            return self.units.into();
        };
        // A scheduled lease lives for seconds, below 2^22 µs, and its units are below 2^31.
        let passed = now.saturating_sub(self.since);
        let size = u64::from(self.size);
        let due = passed.saturating_mul(size).checked_div(span);
        let due = due.map_or(size, |due| due.min(size));
        due.saturating_sub(u64::from(self.size - self.units))
    }

    /// When `cost` units more are due. `None` if there are not as many.
    pub(super) fn due_at(&self, cost: u64) -> Option<Tick> {
        let Kind::Scheduled(span) = self.kind else {
            return (cost <= self.units.into()).then_some(self.since);
        };
        let size = u64::from(self.size);
        let units = u64::from(self.size - self.units).checked_add(cost)?;
        if units > size {
            return None;
        }
        let time = units.saturating_mul(span).div_ceil(size.max(1));
        Some(self.since.saturating_add(time))
    }
}
