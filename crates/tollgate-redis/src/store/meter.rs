//! The accuracy meter: a sampled share of keys is followed exactly, while the service runs.
//!
//! Of a sampled key each rule has a second account in Redis, of the same quota, which is never asked for leave. It is told
//! of what was let through, whether it fits or not, and asked whether what was refused would have fitted. So it knows what a
//! store would have known that is asked for every unit and never fails.
//!
//! It is told after the decision, and nobody waits for that: in the order of decisions, at the times at which they were
//! made. What cannot be told is counted, and not told later.
//!
//! Of two processes one may tell of its refusal before the other tells of what it took just before. So a refusal that looks
//! false is asked about once more when that is told, and counts only if it looks false then as well.

pub(super) mod doubts;
mod judge;
pub(super) mod line;

use std::{fmt, sync::Arc};

use tollgate_core::{Check, Outcome, RuleError, RuleSet, Tick, Verdict};

use crate::{
    call::{Asked, Call},
    encode::Encoder,
    keyspace::Keyspace,
    observe::RuleCounts,
    reply::Reply,
    store::meter::{
        doubts::{Doubt, Doubts, LONGEST},
        judge::Judge,
        line::{Entry, Event, Line},
    },
};

/// Decisions are held against the account with this tolerance, and the time that it took to tell it: 10 ms.
const TOLERANCE: Tick = 10_000;

/// Follows the sampled keys of a rule set.
pub(super) struct Meter {
    one_in: u64,
    encoder: Encoder,
    /// By rule and plan; `None` is not followed.
    plans: Box<[Box<[Option<Plan>]>]>,
    pub(super) line: Line,
    pub(super) doubts: Doubts,
}

/// A quota that is followed.
pub(super) struct Plan {
    pub(super) judge: Judge,
    counts: Arc<RuleCounts>,
}

