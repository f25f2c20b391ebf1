//! Which quotas do not go together, and why.

use std::time::Duration;

use crate::{algorithm_kind::AlgorithmKind, quota::Quota};

/// The longest time for which a state is kept: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Why a plan cannot share a state with another quota of its rule.
pub(crate) fn plan_conflict(plan: &Quota, other: &Quota) -> Option<String> {
    if !plan.has_state() {
        return None;
    }
    if plan.algorithm() != other.algorithm() {
        return Some(format!(
            "is a {} and the rule a {}; plans share one state, so take one algorithm",
            name(plan),
            name(other)
        ));
    }
    if plan.algorithm().is_bucket() || plan.reads_state_of(other) {
        return None;
    }
    #[cfg(feature = "calendar")]
    if let (Some(of_plan), Some(of_other)) = (plan.calendar_of(), other.calendar_of()) {
        // Each tenant has its own days: what was used stays in the window that is in force.
        let [one, other] = [of_plan, of_other].map(|calendar| calendar.unit().name());
        return (one != other).then(|| {
            format!(
                "counts by the {one}, and the rule by the {other}; plans share one state, whose number, time zone and first day may \
                 differ and whose unit may not: write \"{}/{other}\", or take a rule of its own for these requests: Rule::new with \
                 another name",
                plan.limit()
            )
        });
    }
    let remedy = "plans share one state, so take the same for both, or a rule of its own for these requests: \
                  Rule::new with another name";
    Some(
        if plan.calendar_of().is_some() || other.calendar_of().is_some() {
            format!(
                "is {plan}, and the rule {other}: what is charged to the longer would be forgotten by the shorter; {remedy}"
            )
        } else if plan.period() == other.period() {
            format!(
                "is counted in {} sub-buckets, and the rule in {}; {remedy}",
                plan.bucket_count(),
                other.bucket_count()
            )
        } else {
            format!(
                "counts in {:?}, and the rule in {:?}: what is charged to the longer would be forgotten by the shorter; {remedy}",
                plan.period(),
                other.period()
            )
        },
    )
}

/// What its algorithm is called in a text.
fn name(quota: &Quota) -> &'static str {
    match quota.calendar_of() {
        Some(_) => "calendar",
        None => quota.algorithm().name(),
    }
}

/// Why requests cannot wait for a quota.
pub(crate) fn wait_conflict(quota: &Quota, at_most: Duration) -> Option<String> {
    let algorithm = quota.algorithm();
    if !quota.has_state() || algorithm == AlgorithmKind::Concurrent {
        return None;
    }
    if !algorithm.is_bucket() {
        return Some(format!(
            "{} has no order in which requests could wait: its units come back many at a time; take \
             Quota::leaky_bucket, Quota::gcra or Quota::token_bucket to delay requests, or leave wait() out to deny them",
            name(quota)
        ));
    }
    if u128::from(quota.rate()) > quota.period().as_micros() {
        return Some(format!(
            "{quota:?} is faster than a unit each microsecond, in which time is counted, so there is nothing to wait for; leave \
             wait() out, or count in larger units"
        ));
    }
    (quota.window().saturating_add(at_most) > LONGEST).then(|| {
        format!(
            "filling {quota:?} up takes {:?}, and a wait of {at_most:?} beyond that is more than a state can represent \
             ({LONGEST:?}); take a smaller burst or a shorter wait",
            quota.window()
        )
    })
}

/// Why a key cannot owe `at_most` units of a quota.
pub(crate) fn debt_conflict(quota: &Quota, at_most: u64) -> Option<String> {
    use AlgorithmKind as A;
    let most = quota.limit().saturating_add(at_most);
    let too_large = |why: &str| {
        Some(format!(
            "a debt of {at_most} units is too large for {quota:?}: {why}"
        ))
    };
    match quota.algorithm() {
        A::Unlimited | A::None => None,
        A::SlidingLog | A::SlidingBuckets => Some(format!(
            "a {} forgets each unit a period after it was taken, so nothing is paid back; take Quota::sliding_window or a bucket",
            quota.algorithm()
        )),
        A::Concurrent => Some(
            "a limit on how many run at once has no costs that could be owed; give the debt to a rule of a rate, such as \
             Quota::gcra"
                .into(),
        ),
        A::TokenBucket | A::Gcra | A::LeakyBucket => {
            let error = quota.burst(most).validate().err()?;
            too_large(&format!("with it, {error}"))
        }
        A::SlidingWindow if most > u64::from(u32::MAX) => {
            too_large("with the limit it is above 4294967295; count in larger units, or take Quota::fixed_window")
        }
        A::SlidingWindow | A::FixedWindow => {
            let windows = u128::from(at_most / quota.limit().max(1)) + 2;
            if quota.calendar_of().is_some() && windows > 102 {
                return too_large("it is paid back window by window, and takes more than 100; take a smaller one");
            }
            (windows * quota.period().as_micros() > LONGEST.as_micros())
                .then(|| too_large("to pay it back takes more than 100 years; take a smaller one"))?
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{DAY, SECOND};

    #[test]
    fn requests_wait_for_at_most_a_unit_a_microsecond_and_within_a_hundred_years() {
        let tick = Duration::from_micros(1);
        let century = Quota::gcra(1, DAY).burst(36_600);
        for (quota, at_most, is_fine) in [
            (Quota::gcra(1_000_000, SECOND), SECOND, true),
            (Quota::gcra(1_000_001, SECOND), SECOND, false),
            (century, Duration::ZERO, true),
            (century, tick, false),
            (century.burst(36_599), DAY, true),
            (century.burst(36_599), DAY + tick, false),
            (Quota::concurrent(5), SECOND, true),
            (Quota::unlimited(), SECOND, true),
            (Quota::fixed_window(5, SECOND), SECOND, false),
        ] {
            let conflict = wait_conflict(&quota, at_most);
            assert_eq!(conflict.is_none(), is_fine, "{quota:?}: {conflict:?}");
        }
    }

    #[cfg(feature = "calendar")]
    #[test]
    fn plans_of_one_unit_have_days_of_their_own() {
        use crate::calendar::CalendarUnit::{Month, Year};
        let month = Quota::calendar(5, Month);
        let other = Quota::calendar(7, Month).zone("Asia/Tokyo").from_day(15);
        assert_eq!(plan_conflict(&other, &month), None);
        for (other, right) in [
            (Quota::calendar(7, Year), "7/month"),
            (Quota::fixed_window(7, 31 * DAY), "calendar 5/month"),
        ] {
            let conflict = plan_conflict(&other, &month).expect("a conflict");
            assert!(conflict.contains(right), "{conflict}");
        }
        let conflict = wait_conflict(&month, DAY).expect("a conflict");
        assert!(conflict.starts_with("calendar has no order"), "{conflict}");
    }
}
