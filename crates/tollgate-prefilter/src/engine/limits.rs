//! The limits of a rule set.

use std::sync::Arc;

use tollgate_core::{Check, Tick};

use crate::engine::limit::Limit;

/// The limits of a rule set, by rule and plan. `None`: nothing that a process may decide locally, because the rule is not
/// enforced or the quota has no limit.
#[derive(Debug)]
pub(crate) struct Limits(pub(crate) Box<[Plans]>);

/// The limits of a rule, by plan.
pub(crate) type Plans = Box<[Option<Arc<Limit>>]>;

impl Limits {
    /// The limit of a check; `None` also where it brings a quota along, which the store decides.
    #[inline]
    pub(crate) fn of(&self, check: &Check) -> Option<&Limit> {
        let plans = self.0.get(usize::from(check.rule()))?;
        plans.get(usize::from(check.plan()))?.as_deref()
    }

    /// All limits, with a rule and plan that each belongs to.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, u16, &Arc<Limit>)> {
        // A rule set has fewer than 65 536 rules, and a rule fewer plans.
        (0_u16..).zip(&self.0).flat_map(|(rule, plans)| {
            let plans = (0_u16..).zip(plans);
            plans.filter_map(move |(plan, limit)| Some((rule, plan, limit.as_ref()?)))
        })
    }

    /// Those that are leased.
    pub(crate) fn leased(&self) -> impl Iterator<Item = (u16, u16, &Arc<Limit>)> {
        self.iter()
            .filter(|(.., limit)| limit.lease_terms().is_some())
    }

    /// The limits of a rule, with the number of a plan that each belongs to.
    pub(crate) fn of_rule(&self, rule: u16) -> impl Iterator<Item = (u16, &Limit)> {
        let limits = self.iter().filter(move |(of, ..)| *of == rule);
        limits.map(|(_, plan, limit)| (plan, &**limit))
    }

    /// How often they need maintenance, in µs; `None`: never.
    pub(crate) fn pause(&self) -> Option<Tick> {
        self.iter().filter_map(|(_, _, limit)| limit.pause()).min()
    }
}

/// Whether two checks are on one state.
pub(crate) fn has_twins(checks: &[Check]) -> bool {
    checks.iter().enumerate().any(|(index, check)| {
        let mut before = checks[..index].iter();
        before.any(|other| other.rule() == check.rule() && other.key() == check.key())
    })
}
