//! A rule set on the store, as the futures of its answers share it.

use std::{
    any::Any,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tollgate_core::{
    Check, Checks, Decision, Outcome, RuleSet, Tick, Verdict,
    store::{Receipt, Settlement},
};
use tollgate_prefilter::{Grant, ReturnedLease};

use crate::{
    call::{Call, RequestLayout},
    encode::Encoder,
    new_keys::NewKeys,
    observe::{LeaseEvent, RuleCounts},
    prefilter::{filter::Prefilter, split::QueryExtras},
    reply::{NewKey, Reply},
    store::{meter::Meter, shared::Shared},
};

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Encoder,
    /// By rule: how many keys this process may make.
    pub(super) caps: Box<[Option<Arc<NewKeys>>]>,
    /// What this process answers alone.
    pub(super) prefilter: Prefilter,
    /// What is counted of decisions, by rule and plan.
    pub(super) counts: Box<[Box<[Arc<RuleCounts>]>]>,
    pub(super) meter: Option<Meter>,
    /// Read by who has taken reports and not sent them yet.
    pub(super) sending: RwLock<()>,
    /// The last limiter and layer are gone, and nobody hands back what is held.
    pub(super) has_ended: AtomicBool,
    /// Ends with the last store, limiter and layer.
    pub(super) _heartbeat: Option<Arc<dyn Any + Send + Sync>>,
}

/// Leases that are asked for: by the place of the check, that of the answer, and the lease that goes back.
type Wanted = SmallVec<[(u16, Option<u16>, Option<ReturnedLease>); 1]>;

/// Says that nothing came of leases that were asked for, unless an answer did.
pub(super) struct PendingGrants {
    inner: Arc<Inner>,
    checks: Checks,
    wanted: Wanted,
}

impl Inner {
    /// Asks for leases, with the request that was just added.
    pub(super) fn want(
        self: &Arc<Self>,
        call: &mut Call,
        checks: &[Check],
        extras: &QueryExtras,
    ) -> Option<PendingGrants> {
        if extras.grants.is_empty() {
            return None;
        }
        let mut waiting = PendingGrants {
            inner: Arc::clone(self),
            checks: Checks::from_slice(checks),
            wanted: Wanted::new(),
        };
        for (place, query) in &extras.grants {
            let check = checks.get(usize::from(*place))?;
            let terms = self.prefilter.lease_terms(check);
            let answer = terms
                .filter(|_| query.wants_grant())
                .and_then(|terms| call.grant(&self.encoder, check, query, terms));
            if answer.is_some() {
                self.shared.observer.grants(LeaseEvent::RequestLayout, 1);
            }
            waiting.wanted.push((*place, answer, query.returned));
        }
        Some(waiting)
    }

    /// To be held from before reports are taken until they are sent. `None`: there are none to take.
    pub(super) fn sending(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.prefilter
            .reports()
            .filter(|reports| reports.has_due())?;
        Some(self.sending.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the reports are sent that were taken by now. Units that were in one of them can be given back only behind
    /// it: before it there is nothing to give back.
    pub(super) fn are_sent(&self) {
        if self.prefilter.reports().is_some() {
            drop(self.sending.write());
        }
    }

    /// Counts checks that were decided, by who has.
    #[inline]
    pub(super) fn count_decided<'a>(&self, verdicts: impl IntoIterator<Item = &'a Verdict>) {
        for verdict in verdicts {
            if !matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny) {
                continue;
            }
            let plans = self.counts.get(verdict.rule());
            let counts = plans.and_then(|plans| plans.get(verdict.plan()).or(plans.first()));
            if let Some(counts) = counts {
                counts.decided(verdict.source());
            }
        }
    }

    pub(super) fn cap(&self, rule: u16) -> Option<&NewKeys> {
        self.caps.get(usize::from(rule))?.as_deref()
    }

