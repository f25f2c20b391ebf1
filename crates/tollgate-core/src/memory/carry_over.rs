//! What becomes of the states of a rule whose quotas were replaced.

use std::time::Duration;

use crate::{
    algorithm::Algorithm,
    key::Fingerprint,
    memory::{
        hasher::Hasher,
        plan::{Plan, waiting},
    },
    on_change::OnChange,
    quota::Quota,
    rule::Rule,
    time::Tick,
};

/// What becomes of the states of a rule whose quotas were replaced, where that is more than to convert them when they are
/// next read.
#[derive(Debug)]
pub(super) struct CarryOver {
    pub(super) on_change: OnChange,
    /// The quotas before with those in their place, the rule's own first, then its plans by name.
    quotas: Vec<(Quota, Quota)>,
    /// How long requests waited at most before, and how long they do now.
    waited: Option<Duration>,
    pub(super) wait: Option<Duration>,
    /// Whether states may be of quotas that checks brought along, which have not changed.
    is_variable: bool,
}

/// What a client has used under one algorithm, for a state under another.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedUnits {
    pub(super) key: Fingerprint,
    pub(super) units: u64,
    /// The quota that they are charged to.
    pub(super) quota: Quota,
}

impl CarryOver {
    pub(super) fn new(before: &Rule, after: &Rule) -> Self {
        let plans = before.plan_names().filter_map(|name| {
            let number = |rule: &Rule| rule.plan_number(name);
            let (old, new) = (number(before)?, number(after)?);
            Some((*before.quota_of(old), *after.quota_of(new)))
        });
        let own = (*before.quota(), *after.quota());
        Self {
            on_change: after.change_answer(),
            quotas: std::iter::once(own).chain(plans).collect(),
            waited: before.at_most_wait(),
            wait: after.at_most_wait(),
            is_variable: before.has_variable_quota() && after.has_variable_quota(),
        }
    }

    /// Whether any quota differs.
    pub(super) fn has_changes(&self) -> bool {
        self.quotas.iter().any(|(before, after)| before != after)
    }

    /// The quotas that have given way to others, and whether their states are scaled; else they are forgotten.
    pub(super) fn replaced<A: Algorithm>(
        &self,
        hasher: &Hasher,
    ) -> impl Iterator<Item = (Plan<A>, bool)> {
        let replaced = self.quotas.iter().filter(|(before, after)| before != after);
        replaced.filter_map(|(before, after)| {
            let is_scaled = self.on_change == OnChange::Scale && !after.is_unlimited();
            Some((Plan::new(before, self.waited, hasher)?, is_scaled))
        })
    }

    /// The quota before and after that a state of this writer belongs to. `None`: it has not changed.
    fn of_writer<A: Algorithm>(&self, writer: &A) -> Option<(Quota, Quota)> {
        let wrote = |(before, _): &&(Quota, Quota)| {
            A::new(before)
                .map(|quota| waiting(quota, self.waited))
                .as_ref()
                == Some(writer)
        };
        let mut written = self.quotas.iter().filter(wrote).peekable();
        if written.peek().is_none() {
            if self.is_variable {
                return None;
            }
            // It was not read since quotas before these: it counts as under the rule's own.
            return self.quotas.first().copied().filter(|(a, b)| a != b);
        }
        written.find(|(before, after)| before != after).copied()
    }

    /// The state under the changed quotas of the same algorithm, and which of them. `None`: it stays as it is.
    pub(super) fn scaled<A: Algorithm>(
        &self,
        writer: &Plan<A>,
        state: &A::State,
        now: Tick,
    ) -> Option<(Quota, A::State)> {
        let (before, after) = self.of_writer(&writer.quota)?;
        let quota = A::new(&after)?;
        let mut scaled = A::State::default();
        if self.on_change == OnChange::Scale {
            let units = scaled_units(&before, &after, writer, state, now);
            quota.take(&mut scaled, now, units);
        }
        Some((after, scaled))
    }

    /// What a state counts for under another algorithm.
    pub(super) fn units<A: Algorithm>(
        &self,
        key: Fingerprint,
        writer: &Plan<A>,
        state: &A::State,
        now: Tick,
    ) -> Option<UsedUnits> {
        let is_limited = |(_, after): &&(Quota, Quota)| !after.is_unlimited();
        let of_writer = self.of_writer(&writer.quota);
        let (before, quota) = of_writer
            .as_ref()
            .filter(is_limited)
            .or_else(|| self.quotas.iter().find(is_limited))?;
        let units = match self.on_change {
            OnChange::Keep => used(&writer.quota, writer.limit, state, now).min(quota.limit()),
            OnChange::Scale => scaled_units(before, quota, writer, state, now),
            OnChange::Reset => 0,
        };
        let quota = *quota;
        (units > 0).then_some(UsedUnits { key, units, quota })
    }
}

/// What a state counts for when its used units are scaled from one quota to another.
fn scaled_units<A: Algorithm>(
    before: &Quota,
    after: &Quota,
    writer: &Plan<A>,
    state: &A::State,
    now: Tick,
) -> u64 {
    let Some(quota) = A::new(before) else {
        return 0;
    };
    let state = quota.convert(&writer.quota, state, now);
    let used = used(&quota, before.limit(), &state, now);
    scale(used, before.limit(), after.limit())
}

/// The units that a state counts, parts of a unit as a whole one.
fn used<A: Algorithm>(quota: &A, limit: u64, state: &A::State, now: Tick) -> u64 {
    limit.saturating_sub(quota.assess(state, now, 0).remaining)
}

/// The same part of another limit, rounded up.
fn scale(used: u64, before: u64, after: u64) -> u64 {
    let product = u128::from(used) * u128::from(after);
    let units = product.div_ceil(u128::from(before.max(1)));
    // It is at most `after` where `used` is at most `before`.
    u64::try_from(units).map_or(after, |units| units.min(after))
}

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_limit_is_scaled_with_it_and_rounded_up() {
        for (used, before, after, scaled) in [
            (0, 10, 20, 0),
            (5, 10, 20, 10),
            (1, 10, 1, 1),
            (1, 3, 10, 4),
            (10, 10, 7, 7),
            (12, 10, 7, 7),
            (u64::MAX, 1, u64::MAX, u64::MAX),
        ] {
            assert_eq!(scale(used, before, after), scaled, "{used} of {before}");
        }
    }
}