/// Where the answers to an entry are.
pub(super) enum Placed {
    Judged(Asked, Option<u16>),
    /// Nothing is judged.
    Told,
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
            let judge = Judge::of(quota).filter(|_| rules.enforces(rule))?;
            let counts = counts(rule, plan)?;
            counts.follow(now);
            Some(Plan { judge, counts })
        };
        let plans = rules.rules().iter().enumerate().map(|(place, rule)| {
            let plans = (0..rule.quotas()).map(|number| plan(place, number));
            plans.collect()
        });
        Ok(Self {
            one_in,
            encoder: Encoder::metered(rules, keyspace)?,
            plans: plans.collect(),
            line: Line::default(),
            doubts: Doubts::default(),
        })
    }

    #[inline]
    pub(super) fn is_sampled(&self, check: &Check) -> bool {
        // Bits that no table of keys is spread by, and the same in every process.
        ((check.key().bits() >> 64) as u64).is_multiple_of(self.one_in)
    }

    pub(super) fn plan(&self, check: &Check) -> Option<&Plan> {
        let plans = self.plans.get(usize::from(check.rule()))?;
        let plan = plans.get(usize::from(check.plan()));
        plan.or_else(|| plans.first())?.as_ref()
    }

    /// The quota by which a check is followed, if it is.
    #[inline]
    pub(super) fn follows(&self, check: &Check) -> Option<&Plan> {
        if !self.is_sampled(check) {
            return None;
        }
        self.plan(check)
    }

    pub(super) fn lost(&self, now: Tick, entry: &Entry) {
        if let Some(plan) = self.plan(entry.event.check()) {
            plan.counts.dropped(entry.event.requests());
            if !matches!(entry.event, Event::Refused(..)) {
                plan.counts.not_whole(now);
            }
        }
    }

    /// Puts an entry into a call.
    pub(super) fn write(&self, call: &mut Call, event: &Event) -> Placed {
        let encoder = &self.encoder;
        match event {
            Event::Admitted(check, _) => {
                let asked = call.peek(encoder, &[*check]);
                match (asked, call.debit(encoder, check)) {
                    (Some(asked), Some(debit)) => Placed::Judged(asked, Some(debit)),
                    _ => Placed::Nowhere,
                }
            }
            Event::Refused(check, _) => match self.look(call, check) {
                Some(asked) => Placed::Judged(asked, None),
                None => Placed::Nowhere,
            },
            Event::Settled(holding, how) => {
                let mut holding = *holding;
                if let Some(plan) = self.plan(&holding.check) {
                    let (taken, units) = (&mut holding.taken, holding.check.cost());
                    taken.fresh_at = plan.judge.fresh_at(taken.at, units, taken.fresh_at);
                }
                match call.settle(encoder, &holding, *how) {
                    true => Placed::Told,
                    false => Placed::Nowhere,
                }
            }
            Event::Forgotten(check) => match call.reset(encoder, check.rule(), check.key()) {
                true => Placed::Told,
                false => Placed::Nowhere,
            },
        }
    }

    /// Puts into a call what is left of a state.
    pub(super) fn look(&self, call: &mut Call, check: &Check) -> Option<Asked> {
        call.peek(&self.encoder, &[check.with_cost(0)])
    }

    /// Counts what the account says of an entry. What looks false is given back, to be asked about again.
    pub(super) fn judge(
        &self,
        now: Tick,
        rules: &RuleSet,
        reply: &Reply,
        entry: &Entry,
        placed: &Placed,
    ) -> Option<Doubt> {
        let plan = self.plan(entry.event.check())?;
        let (asked, debit) = match placed {
            Placed::Judged(asked, debit) => (asked, debit),
            Placed::Told => return None,
            Placed::Nowhere => {
                self.lost(now, entry);
                return None;
            }
        };
        let check = entry.event.check();
        let decision = reply.decision(asked, std::slice::from_ref(check), rules);
        let told = debit.is_none_or(|debit| reply.left(debit).is_some());
        let answers =
            |answer: &&Verdict| told && matches!(answer.outcome(), Outcome::Allow | Outcome::Deny);
        let Some(answer) = decision.verdicts().first().filter(answers) else {
            // A value that is not ours.
            self.lost(now, entry);
            return None;
        };
        let tolerance = TOLERANCE.saturating_add(now.saturating_sub(entry.since));
        let (at, units) = (entry.at, check.cost());
        match entry.event {
            Event::Admitted(_, requests) => {
                let over = plan.judge.over(at, units, answer, tolerance);
                plan.counts.judged(requests, over, 0);
            }
            Event::Refused(_, requests) => {
                plan.counts.judged(requests, 0, 0);
                let looks_false = self.knows_of_all(plan, now)
                    && plan.judge.is_false(at, units, answer, tolerance);
                let entry = *entry;
                return looks_false.then_some(Doubt { entry, tolerance });
            }
            Event::Settled(..) | Event::Forgotten(_) => {}
        }
        None
    }

    /// Counts a refusal as false if it looks so once more. `now` by this process's clock, `at` by the store's.
    pub(super) fn judge_again(
        &self,
        (now, at): (Tick, Tick),
        rules: &RuleSet,
        reply: &Reply,
        doubt: &Doubt,
        asked: &Asked,
    ) {
        let Event::Refused(check, requests) = doubt.entry.event else {
            return;
        };
        let Some(plan) = self.plan(&check) else {
            return;
        };
        let decision = reply.decision(asked, &[check], rules);
        let answers = |answer: &&Verdict| answer.outcome() == Outcome::Allow;
        let Some(answer) = decision.verdicts().first().filter(answers) else {
            return;
        };
        let times = (doubt.entry.at, at);
        if now.saturating_sub(doubt.entry.since) <= LONGEST
            && self.knows_of_all(plan, now)
            && plan
                .judge
                .was_false(times, check.cost(), answer, doubt.tolerance)
        {
            plan.counts.judged(0, 0, requests);
        }
    }

    /// An account that began late, or has lost something, knows of too little.
    fn knows_of_all(&self, plan: &Plan, now: Tick) -> bool {
        plan.counts.is_whole(now, plan.judge.memory())
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("one_in", &self.one_in)
            .finish_non_exhaustive()
    }
}
