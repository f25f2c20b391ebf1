//! The quotas of a rule set, and how each is counted.

use tollgate_core::{Check, Consistency, Quota, RuleSet, Tick};
use tollgate_prefilter::{DowngradeReason, Effective};

use crate::prefilter::{deny::Denials, windows::Windows};

/// By rule and plan; `None` is without a limit, or nothing that is answered here.
#[derive(Debug)]
pub(super) struct Plans(Box<[Box<[Option<Plan>]>]>);

/// A quota of a rule.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) quota: Quota,
    pub(super) denials: Denials,
    pub(super) effective: Effective,
    /// If it is granted, and is not a bucket.
    pub(super) windows: Option<Windows>,
}

impl Plans {
    /// Those of a rule set. `exact` says why the store cannot count a rule otherwise.
    pub(super) fn new(rules: &RuleSet, exact: impl Fn(usize) -> Option<&'static str>) -> Self {
        let plans = rules
            .rules()
            .iter()
            .enumerate()
            .map(|(place, rule)| {
                let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
                let effective = |quota: &Quota| match exact(place) {
                    Some(why) if rule.consistency_of() != Consistency::Exact => {
                        Effective::Exact(Some(DowngradeReason::Store(why)))
                    }
                    _ => Effective::new(quota, rule.consistency_of()),
                };
                let plan = |quota: &Quota| {
                    (rules.enforces(place) && !quota.is_unlimited()).then(|| {
                        let effective = effective(quota);
                        Plan {
                            quota: *quota,
                            denials: Denials::of(quota, rule.quotas()),
                            windows: Windows::new(quota, &effective),
                            effective,
                        }
                    })
                };
                quotas.map(plan).collect()
            })
            .collect();
        Self(plans)
    }

    /// Whether any quota is counted so.
    pub(super) fn any(&self, which: impl Fn(&Effective) -> bool) -> bool {
        self.limited().any(|plan| which(&plan.effective))
    }

    /// The quota of a check.
    #[inline]
    pub(super) fn of(&self, check: &Check) -> Option<&Plan> {
        let plans = self.0.get(usize::from(check.rule()))?;
        let plan = plans.get(usize::from(check.plan()));
        plan.or_else(|| plans.first())?.as_ref()
    }

    /// How the quotas of a rule are counted.
    pub(super) fn effective(&self, rule: usize) -> impl Iterator<Item = Option<Effective>> {
        let plans = self.0.get(rule).into_iter().flatten();
        plans.map(|plan| plan.as_ref().map(|plan| plan.effective))
    }

    /// The number of quotas of a rule.
    pub(super) fn count(&self, rule: u16) -> usize {
        self.0.get(usize::from(rule)).map_or(0, |plans| plans.len())
    }

    /// How often it is to be looked after what is held and not reported; `None`: there is nothing to look after.
    pub(super) fn pause(&self) -> Option<Tick> {
        const LEASES: Tick = 1_000_000;
        const SHORTEST: Tick = 5_000;
        let pauses = self.limited().filter_map(|plan| match &plan.effective {
            Effective::Leased(_) => Some(LEASES),
            Effective::Eventual(terms) => Some((terms.interval() / 2).clamp(SHORTEST, LEASES)),
            _ => None,
        });
        pauses.min()
    }

    fn limited(&self) -> impl Iterator<Item = &Plan> {
        self.0.iter().flat_map(|plans| plans.iter().flatten())
    }
}
