//! The accuracy meter: a sampled share of keys is followed exactly, while the service runs.
//!
//! For each rule, a sampled key has a second state in Redis, the *reference*, with the same quota. The reference decides nothing:
//! it counts every admitted request, whether it fits or not, and answers whether a refused request would have fitted. So it
//! knows what an exact store that never fails would have known.
//!
//! Events are sent to the reference after the decision, in the order of the decisions and with their times. No request waits for
//! that. Events that cannot be sent are counted as dropped, and not sent later.
//!
//! Events of two processes may reach the reference in another order than they happened. So a decision that looks wrong is only
//! suspected. It is rechecked when the other events have arrived, and counts as wrong only if it still looks wrong, also without
//! the units that the reference is uncertain of.

mod audit;
pub(super) mod line;
pub(super) mod rechecks;
mod tolerance;
pub(super) mod verdict;

use std::{fmt, sync::Arc};

use tollgate_core::{
    Check, RuleError, RuleSet, Tick,
    store::{Receipt, Settlement},
};

use crate::{
    call::{Call, RequestLayout},
    encode::Encoder,
    keyspace::{Keyspace, Metered},
    observe::RuleCounts,
    store::meter::{
        audit::Audit,
        line::{Entry, Event, Line},
        rechecks::{MANY, Rechecks},
        tolerance::{For, Tolerance},
    },
};

/// Compares the decisions about sampled keys of a rule set with a reference.
pub(super) struct Meter {
    one_in: u64,
    encoder: Encoder,
    tolerance: Tolerance,
    /// By rule and plan; `None` is not followed.
    plans: Box<[Box<[Option<Plan>]>]>,
    pub(super) line: Line,
    pub(super) rechecks: Rechecks,
}

/// A quota that is followed.
pub(super) struct Plan {
    pub(super) audit: Audit,
    counts: Arc<RuleCounts>,
}

/// Where the replies to an event are.
pub(super) enum Placed {
    Judged(RequestLayout, Option<u16>),
    /// Nothing is judged.
    Untold,
    /// It did not fit into the call.
    Nowhere,
}

impl Meter {
    /// For one key in `one_in` of a rule set. `counts` has what is counted of each quota, `None` where a rule has states
    /// that a client alone does not find.
    pub(super) fn new(
        one_in: u64,
        rules: &RuleSet,
        keyspace: Keyspace,
        now: Tick,
        counts: impl Fn(usize, usize) -> Option<Arc<RuleCounts>>,
    ) -> Result<Self, RuleError> {
        let plan = |rule: usize, plan: usize| {
            let quota = rules.rules()[rule].quota_of(plan);
            let audit = Audit::of(quota).filter(|_| rules.enforces(rule))?;
            let counts = counts(rule, plan)?;
            counts.follow(now);
            Some(Plan { audit, counts })
        };
        let plans = rules.rules().iter().enumerate().map(|(place, rule)| {
            let plans = (0..rule.quotas()).map(|number| plan(place, number));
            plans.collect()
        });
        let plans: Box<[Box<[Option<Plan>]>]> = plans.collect();
        let memory = |rule: usize, plan: usize| {
            let plan = plans[rule][plan].as_ref();
            plan.map_or(0, |plan| plan.audit.memory())
        };
        Ok(Self {
            one_in,
            tolerance: Tolerance::new(rules, &keyspace, memory)?,
            encoder: Encoder::metered(rules, keyspace, Metered::Reference)?,
            plans,
            line: Line::default(),
            rechecks: Rechecks::default(),
        })
    }

    #[inline]
    pub(super) fn is_sampled(&self, check: &Check) -> bool {
        // Bits that no table of keys is spread by, and the same in every process.
        ((check.key().bits() >> 64) as u64).is_multiple_of(self.one_in)
    }

    pub(super) fn plan(&self, check: &Check) -> Option<&Plan> {
        let plans = self.plans.get(usize::from(check.rule()))?;
        // One that a check brings along has no reference.
        plans.get(usize::from(check.plan()))?.as_ref()
    }

    /// The quota of a check, if its key is sampled.
    #[inline]
    pub(super) fn follows(&self, check: &Check) -> Option<&Plan> {
        if !self.is_sampled(check) {
            return None;
        }
        self.plan(check)
    }

    /// An event was not sent. Whether the recheck task has to be started.
    pub(super) fn lost(&self, now: Tick, entry: &Entry) -> bool {
        let (event, check) = (&entry.event, entry.event.check());
        let Some(plan) = self.plan(check) else {
            return false;
        };
        plan.counts.dropped(event.requests());
        let by_store = entry.at.saturating_add(now.saturating_sub(entry.since));
        if matches!(event, Event::Refused(..)) || plan.audit.has_forgotten(entry.at, by_store) {
            return false;
        }
        plan.counts.not_whole(now);
        self.rechecks.miss(match event {
            Event::Forgotten(check) => check.with_cost(MANY),
            _ => *check,
        })
    }

    /// Puts an entry into a call.
    pub(super) fn write(&self, call: &mut Call, event: &Event) -> Placed {
        let encoder = &self.encoder;
        match event {
            Event::Admitted(check, _) => {
                let layout = call.peek(encoder, &[*check]);
                match (layout, call.debit(encoder, check)) {
                    (Some(layout), Some(debit)) => Placed::Judged(layout, Some(debit)),
                    _ => Placed::Nowhere,
                }
            }
            Event::Refused(check, _) => match self.look(call, check) {
                Some(layout) => Placed::Judged(layout, None),
                None => Placed::Nowhere,
            },
            Event::Settled(holding, how) => {
                let mut holding = *holding;
                if let Some(plan) = self.plan(&holding.check) {
                    let (taken, units) = (&mut holding.taken, holding.check.cost());
                    taken.fresh_at = plan.audit.fresh_at(taken.at, units, taken.fresh_at);
                }
                // What others took because of it may arrive before it.
                let back = holding.check.with_cost(given_back(&holding, *how));
                let is_told = call.settle(encoder, &holding, *how)
                    && self.tolerance.count(call, &back, For::Lately);
                Placed::told(is_told)
            }
            Event::Forgotten(check) => {
                // What others took before and after it may arrive in another order.
                let all = check.with_cost(MANY);
                let is_told = call.reset(encoder, check.rule(), check.key())
                    && self.tolerance.count(call, &all, For::Long);
                Placed::told(is_told)
            }
        }
    }

    /// Puts into a call that the reference has missed as many units as a check costs.
    pub(super) fn write_missed(&self, call: &mut Call, check: &Check) -> bool {
        self.tolerance.count(call, check, For::Long)
    }

    /// Puts into a call what is left of a state.
    fn look(&self, call: &mut Call, check: &Check) -> Option<RequestLayout> {
        call.peek(&self.encoder, &[check.with_cost(0)])
    }
}

impl Placed {
    fn told(is_told: bool) -> Self {
        match is_told {
            true => Self::Untold,
            false => Self::Nowhere,
        }
    }
}

fn given_back(holding: &Receipt, how: Settlement) -> u64 {
    match how {
        Settlement::Refund(units) => units.min(holding.check.cost()),
        Settlement::Cancel => holding.check.cost(),
        _ => 0,
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("one_in", &self.one_in)
            .finish_non_exhaustive()
    }
}
