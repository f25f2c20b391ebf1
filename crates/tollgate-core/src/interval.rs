//! The time of one unit.

/// The time of one unit as a fraction of microseconds in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) numerator: u64,
    pub(crate) denominator: u64,
}

impl Interval {
    pub(crate) fn of(units: u64, period: u64) -> Self {
        let divisor = gcd(units, period).max(1);
        Self {
            numerator: period / divisor,
            denominator: units / divisor,
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
