//! Whether what was admitted is within a quota.

use tollgate_core::Quota;

use crate::admission::Admission;

/// What may be admitted beside the quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// Units above the limit.
    pub(crate) beyond: u64,
    /// How often all of it was there anew.
    pub(crate) losses: u64,
}

/// By how many units more than a bucket allows was admitted; 0 is what is promised: in any time [a, b] at most the burst and what
/// comes back in it, of what certainly lies in it.
///
/// An admission lies there certainly if a is not after its earliest time, nor b before its latest. Wherever in between it
/// was, a bucket that keeps its promise keeps it of these too. Only the times at which something comes in need a look.
pub(crate) fn above(quota: &Quota, admissions: &[Admission], allowance: Allowance) -> u64 {
    let (rate, period) = (i128::from(quota.rate()), quota.period().as_micros() as i128);
    let mut by_latest = admissions.to_vec();
    by_latest.sort_by_key(|admission| admission.latest);
    let mut starts: Vec<(u64, usize)> = (0..)
        .zip(&by_latest)
        .map(|(n, it)| (it.earliest, n))
        .collect();
    starts.sort_unstable();
    let mut place = vec![0; starts.len()];
    for (start, (_, n)) in starts.iter().enumerate() {
        place[*n] = start;
    }
    let most = i128::from((quota.limit() + allowance.beyond) * (1 + allowance.losses)) * period;
    let mut since = Since::new(starts.len());
    let mut above = 0;
    for (n, admission) in by_latest.iter().enumerate() {
        since.put(place[n], period, i128::from(admission.earliest) * rate);
        // The server reads its clock in whole µs.
        let till = i128::from(admission.latest + 1) * rate;
        above = above.max(since.most - till - most);
    }
    u64::try_from((above + period - 1) / period).unwrap_or(u64::MAX)
}

/// For each start a, what was admitted since and certainly after it, and the most of it plus `a · rate`.
struct Since {
    /// The sum of a part of the starts, and the most from one of them to the end of the part.
    parts: Vec<Option<(i128, i128)>>,
    starts: usize,
    most: i128,
}

impl Since {
    fn new(starts: usize) -> Self {
        let starts = starts.next_power_of_two();
        Self {
            parts: vec![None; 2 * starts],
            starts,
            most: 0,
        }
    }

    fn put(&mut self, place: usize, units: i128, start: i128) {
        let mut part = self.starts + place;
        self.parts[part] = Some((units, units + start));
        while part > 1 {
            part /= 2;
            self.parts[part] = match (self.parts[2 * part], self.parts[2 * part + 1]) {
                (Some((one, most)), Some((other, behind))) => {
                    Some((one + other, behind.max(most + other)))
                }
                (one, other) => one.or(other),
            };
        }
        self.most = self.parts[1].map_or(0, |(_, most)| most);
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::SECOND;

    use super::*;

    /// Ten at once, and one every 100 ms.
    #[test]
    fn one_unit_too_many_is_seen_wherever_it_is() {
        let quota = Quota::token_bucket(10).refill(10, SECOND);
        let at = |time| Admission {
            earliest: time,
            latest: time,
        };
        let mut all = vec![at(1_000_000); 10];
        all.extend((1..100).map(|n| at(1_000_000 + n * 100_000)));
        let above = |all: &[Admission]| above(&quota, all, Allowance::default());
        assert_eq!(above(&all), 0);
        for place in [0, 1, 37, 108] {
            let more = [&all[..], &all[place..=place]].concat();
            assert_eq!(above(&more), 1, "{place}");
        }
    }
}
