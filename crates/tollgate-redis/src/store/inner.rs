//! A rule set on the store, as the futures of its answers share it.

use std::{any::Any, sync::Arc};

use tollgate_core::{
    Outcome, RuleSet, Tick, Verdict,
    store::{Receipt, Settlement},
};
use tollgate_prefilter::BoundRules;

use crate::{
    call::RequestLayout,
    encode::Encoder,
    new_keys::NewKeys,
    observe::RuleCounts,
    reply::{NewKey, Reply},
    store::{meter::Meter, shared::Shared},
};

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Arc<Encoder>,
    /// By rule: how many keys this process may make.
    pub(super) caps: Box<[Option<Arc<NewKeys>>]>,
    /// What this process decides locally.
    pub(super) local: BoundRules,
    /// What is counted of decisions, by rule and plan.
    pub(super) counts: Box<[Box<[Arc<RuleCounts>]>]>,
    pub(super) meter: Option<Arc<Meter>>,
    /// Ends with the last store, limiter and layer.
    pub(super) _heartbeat: Option<Arc<dyn Any + Send + Sync>>,
}

impl Inner {
    /// The time by this process's clock.
    #[inline]
    pub(super) fn now(&self) -> Tick {
        self.shared.process_clock.now()
    }

    /// Sends settlements, whose replies no request waits for.
    pub(super) fn settle(&self, receipts: &[Receipt], how: Settlement) {
        if !self.shared.backend.is_cluster() {
            return self.settle_in_one_slot(receipts, how);
        }
        let checks: Vec<_> = receipts.iter().map(|receipt| receipt.check).collect();
        for slot in self.encoder.slots(&checks) {
            let receipts: Vec<_> = slot.iter().map(|index| receipts[*index]).collect();
            self.settle_in_one_slot(&receipts, how);
        }
    }

    fn settle_in_one_slot(&self, receipts: &[Receipt], how: Settlement) {
        let mut call = self.shared.new_call();
        if !call.settle_all(&self.encoder, receipts, how) {
            return self.shared.observer.settlement_lost();
        }
        if !call.is_empty() {
            self.shared.settle(&call);
        }
    }

    /// Counts checks that were decided, by the source of the decision.
    #[inline]
    pub(super) fn count_decided(&self, verdicts: &[Verdict]) {
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
        for check in reply.new_keys(layout) {
            match check.new_key {
                NewKey::Made => self.shared.observer.key_made(),
                NewKey::Refused => self.shared.observer.key_refused(),
                NewKey::No => {}
            }
            if check.may_make
                && check.new_key != NewKey::Made
                && let Some(cap) = self.cap(check.rule)
            {
                cap.give_back();
            }
        }
    }
}
