//! Replies of the script as decisions.

use smallvec::SmallVec;
use tollgate_core::{
    Check, Decision, Outcome, Retry, RuleSet, Source, Tick, Verdict, algorithm::Assessment,
};

use tollgate_prefilter::Grant;

use crate::{
    call::RequestLayout,
    encode::Encoder,
    refusal::Refusal,
    rule_args::{ENFORCED, NONE, RuleArgs, THRESHOLD},
};

const FITS: i64 = -1;
const NEVER: i64 = -2;
/// Nothing was done.
const FAILED: i64 = -3;
/// From here down the check fits; the difference to this number is the µs after which it fits again.
const FITS_AGAIN: i64 = -4;

/// The numbers of an answer to a check.
const NUMBERS: usize = 3;

/// What the script answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    at: Tick,
    /// The time, and then three for each check. Those of a usual request need no allocation.
    integers: SmallVec<[i64; 4]>,
}

/// Whether a check made a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewKey {
    /// It existed, or the check creates none.
    No,
    /// It was created.
    Made,
    /// It did not exist, and the check was decided against the overflow bucket.
    Refused,
}

/// What became of a check of a rule with a cap on new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewKeyReply {
    /// The rule's place.
    pub rule: u16,
    /// Whether it might have made a key.
    pub may_make: bool,
    /// Whether it did.
    pub new_key: NewKey,
}

impl Reply {
    /// The integers of a reply to a call of `checks` checks. `None` if they are not one: another script answered.
    #[must_use]
    pub(crate) fn new(checks: usize, integers: impl IntoIterator<Item = i64>) -> Option<Self> {
        let integers: SmallVec<_> = integers.into_iter().collect();
        let at = u64::try_from(*integers.first()?).ok()?;
        (integers.len() == 1 + checks * NUMBERS).then_some(Self { at, integers })
    }

    /// The time of the decisions.
    #[must_use]
    pub(crate) fn at(&self) -> Tick {
        self.at
    }

    /// The decision about one of the requests of the call.
    pub(crate) fn decision(
        &self,
        layout: &RequestLayout,
        checks: &[Check],
        rules: &RuleSet,
    ) -> Decision {
        let verdicts = checks.iter().zip(layout.places()).map(|(check, place)| {
            let (rule, plan) = (check.rule(), check.plan());
            let Some(place) = place else {
                return Verdict::unanswered(rule, plan, Outcome::NotDecided);
            };
            let mut capped = layout.capped.iter();
            let tells = capped.any(|capped| usize::from(capped.place) == place);
            match self.answer(place, tells) {
                Some(answer) => Verdict::new(rule, plan, answer, Source::Store),
                None => Verdict::unanswered(rule, plan, Outcome::Failed),
            }
        });
        Decision::new(self.at, verdicts, |verdict| rules.enforces(verdict.rule()))
    }

    /// What became of the checks of one request that might have made keys. None of a check that failed: whatever it had
    /// leave for may be used.
    pub(crate) fn new_keys(&self, layout: &RequestLayout) -> impl Iterator<Item = NewKeyReply> {
        layout.capped.iter().filter_map(|capped| {
            let [retry, remaining, reset_after] = self.of(usize::from(capped.place))?;
            let new_key = match () {
                () if retry == FAILED => return None,
                () if remaining < 0 => NewKey::Refused,
                () if reset_after < 0 => NewKey::Made,
                () => NewKey::No,
            };
            Some(NewKeyReply {
                rule: capped.rule,
                may_make: capped.may_make,
                new_key,
            })
        })
    }

    /// The indices of the checks of a request that created keys: their units were taken, and nothing else was in use.
    ///
    /// A state without usage expires, so there was no key but for the rest of a millisecond, for the margin of a caller's
    /// clock, or where a refund has emptied sub-buckets. Of a rule with a cap the script has said so itself.
    pub(crate) fn created(
        &self,
        layout: &RequestLayout,
        checks: &[Check],
        encoder: &Encoder,
        rules: &RuleSet,
    ) -> impl Iterator<Item = usize> {
        let own = |index: usize| {
            let place = layout.place(index)?;
            // Checks on one state are one check.
            let is_first = (0..index).all(|other| layout.place(other) != Some(place));
            is_first.then_some(place)
        };
        let created = move |index: &usize| {
            let check = &checks[*index];
            let (Some(place), Some((rule_args, _))) = (own(*index), encoder.args_of(check)) else {
                return false;
            };
            let Some([retry, remaining, reset_after]) = self.of(place) else {
                return false;
            };
            if retry == FAILED
                || layout
                    .capped
                    .iter()
                    .any(|it| usize::from(it.place) == place)
            {
                return retry != FAILED && remaining >= 0 && reset_after < 0;
            }
            let same = (*index..checks.len()).filter(|other| layout.place(*other) == Some(place));
            let cost = same.fold(0, |sum: u64, other| {
                sum.saturating_add(checks[other].cost())
            });
            let quota =
                rules.rules()[usize::from(check.rule())].quota_of(usize::from(check.plan()));
            let level = u64::try_from(remaining)
                .ok()
                .and_then(|left| left.checked_add(cost));
            cost > 0
                && (retry == FITS || retry <= FITS_AGAIN)
                && level == Some(quota.limit())
                && self.was_written(rule_args, layout, checks, encoder)
        };
        (0..checks.len()).filter(created)
    }

