//! What clients have used of a rule whose algorithm changes. Where only the numbers change, there is nothing to do: states are
//! converted when they are next read.

use std::time::Duration;

use crate::{
    algorithm::Algorithm,
    key::Fingerprint,
    memory::plan::{Plan, counted},
    quota::Quota,
    rule::Rule,
    time::Tick,
};

/// The quotas of a rule, and those of another algorithm in their place.
#[derive(Debug)]
pub(super) struct CarryOver {
    /// The rule's own first, then its plans by name.
    quotas: Vec<(Quota, Quota)>,
    /// How long requests waited at most before.
    waited: Option<Duration>,
    /// How many units may be owed, before and now.
    debts: (u64, u64),
}

/// What a client has used under one algorithm, for a state under another.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedUnits {
    pub(super) key: Fingerprint,
    pub(super) units: u64,
    /// The quota that they are charged to.
    pub(super) quota: Quota,
    /// How many units of it may be owed.
    pub(super) debt: u64,
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
            quotas: std::iter::once(own).chain(plans).collect(),
            waited: before.at_most_wait(),
            debts: (before.debt_of(), after.debt_of()),
        }
    }

    /// What a state counts for, parts of a unit as a whole one. It is charged to the quota in the place of the one that wrote it;
    /// where that is not known, or has no limit now, to the first that has one.
    pub(super) fn units<A: Algorithm>(
        &self,
        key: Fingerprint,
        writer: &Plan<A>,
        state: &A::State,
        now: Tick,
    ) -> Option<UsedUnits> {
        let wrote = |(before, _): &&(Quota, Quota)| {
            counted(before, self.waited, self.debts.0).as_ref() == Some(&writer.quota)
        };
        let is_limited = |(_, after): &&(Quota, Quota)| after.has_state();
        let mut known = self.quotas.iter().filter(wrote).filter(is_limited);
        let (_, quota) = known
            .next()
            .or_else(|| self.quotas.iter().find(is_limited))?;
        let left = writer.quota.assess(state, now, 0).remaining;
        let used = writer.limit.saturating_sub(left).min(quota.limit());
        let units = used + writer.quota.debt(state, now);
        let (quota, debt) = (*quota, self.debts.1);
        (units > 0).then_some(UsedUnits {
            key,
            units,
            quota,
            debt,
        })
    }
}
