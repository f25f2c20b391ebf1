//! Units that the reference may count too late, in another window, or never: the tolerance of a recheck.
//!
//! Only the process that sent them late knows of them. So they are counted in Redis too, for each key, in sub-buckets, which
//! forget none too early.

use std::time::Duration;

use tollgate_core::{Check, MAX_PERIOD, Outcome, Quota, Rule, RuleError, RuleSet, Tick};

use crate::{
    keys::keyspace::{Keyspace, Metered},
    script::{
        call::{Call, RequestLayout},
        encoder::Encoder,
        reply::Reply,
    },
    store::meter::rechecks::{LONGEST, MANY},
};

/// How long units matter that were given back up to 100 ms before a decision.
const LATELY: Tick = LONGEST + 150_000;

const PARTS: u32 = 6;

/// Where such units are counted.
#[derive(Debug)]
pub(super) struct Tolerance {
    lately: Encoder,
    for_long: Encoder,
}

/// How long they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Until the reference certainly knows of them.
    Lately,
    /// For as long as the reference remembers: it does not know of them, or not when they were taken.
    Long,
}

/// Where the answers are.
#[derive(Debug)]
pub(super) struct UncertainLayout([RequestLayout; 2]);

impl Tolerance {
    /// `memory` is how long the reference of a quota remembers.
    pub(super) fn new(
        rules: &RuleSet,
        keyspace: &Keyspace,
        memory: impl Fn(usize, usize) -> Tick,
    ) -> Result<Self, RuleError> {
        let encoder = |what, lasts: &dyn Fn(usize, usize) -> Tick| {
            let rules = rules.rules().iter().enumerate().map(|(place, rule)| {
                let quota = |plan| quota(lasts(place, plan));
                (1..rule.quotas()).fold(Rule::new(rule.name(), quota(0)), |tolerance, plan| {
                    tolerance.plan(format!("plan-{plan}"), quota(plan))
                })
            });
            Encoder::metered(&RuleSet::new(rules)?, keyspace.clone(), what)
        };
        Ok(Self {
            lately: encoder(Metered::ToleranceLately, &|_, _| LATELY)?,
            for_long: encoder(Metered::ToleranceForLong, &memory)?,
        })
    }

    /// Puts into a call that the reference is uncertain of what a check costs. False: it does not fit any more.
    pub(super) fn count(&self, call: &mut Call, check: &Check, lasts: For) -> bool {
        let check = check.with_cost(check.cost().min(MANY));
        let encoder = match lasts {
            For::Lately => &self.lately,
            For::Long => &self.for_long,
        };
        check.cost() == 0 || call.debit(encoder, &check).is_some()
    }

    /// Puts a query for the uncertain units into a call. `None`: it does not fit any more.
    pub(super) fn query(&self, call: &mut Call, check: &Check) -> Option<UncertainLayout> {
        let check = [check.with_cost(0)];
        let lately = call.peek(&self.lately, &check)?;
        Some(UncertainLayout([
            lately,
            call.peek(&self.for_long, &check)?,
        ]))
    }
}

impl UncertainLayout {
    /// How many they are; `None`: it is unknown.
    pub(super) fn units(&self, reply: &Reply, check: &Check, rules: &RuleSet) -> Option<u64> {
        let units = self.0.iter().map(|layout| {
            let decision = reply.decision(layout, &[*check], rules);
            let answer = decision.verdicts().first()?;
            let is_known = answer.outcome() == Outcome::Allow && answer.remaining() > 0;
            is_known.then(|| MANY.saturating_sub(answer.remaining()))
        });
        units.sum()
    }
}

fn quota(lasts: Tick) -> Quota {
    let lasts = Duration::from_micros(lasts.max(LATELY)).min(MAX_PERIOD);
    Quota::sliding_buckets(MANY, lasts).buckets(PARTS)
}