    /// Whether the units of a check that fits were taken, with these checks of its request.
    fn was_written(
        &self,
        rule_args: &RuleArgs,
        layout: &RequestLayout,
        checks: &[Check],
        encoder: &Encoder,
    ) -> bool {
        let denies = |(index, check): (usize, &Check)| {
            let (rule_args, _) = encoder.args_of(check)?;
            let [retry, ..] = self.of(layout.place(index)?)?;
            let denies = rule_args.role == ENFORCED && (retry >= 0 || retry == NEVER);
            denies.then_some(check.rule())
        };
        let mut denying = checks.iter().enumerate().filter_map(denies);
        match rule_args.role {
            THRESHOLD => false,
            ENFORCED => denying.next().is_none(),
            // A shadow counts as if it were the only rule, or as if it replaced its rule.
            _ => rule_args.instead == NONE || denying.all(|rule| rule == rule_args.instead),
        }
    }

    /// The lease that was granted in answer to the query at a place; `Some(None)`: none was, and `None`: it failed.
    #[must_use]
    pub(crate) fn grant(&self, place: u16) -> Option<Option<Grant>> {
        let [kind, units, more] = self.of(usize::from(place))?;
        let units = u64::try_from(units).ok()?;
        let more = u64::try_from(more).ok()?;
        match kind {
            0 => Some(None),
            1 => Some(Some(Grant::tracked(units, more))),
            2 => Some(Some(Grant::scheduled(units, more))),
            _ => None,
        }
    }

    /// Whether one of the states at these places, which were to be forgotten, was there.
    #[must_use]
    pub(crate) fn was_kept(&self, mut places: std::ops::Range<usize>) -> bool {
        let was_there = |[done, kept, _]: [i64; 3]| done == FITS && kept > 0;
        places.any(|place| self.of(place).is_some_and(was_there))
    }

    /// What is left after the report at a place; `None`: it failed.
    #[must_use]
    pub(crate) fn left(&self, place: u16) -> Option<u64> {
        let [fits, left, _] = self.of(usize::from(place))?;
        u64::try_from(left).ok().filter(|_| fits >= FITS)
    }

    /// The same, and in how many µs the state is fresh.
    #[must_use]
    pub(crate) fn reported(&self, place: u16) -> Option<(u64, Tick)> {
        let [_, _, reset_after] = self.of(usize::from(place))?;
        Some((self.left(place)?, u64::try_from(reset_after).unwrap_or(0)))
    }

    /// Why the server refused the check at a place, if it did. Then nothing was done for it.
    #[must_use]
    pub(crate) fn refusal(&self, place: u16) -> Option<Refusal> {
        let [retry, number, _] = self.of(usize::from(place))?;
        (retry == FAILED).then(|| Refusal::of(number))?
    }

    /// The first refusal of any check of the call.
    #[must_use]
    pub(crate) fn first_refusal(&self) -> Option<Refusal> {
        let answers = self.integers.get(1..)?.chunks_exact(NUMBERS);
        let mut failed = answers.filter(|answer| answer[0] == FAILED);
        failed.find_map(|answer| Refusal::of(answer[1]))
    }

    /// The script's answer to the check at an index.
    fn of(&self, place: usize) -> Option<[i64; 3]> {
        let start = 1 + place * NUMBERS;
        self.integers.get(start..start + NUMBERS)?.try_into().ok()
    }

    /// The answer to a check; `None` where it failed.
    fn answer(&self, place: usize, tells: bool) -> Option<Assessment> {
        let [retry, mut remaining, mut reset_after] = self.of(place)?;
        if tells {
            // -1 - n is the complement of n.
            remaining = if remaining < 0 { !remaining } else { remaining };
            reset_after = if reset_after < 0 {
                !reset_after
            } else {
                reset_after
            };
        }
        Some(Assessment::new(
            retry == FITS || retry <= FITS_AGAIN,
            u64::try_from(remaining).ok()?,
            u64::try_from(reset_after).ok()?,
            match retry {
                FITS => Retry::Now,
                NEVER => Retry::Never,
                FAILED => return None,
                again if again <= FITS_AGAIN => Retry::after_micros(FITS_AGAIN.abs_diff(again)),
                after => Retry::after_micros(u64::try_from(after).ok()?),
            },
        ))
    }
}
