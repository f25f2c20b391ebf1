//! The numbers of the quotas, for those that take other types than ours.

use std::time::Duration;

use tollgate_benches::check::{LASTING_BURST, LASTING_INTERVAL};

/// A unit each so often, and the most at once.
pub(crate) type Numbers = (Duration, u32);

/// The numbers of [`WIDE`](tollgate_benches::check::WIDE).
pub(crate) const WIDE_NUMBERS: Numbers = (Duration::from_micros(100), 4_000_000_000);
/// The numbers of [`TIGHT`](tollgate_benches::check::TIGHT).
pub(crate) const TIGHT_NUMBERS: Numbers = (Duration::from_secs(3_600), 1);
/// The numbers of [`LASTING`](tollgate_benches::check::LASTING).
pub(crate) const LASTING_NUMBERS: Numbers = (LASTING_INTERVAL, LASTING_BURST);
