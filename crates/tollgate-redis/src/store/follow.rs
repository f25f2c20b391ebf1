//! Sends what was decided, settled and forgotten to the meter's reference. No request waits for it.

use std::{collections::VecDeque, sync::Arc};

use tollgate_core::{
    Check, Decision, Outcome, Source, Tick, Verdict,
    store::{Receipt, Settlement},
};

use crate::{
    connection::value::Value,
    observe::CallFor,
    reply::Reply,
    store::{
        backend::Answer,
        inner::Inner,
        meter::{
            Meter, Placed,
            line::{Entry, Event, Joined, at_once},
            verdict::Looks,
        },
    },
};

/// Calls in flight, with the events of each.
type SentEntries = Vec<(Answer, usize, Vec<(Entry, Placed)>)>;

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
            self.meter_if(checks, decision, |_| true);
        }
    }

    /// Follows what was decided by the rules' answers to a store failure.
    pub(super) fn meter_resolved(self: &Arc<Self>, checks: &[Check], decision: &Decision) {
        if self.follows(checks) {
            let alone = |verdict: &Verdict| verdict.source() == Source::Fallback;
            self.meter_if(checks, decision, alone);
        }
    }

    #[cold]
    fn meter_if(
        self: &Arc<Self>,
        checks: &[Check],
        decision: &Decision,
        which: impl Fn(&Verdict) -> bool,
    ) {
        let Some(meter) = &self.meter else { return };
        let at = match decision.at() {
            0 => self.store_now(),
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
    pub(super) fn meter_settlement(self: &Arc<Self>, holdings: &[Receipt], how: Settlement) {
        let Some(meter) = &self.meter else { return };
        for holding in holdings {
            if meter.follows(&holding.check).is_some() {
                let at = self.store_now();
                self.tell(meter, at, Event::Settled(*holding, how));
            }
        }
    }

    /// A state is forgotten, and so is the account.
    pub(super) fn meter_reset(self: &Arc<Self>, check: Check) {
        if let Some(meter) = &self.meter
            && meter.follows(&check).is_some()
        {
            self.tell(meter, self.store_now(), Event::Forgotten(check));
        }
    }

    fn tell(self: &Arc<Self>, meter: &Meter, at: Tick, event: Event) {
        let since = self.now();
        let entry = Entry { at, since, event };
        match meter.line.join(entry) {
            Joined::Waits => {}
            Joined::Begin => {
                let sender = EventSender {
                    inner: Arc::clone(self),
                    has_ended: false,
                };
                self.spawn(sender.tell());
            }
            Joined::Full => self.lost(meter, since, &entry),
        }
    }

    /// Sends what waits: one call for what happened at one time, in order, and none waits for the one before.
    fn send_entries(self: &Arc<Self>, meter: &Meter, mut waiting: VecDeque<Entry>) -> SentEntries {
        let most = match self.shared.backend.is_cluster() {
            true => 1,
            false => usize::MAX,
        };
        let mut reported = SentEntries::new();
        while let (entries, Some(at)) = next(&mut waiting, most) {
            let mut call = self.shared.new_call_at(at);
            let now = self.store_now();
            let placed: Vec<_> = entries
                .into_iter()
                .map(|entry| {
                    let plan = meter.plan(entry.event.check());
                    let late = plan.is_some_and(|plan| plan.audit.is_over(entry.at, now));
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
                let now = self.now();
                placed
                    .iter()
                    .for_each(|(entry, _)| self.lost(meter, now, entry));
                continue;
            }
            reported.push((self.shared.send(&call, CallFor::Meter), size, placed));
        }
        reported
    }

    async fn audit_replies(self: &Arc<Self>, meter: &Meter, reported: SentEntries) {
        for (answer, size, placed) in reported {
            let reply = match answer.await {
                Ok(Value::Integers(integers)) => Reply::new(size, integers),
                _ => None,
            };
            // In part it would be an account of something else.
            let reply = reply.filter(|reply| reply.first_refusal().is_none());
            let now = self.now();
            for (entry, placed) in &placed {
                let looks = match &reply {
                    Some(reply) => meter.audit(now, &self.rules, reply, entry, placed),
                    None => Looks::Lost,
                };
                match looks {
                    Looks::Well => {}
                    Looks::Wrong(recheck) => self.recheck(meter, recheck),
                    Looks::Miss(check) => self.miss(meter, check),
                    Looks::Lost => self.lost(meter, now, entry),
                }
            }
        }
        self.send_missed(meter);
    }
}

fn next(waiting: &mut VecDeque<Entry>, most: usize) -> (Vec<Entry>, Option<Tick>) {
    let entries = at_once(waiting, most);
    let at = entries.iter().map(|entry| entry.at).max();
    (entries, at)
}

/// The task that sends events. It ends when there are none.
struct EventSender {
    inner: Arc<Inner>,
    has_ended: bool,
}

impl EventSender {
    async fn tell(mut self) {
        let inner = Arc::clone(&self.inner);
        let Some(meter) = &inner.meter else { return };
        while let Some(waiting) = meter.line.take() {
            let reported = inner.send_entries(meter, waiting);
            inner.audit_replies(meter, reported).await;
        }
        self.has_ended = true;
    }
}

impl Drop for EventSender {
    /// With its runtime, a task may end in between.
    fn drop(&mut self) {
        if let Some(meter) = self.inner.meter.as_ref().filter(|_| !self.has_ended) {
            meter.line.left_alone();
        }
    }
}