    pub(super) fn note_new_keys(&self, reply: &Reply, layout: &RequestLayout) {
        for told in reply.new_keys(layout) {
            match told.new_key {
                NewKey::Made => self.shared.observer.key_made(),
                NewKey::Refused => self.shared.observer.key_refused(),
                NewKey::No => {}
            }
            if told.may_make
                && told.new_key != NewKey::Made
                && let Some(cap) = self.cap(told.rule)
            {
                cap.give_back();
            }
        }
    }

    /// A decision that Redis has not made: it has failed, or there was nothing to ask.
    pub(super) fn without_answer(&self, checks: &[Check], outcome: Outcome) -> Decision {
        let verdicts = checks
            .iter()
            .map(|check| Verdict::unanswered(check.rule(), check.plan(), outcome));
        Decision::new(0, verdicts, |verdict| self.rules.enforces(verdict.rule()))
    }

    pub(super) fn settle(&self, holdings: &[Receipt], how: Settlement) {
        let mut call = self.shared.begin();
        if !call.settle_all(&self.encoder, holdings, how) {
            return self.shared.observer.settlement_lost();
        }
        if !call.is_empty() {
            self.shared.settle(&call);
        }
    }

    /// Takes over what the store has taken for a request that nobody waits for any more, as far as it is granted.
    pub(super) fn take_over(self: &Arc<Self>, holding: &Receipt) {
        if let Some((holding, how)) = self.prefilter.take_over(holding) {
            self.settle(&[holding], how);
        }
        self.hand_back_if_ended();
    }

    /// The last limiter and layer are gone, or others have taken their place: what is held goes back, and what was counted alone
    /// is reported.
    pub(super) fn retire(self: &Arc<Self>) {
        // Before what is held is taken out: what comes after that sees it.
        self.has_ended.store(true, Ordering::SeqCst);
        self.send_first();
    }

    /// Hands back what came since the last limiter and layer were gone.
    pub(super) fn hand_back_if_ended(self: &Arc<Self>) {
        if self.has_ended.load(Ordering::SeqCst) {
            self.take_out(self.prefilter.take_out());
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Within a runtime that is another one, of a test for example, the task goes there.
        match Handle::try_current() {
            Ok(here) => here.spawn(task),
            Err(_) => self.shared.runtime.spawn(task),
        };
    }
}

impl PendingGrants {
    pub(super) fn on_reply(mut self, reply: &Reply, sent: Tick) {
        for (place, answer, _) in std::mem::take(&mut self.wanted) {
            let grant = answer.map_or(Some(None), |answer| reply.grant(answer));
            let observer = &self.inner.shared.observer;
            match grant {
                Some(Some(_)) => observer.grants(LeaseEvent::Lent, 1),
                Some(None) => {}
                None => observer.grants(LeaseEvent::Lost, 1),
            }
            self.told(place, (sent, reply.at()), grant);
        }
        self.inner.hand_back_if_ended();
    }

    /// The query certainly did not reach the store.
    pub(super) fn are_not_sent(mut self) {
        for (place, _, returned) in std::mem::take(&mut self.wanted) {
            if let Some(check) = self.checks.get(usize::from(place)) {
                self.inner.prefilter.on_not_sent(check, returned);
            }
        }
        self.inner.hand_back_if_ended();
    }

    fn told(&self, place: u16, times: (Tick, Tick), grant: Option<Option<Grant>>) {
        if let Some(check) = self.checks.get(usize::from(place))
            && let Some(left) = self.inner.prefilter.on_reply(check, times, grant)
        {
            self.inner.take_out(vec![left]);
        }
    }
}

impl Drop for Inner {
    /// Nobody reports any more.
    fn drop(&mut self) {
        let units = self.prefilter.units_unreported();
        if units > 0 {
            self.shared.gave_up(units);
        }
    }
}

impl Drop for PendingGrants {
    /// The answer did not come, or nobody waits for it any more: what it grants is lost.
    fn drop(&mut self) {
        for (place, answer, _) in &self.wanted {
            if answer.is_some() {
                self.inner.shared.observer.grants(LeaseEvent::Lost, 1);
            }
            self.told(*place, (0, 0), None);
        }
    }
}
