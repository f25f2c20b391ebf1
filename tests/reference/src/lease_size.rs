//! How much is on lease, and how large a lease is.

use tollgate_core::Tick;
use tollgate_prefilter::LeaseTerms;

/// Terms of tracked leases of a bucket: at most `reserve` units are on lease at once.
#[must_use]
pub const fn lease_terms(reserve: u64, tracked_life: Tick) -> LeaseTerms {
    LeaseTerms {
        reserve,
        tracked_life,
        window: None,
        schedule: None,
    }
}

/// How large leases are.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSize {
    /// A lease is at most this part of what is left, and of what may still be on lease: leases become small as either runs out, and near
    /// the limit every unit is requested.
    pub share: u64,
    /// A smaller one is not granted: a lease of one unit spares no call.
    pub least: u64,
}

impl Default for LeaseSize {
    /// That of the scripts.
    fn default() -> Self {
        Self { share: 4, least: 2 }
    }
}

impl LeaseSize {
    /// The size of a lease if `wanted` units are requested, `level` are left and `room` may still be on lease; 0: none.
    #[must_use]
    pub fn units(&self, wanted: u64, level: u64, room: u64) -> u64 {
        let units = wanted.min(level / self.share);
        let units = units.min(room.div_ceil(self.share));
        if units < self.least { 0 } else { units }
    }
}

#[cfg(test)]
mod tests {
    use super::LeaseSize;

    #[test]
    fn leases_become_small_as_either_runs_out() {
        let size = LeaseSize::default();
        assert_eq!(size.units(1_000, 1_000, 100), 25);
        assert_eq!(size.units(1_000, 40, 100), 10);
        assert_eq!(size.units(7, 1_000, 100), 7);
        assert_eq!(size.units(1, 1_000, 100), 0);
        assert_eq!(size.units(1_000, 7, 100), 0);
        assert_eq!(size.units(1_000, 1_000, 4), 0);
    }
}
