//! The accuracy meter: a sampled share of keys is followed exactly, while the service runs.
//!
//! Of a sampled key each rule has a second account in Redis, of the same quota, which is never asked for leave. It is told
//! of what was let through, whether it fits or not, and asked whether what was refused would have fitted. So it knows what a
//! store would have known that is asked for every unit and never fails.
//!
//! It is told after the decision, and nobody waits for that: in the order of decisions, at the times at which they were
//! made. What cannot be told is counted, and not told later.

mod judge;
mod line;

use std::{collections::VecDeque, fmt, sync::Arc};

use tollgate_core::{
    Check, Decision, Holding, Outcome, RuleError, RuleSet, Settlement, Source, Tick, Verdict,
};

use crate::{
    call::{Asked, Call},
    connection::value::Value,
    encode::Encoder,
    keyspace::Keyspace,
    observe::{CallFor, RuleCounts},
    reply::Reply,
    store::{
        backend::Answer,
        inner::Inner,
        meter::{
            judge::Judge,
            line::{Entry, Event, Joined, Line, at_once},
        },
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
    line: Line,
}

/// A quota that is followed.
struct Plan {
    judge: Judge,
    counts: Arc<RuleCounts>,
}

/// Calls on their way, with what each entry asked.
type Told = Vec<(Answer, usize, Vec<(Entry, Placed)>)>;

/// Where the answers to an entry are.
enum Placed {
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
        })
    }

    #[inline]
    fn is_sampled(&self, check: &Check) -> bool {
        // Bits that no table of keys is spread by, and the same in every process.
        ((check.key().bits() >> 64) as u64).is_multiple_of(self.one_in)
    }

    fn plan(&self, check: &Check) -> Option<&Plan> {
        let plans = self.plans.get(usize::from(check.rule()))?;
        let plan = plans.get(usize::from(check.plan()));
        plan.or_else(|| plans.first())?.as_ref()
    }

    /// The quota by which a check is followed, if it is.
    #[inline]
    fn follows(&self, check: &Check) -> Option<&Plan> {
        if !self.is_sampled(check) {
            return None;
        }
        self.plan(check)
    }

    fn lost(&self, now: Tick, entry: &Entry) {
        if let Some(plan) = self.plan(entry.event.check()) {
            plan.counts.dropped(entry.event.requests());
            if !matches!(entry.event, Event::Refused(..)) {
                plan.counts.not_whole(now);
            }
        }
    }

    /// Puts an entry into a call.
    fn write(&self, call: &mut Call, event: &Event) -> Placed {
        let encoder = &self.encoder;
        match event {
            Event::Admitted(check, _) => {
                let asked = call.peek(encoder, &[*check]);
                match (asked, call.debit(encoder, check)) {
                    (Some(asked), Some(debit)) => Placed::Judged(asked, Some(debit)),
                    _ => Placed::Nowhere,
                }
            }
            Event::Refused(check, _) => match call.peek(encoder, &[check.with_cost(0)]) {
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

    /// Counts what the account says of an entry.
    fn judge(&self, now: Tick, rules: &RuleSet, reply: &Reply, entry: &Entry, placed: &Placed) {
        let Some(plan) = self.plan(entry.event.check()) else {
            return;
        };
        let (asked, debit) = match placed {
            Placed::Judged(asked, debit) => (asked, debit),
            Placed::Told => return,
            Placed::Nowhere => return self.lost(now, entry),
        };
        let check = entry.event.check();
        let decision = reply.decision(asked, std::slice::from_ref(check), rules);
        let told = debit.is_none_or(|debit| reply.left(debit).is_some());
        let answers =
            |answer: &&Verdict| told && matches!(answer.outcome(), Outcome::Allow | Outcome::Deny);
        let Some(answer) = decision.verdicts().first().filter(answers) else {
            // A value that is not ours.
            return self.lost(now, entry);
        };
        let tolerance = TOLERANCE.saturating_add(now.saturating_sub(entry.since));
        let (at, units) = (entry.at, check.cost());
        match entry.event {
            Event::Admitted(_, requests) => {
                let over = plan.judge.over(at, units, answer, tolerance);
                plan.counts.judged(requests, over, 0);
            }
            Event::Refused(_, requests) => {
                // An account that began late, or has lost something, knows of too little.
                let knows = plan.counts.is_whole(now, plan.judge.memory());
                let falsely = knows && plan.judge.is_false(at, units, answer, tolerance);
                plan.counts
                    .judged(requests, 0, if falsely { requests } else { 0 });
            }
            Event::Settled(..) | Event::Forgotten(_) => {}
        }
    }
}

impl Inner {
    /// Whether the meter follows any of these checks.
    #[inline]
    pub(super) fn follows(&self, checks: &[Check]) -> bool {
        let meter = self.meter.as_ref();
        meter.is_some_and(|meter| checks.iter().any(|check| meter.is_sampled(check)))
    }

    /// Follows a request that the store, or this process alone, has decided.
    #[inline]
    pub(super) fn follow(self: &Arc<Self>, checks: &[Check], decision: &Decision) {
        if self.follows(checks) {
            self.follow_if(checks, decision, |_| true);
        }
    }

    /// Follows what was decided by the rules' answers to a store failure.
    pub(super) fn follow_resolved(self: &Arc<Self>, checks: &[Check], decision: &Decision) {
        if self.follows(checks) {
            let alone = |verdict: &Verdict| verdict.source() == Source::Fallback;
            self.follow_if(checks, decision, alone);
        }
    }

    #[cold]
    fn follow_if(
        self: &Arc<Self>,
        checks: &[Check],
        decision: &Decision,
        which: impl Fn(&Verdict) -> bool,
    ) {
        let Some(meter) = &self.meter else { return };
        let at = match decision.at() {
            0 => self.prefilter.store_now(),
            at => at,
        };
        let verdicts = decision.verdicts().iter();
        for (place, (check, verdict)) in checks.iter().zip(verdicts).enumerate() {
            let same = |other: &&Check| other.rule() == check.rule() && other.key() == check.key();
            if !which(verdict)
                || meter.follows(check).is_none()
                // Checks on one state are one check.
                || checks[..place].iter().any(|other| same(&other))
            {
                continue;
            }
            let costs = checks.iter().filter(same).map(Check::cost);
            let cost = costs.fold(0, u64::saturating_add);
            let check = check.with_cost(cost);
            let event = match verdict.outcome() {
                _ if cost == 0 => continue,
                Outcome::Allow if decision.outcome() != Outcome::Deny => Event::Admitted(check, 1),
                Outcome::Deny => Event::Refused(check, 1),
                _ => continue,
            };
            self.tell(meter, at, event);
        }
    }

    /// What was let through is settled: in the account as well.
    pub(super) fn follow_settlement(self: &Arc<Self>, holdings: &[Holding], how: Settlement) {
        let Some(meter) = &self.meter else { return };
        for holding in holdings {
            if meter.follows(&holding.check).is_some() && how != Settlement::Release {
                let at = self.prefilter.store_now();
                self.tell(meter, at, Event::Settled(*holding, how));
            }
        }
    }

    /// A state is forgotten, and so is the account.
    pub(super) fn follow_reset(self: &Arc<Self>, check: Check) {
        if let Some(meter) = &self.meter
            && meter.follows(&check).is_some()
        {
            self.tell(meter, self.prefilter.store_now(), Event::Forgotten(check));
        }
    }

    fn tell(self: &Arc<Self>, meter: &Meter, at: Tick, event: Event) {
        let since = self.prefilter.now();
        let entry = Entry { at, since, event };
        match meter.line.join(entry) {
            Joined::Waits => {}
            Joined::Begin => {
                let telling = Telling {
                    inner: Arc::clone(self),
                    has_ended: false,
                };
                self.spawn(telling.tell());
            }
            Joined::Full => meter.lost(since, &entry),
        }
    }

    /// Sends what waits: one call for what happened at one time, in order, and none waits for the one before.
    fn send_entries(&self, meter: &Meter, mut waiting: VecDeque<Entry>) -> Told {
        let most = match self.shared.backend.is_cluster() {
            true => 1,
            false => usize::MAX,
        };
        let mut told = Told::new();
        while let (entries, Some(at)) = next(&mut waiting, most) {
            let mut call = self.shared.begin_at(at);
            let now = self.prefilter.store_now();
            let placed: Vec<_> = entries
                .into_iter()
                .map(|entry| {
                    let plan = meter.plan(entry.event.check());
                    let late = plan.is_some_and(|plan| plan.judge.is_over(entry.at, now));
                    // In the window that has begun it would count for another one.
                    let placed = match late {
                        true => Placed::Nowhere,
                        false => meter.write(&mut call, &entry.event),
                    };
                    (entry, placed)
                })
                .collect();
            let size = call.checks();
            if size == 0 {
                let now = self.prefilter.now();
                placed.iter().for_each(|(entry, _)| meter.lost(now, entry));
                continue;
            }
            told.push((self.shared.send(&call, CallFor::Meter), size, placed));
        }
        told
    }

    async fn hear(&self, meter: &Meter, told: Told) {
        for (answer, size, placed) in told {
            let reply = match answer.await {
                Ok(Value::Integers(integers)) => Reply::new(size, integers),
                _ => None,
            };
            let now = self.prefilter.now();
            for (entry, placed) in &placed {
                match &reply {
                    Some(reply) => meter.judge(now, &self.rules, reply, entry, placed),
                    None => meter.lost(now, entry),
                }
            }
        }
    }
}

fn next(waiting: &mut VecDeque<Entry>, most: usize) -> (Vec<Entry>, Option<Tick>) {
    let entries = at_once(waiting, most);
    let at = entries.iter().map(|entry| entry.at).max();
    (entries, at)
}

/// Whoever tells what waits in the line. It ends with the line.
struct Telling {
    inner: Arc<Inner>,
    has_ended: bool,
}

impl Telling {
    async fn tell(mut self) {
        let inner = Arc::clone(&self.inner);
        let Some(meter) = &inner.meter else { return };
        while let Some(waiting) = meter.line.take() {
            let told = inner.send_entries(meter, waiting);
            inner.hear(meter, told).await;
        }
        self.has_ended = true;
    }
}

impl Drop for Telling {
    /// With its runtime, a task may end in between.
    fn drop(&mut self) {
        if let Some(meter) = self.inner.meter.as_ref().filter(|_| !self.has_ended) {
            meter.line.left_alone();
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("one_in", &self.one_in)
            .finish_non_exhaustive()
    }
}
