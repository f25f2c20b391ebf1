//! A lot in a process's hands.

use tollgate_core::Tick;

/// A lot as a process holds it. Times are by the process's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// What a store lends is counted in 32 bits.
    pub(super) units: u32,
    pub(super) size: u32,
    /// When it came, or when the units of a segment begin to come due. What was spent before was of another.
    pub(super) since: Tick,
    pub(super) until: Tick,
    pub(super) kind: Kind,
}

/// What is known of it beside its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By what the store tracks it.
    Parked(u64),
    Transit,
    /// Its units come due one after the other, all of them within so many µs.
    Segment(Tick),
}

impl Held {
    pub(super) const fn is_segment(&self) -> bool {
        matches!(self.kind, Kind::Segment(_))
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
        let Kind::Segment(span) = self.kind else {
            return self.units.into();
        };
        // A segment lives for seconds, below 2^22 µs, and its units are below 2^31.
        let passed = now.saturating_sub(self.since);
        let size = u64::from(self.size);
        let due = passed.saturating_mul(size).checked_div(span);
        let due = due.map_or(size, |due| due.min(size));
        due.saturating_sub(u64::from(self.size - self.units))
    }

    /// When so many units more are due. `None` if there are not as many.
    pub(super) fn due_at(&self, cost: u64) -> Option<Tick> {
        let size = u64::from(self.size);
        let units = u64::from(self.size - self.units).checked_add(cost)?;
        if units > size {
            return None;
        }
        let Kind::Segment(span) = self.kind else {
            return Some(self.since);
        };
        let time = units.saturating_mul(span).div_ceil(size.max(1));
        Some(self.since.saturating_add(time))
    }
}
