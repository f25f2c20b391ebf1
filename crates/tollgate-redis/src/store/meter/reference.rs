//! The reference of a rule set.

use std::{fmt, sync::Arc};

use tollgate_core::{
    Check, Outcome, RuleError, RuleSet, Tick, Verdict,
    store::{Receipt, Settlement},
};

use crate::{
    keys::keyspace::Metered,
    observe::RuleCounts,
    script::{
        call::{Call, RequestLayout},
        encoder::Encoder,
        reply::Reply,
    },
    store::{
        meter::{
            audit::Audit,
            event_queue::{Entry, Event, EventQueue},
            rechecks::{MANY, Rechecks},
            tolerance::{For, Tolerance},
        },
        shared::Shared,
    },
};

/// The reference of a rule set: a second state in Redis for each sampled key, and what waits to reach it.
pub(super) struct Reference {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    encoder: Encoder,
    pub(super) tolerance: Tolerance,
    /// By rule and plan; `None` is not followed.
    plans: Box<[Box<[Option<Plan>]>]>,
    pub(super) queue: EventQueue,
    pub(super) rechecks: Rechecks,
}

/// A quota that is followed.
pub(super) struct Plan {
    pub(super) audit: Audit,
    pub(super) counts: Arc<RuleCounts>,
}

/// Where the replies to an event are.
pub(super) enum Placed {
    Audited(RequestLayout, Option<u16>),
    /// Nothing is audited.
    Sent,
    /// It did not fit into the call.
    Nowhere,
}

impl Reference {
    /// `counts` has what is counted of each quota, `None` where a rule has states that a client alone does not find.
    pub(super) fn new(
        shared: &Arc<Shared>,
        rules: &Arc<RuleSet>,
        counts: impl Fn(usize, usize) -> Option<Arc<RuleCounts>>,
    ) -> Result<Self, RuleError> {
        let (keyspace, now) = (shared.keyspace.clone(), shared.process_clock.now());
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
            tolerance: Tolerance::new(rules, &keyspace, memory)?,
            encoder: Encoder::metered(rules, keyspace, Metered::Reference)?,
            plans,
            queue: EventQueue::default(),
            rechecks: Rechecks::default(),
            shared: Arc::clone(shared),
            rules: Arc::clone(rules),
        })
    }

    /// The time by this process's clock.
    pub(super) fn now(&self) -> Tick {
        self.shared.process_clock.now()
    }

    /// The time by the server's clock, as far as this process knows it.
    pub(super) fn store_now(&self) -> Tick {
        self.shared.engine.store_now(self.now())
    }

    /// The quota of a check; `None` if it is not followed.
    pub(super) fn plan(&self, check: &Check) -> Option<&Plan> {
        let plans = self.plans.get(usize::from(check.rule()))?;
        // One that a check brings along has no reference.
        plans.get(usize::from(check.plan()))?.as_ref()
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
                    (Some(layout), Some(debit)) => Placed::Audited(layout, Some(debit)),
                    _ => Placed::Nowhere,
                }
            }
            Event::Refused(check, _) => match self.look(call, check) {
                Some(layout) => Placed::Audited(layout, None),
                None => Placed::Nowhere,
            },
            Event::Settled(receipt, how) => {
                let mut receipt = *receipt;
                if let Some(plan) = self.plan(&receipt.check) {
                    let (taken, units) = (&mut receipt.taken, receipt.check.cost());
                    taken.fresh_at = plan.audit.fresh_at(taken.at, units, taken.fresh_at);
                }
                // What others took because of it may arrive before it.
                let back = receipt.check.with_cost(given_back(&receipt, *how));
                let is_sent = call.settle(encoder, &receipt, *how)
                    && self.tolerance.count(call, &back, For::Lately);
                Placed::sent(is_sent)
            }
            Event::Forgotten(check) => {
                // What others took before and after it may arrive in another order.
                let all = check.with_cost(MANY);
                let is_sent = call.reset(encoder, check.rule(), check.key())
                    && self.tolerance.count(call, &all, For::Long);
                Placed::sent(is_sent)
            }
        }
    }

    /// Puts into a call that the reference has missed as many units as a check costs.
    pub(super) fn write_missed(&self, call: &mut Call, check: &Check) -> bool {
        self.tolerance.count(call, check, For::Long)
    }

    /// What the reference replied to a check; `None` if it did not.
    pub(super) fn answer(
        &self,
        reply: &Reply,
        layout: &RequestLayout,
        check: &Check,
    ) -> Option<Verdict> {
        let decision = reply.decision(layout, std::slice::from_ref(check), &self.rules);
        let answer = decision.verdicts().first().copied();
        answer.filter(|answer| matches!(answer.outcome(), Outcome::Allow | Outcome::Deny))
    }

    /// Puts into a call what is left of a state.
    pub(super) fn look(&self, call: &mut Call, check: &Check) -> Option<RequestLayout> {
        call.peek(&self.encoder, &[check.with_cost(0)])
    }
}

impl Plan {
    /// A reference that began late, or has missed events, knows of too little.
    pub(super) fn knows_of_all(&self, now: Tick) -> bool {
        self.counts.is_whole(now, self.audit.memory())
    }
}

impl Placed {
    fn sent(is_sent: bool) -> Self {
        match is_sent {
            true => Self::Sent,
            false => Self::Nowhere,
        }
    }
}

fn given_back(receipt: &Receipt, how: Settlement) -> u64 {
    match how {
        Settlement::Refund(units) => units.min(receipt.check.cost()),
        Settlement::Cancel => receipt.check.cost(),
        _ => 0,
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
