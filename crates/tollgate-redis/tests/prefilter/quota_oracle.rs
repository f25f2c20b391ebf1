//! Whether what was admitted is within a quota.

use tollgate_core::{AlgorithmKind, Quota};

use crate::admission::Admission;

/// What may be admitted beside the quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    /// Units above the limit.
    pub(crate) beyond: u64,
    /// How often all of it was there anew.
    pub(crate) losses: u64,
}

impl Allowance {
    fn most(self, limit: u64) -> u64 {
        (limit + self.beyond) * (1 + self.losses)
    }
}

/// A window ends by the server's clock, which was read beside that of the processes; off by no more than this, in µs.
const SLACK: u64 = 2_000;

/// By how many units more than the quota allows was admitted to one key; 0 is what is promised.
///
/// `wall_ahead` leads from the times of admissions to those of the server.
pub(crate) fn above(
    quota: &Quota,
    admissions: &[Admission],
    allowance: Allowance,
    wall_ahead: u64,
) -> u64 {
    match quota.algorithm() {
        AlgorithmKind::FixedWindow | AlgorithmKind::SlidingWindow => {
            above_window(quota, admissions, allowance, wall_ahead)
        }
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => {
            above_bucket(quota, admissions, allowance)
        }
        other => panic!("there is no oracle of a {other}"),
    }
}

/// In any time [a, b] at most the burst and what comes back in it, of what certainly lies in it.
///
/// An admission lies there certainly if a is not after its earliest time, nor b before its latest. Wherever in between it
/// was, a bucket that keeps its promise keeps it of these too. Only the times at which something comes in need a look.
fn above_bucket(quota: &Quota, admissions: &[Admission], allowance: Allowance) -> u64 {
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
    let most = i128::from(allowance.most(quota.limit())) * period;
    let mut since = Since::new(starts.len());
    let mut above = 0;
    for (n, admission) in by_latest.iter().enumerate() {
        let units = i128::from(admission.units) * period;
        since.put(place[n], units, i128::from(admission.earliest) * rate);
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

/// In each window at most the limit, of what certainly lies in it; and of a sliding one, what the window before still weighs
/// at the latest time of an admission is not there.
fn above_window(
    quota: &Quota,
    admissions: &[Admission],
    allowance: Allowance,
    wall_ahead: u64,
) -> u64 {
    let length = quota.period().as_micros() as u64;
    let window = |time: u64| (time + wall_ahead) / length;
    let mut sure: Vec<_> = admissions.to_vec();
    sure.retain(|it| window(it.earliest - SLACK) == window(it.latest + SLACK));
    sure.sort_by_key(|it| it.latest);
    let in_window = |number: u64| {
        let its = sure.iter().filter(move |it| window(it.latest) == number);
        its.map(|it| it.units).sum::<u64>()
    };
    let slides = quota.algorithm() == AlgorithmKind::SlidingWindow;
    let most = allowance.most(quota.limit());
    let mut windows: Vec<u64> = sure.iter().map(|it| window(it.latest)).collect();
    windows.dedup();
    let mut above = 0;
    for number in windows {
        above = above.max(in_window(number).saturating_sub(most));
        if !slides || number == 0 {
            continue;
        }
        let before = u128::from(in_window(number - 1));
        let its: Vec<_> = sure
            .iter()
            .filter(|it| window(it.latest) == number)
            .collect();
        let (mut done, mut used) = (0, 0);
        let mut by_earliest = its.clone();
        by_earliest.sort_by_key(|it| it.earliest);
        for it in by_earliest {
            // What was answered before this one was asked for.
            while its
                .get(done)
                .is_some_and(|other| other.latest < it.earliest)
            {
                used += its[done].units;
                done += 1;
            }
            let passed = (it.latest + SLACK + wall_ahead) % length;
            let weighs = before * u128::from(length - passed) / u128::from(length);
            let all = used + it.units + weighs as u64;
            above = above.max(all.saturating_sub(most + 1));
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use tollgate_core::SECOND;

    use super::*;

    fn at(earliest: u64, latest: u64, units: u64) -> Admission {
        Admission {
            rule: 0,
            key: 0,
            units,
            earliest,
            latest,
        }
    }

    /// Ten at once, and one every 100 ms.
    fn bucket(admissions: &[Admission]) -> u64 {
        let quota = Quota::token_bucket(10).refill(10, SECOND);
        above(&quota, admissions, Allowance::default(), 0)
    }

    #[test]
    fn one_unit_too_many_is_seen_wherever_it_is() {
        for place in [0, 1, 37, 99] {
            let mut all = vec![at(1_000_000, 1_000_000, 10)];
            all.extend((1..100).map(|n| at(1_000_000 + n * 100_000, 1_000_000 + n * 100_000, 1)));
            all[place].units += 1;
            assert_eq!(bucket(&all), 1, "{place}");
        }
    }

    #[test]
    fn a_window_that_is_full_is_not_above_and_one_unit_more_is() {
        let quota = Quota::fixed_window(10, SECOND);
        let mut all = vec![
            at(5_100_000, 5_200_000, 10),
            at(5_999_000, 6_000_000, 9),
            at(6_100_000, 6_200_000, 10),
        ];
        assert_eq!(above(&quota, &all, Allowance::default(), 0), 0);
        all.push(at(6_300_000, 6_300_000, 1));
        assert_eq!(above(&quota, &all, Allowance::default(), 0), 1);
    }

    #[test]
    fn a_sliding_window_is_above_while_the_one_before_weighs() {
        let quota = Quota::sliding_window(100, SECOND);
        let all = [at(5_100_000, 5_200_000, 100), at(6_500_000, 6_500_000, 50)];
        assert_eq!(above(&quota, &all, Allowance::default(), 0), 0);
        let all = [at(5_100_000, 5_200_000, 100), at(6_500_000, 6_500_000, 60)];
        assert!(above(&quota, &all, Allowance::default(), 0) > 5);
    }
}
