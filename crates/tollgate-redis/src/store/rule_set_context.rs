//! A rule set on the store, as the futures of its answers share it.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
};

use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{
    Check, RuleSet, Tick,
    observe::block_began,
    store::{ChargeFallback, Checks, Hold, PaidHook, Settlement},
    sync::{Mutex, lock},
    wall_clock,
};
use tollgate_prefilter::{LocalRules, NoReply};

use crate::{
    observe::CallFor,
    script::{
        call::{RequestLayout, SentCheck, SettledCheck, SettledReply},
        encoder::Encoder,
        reply::{BlockReply, NewKey, ScriptReply},
    },
    store::{context::StoreContext, new_key_cap::NewKeyCap},
};

/// Tells operators of a block that has begun with this check.
pub(super) fn report_block(rules: &RuleSet, check: &Check, reply: Option<BlockReply>) {
    if let Some(BlockReply { block, began: true }) = reply
        && let Some(rule) = rules.rules().get(usize::from(check.rule()))
    {
        block_began(rule, check.key(), block);
    }
}

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct RuleSetContext {
    pub(super) store: Arc<StoreContext>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Arc<Encoder>,
    /// By rule: how many keys this process may make.
    pub(super) caps: Box<[Option<Arc<NewKeyCap>>]>,
    /// What this process decides locally.
    pub(super) local: Arc<LocalRules>,
    /// By rule: the units that have lapsed.
    pub(super) lapsed_units: Box<[Arc<AtomicU64>]>,
    /// Who hears what balances pay.
    pub(super) paid: Arc<PaidHook>,
    /// Who takes charges that Redis certainly has not counted.
    pub(super) charge_fallback: Mutex<Option<ChargeFallback>>,
    /// When the task that sends looks next for what is due.
    pub(super) looks_at: Mutex<Instant>,
    /// Ends with the last store, limiter and layer.
    pub(super) _tasks: Option<Arc<JoinSet<()>>>,
}

impl RuleSetContext {
    /// The time by this process's clock.
    #[inline]
    pub(super) fn now(&self) -> Tick {
        self.store.process_clock.now()
    }

    /// Sends settlements, whose replies no request waits for.
    pub(super) fn settle(self: &Arc<Self>, holds: &[Hold], how: Settlement) {
        let checks: Checks = holds.iter().map(|hold| hold.check).collect();
        for holds in self.local.places.steps(&checks, holds.iter().copied()) {
            self.settle_in_one_step(&holds, how);
        }
    }

    fn settle_in_one_step(self: &Arc<Self>, holds: &[Hold], how: Settlement) {
        let mut call = self.store.new_call(self.now());
        let Some(settled) = call.settle_all(&self.encoder, holds, how) else {
            if let Settlement::Charge(units) = how {
                for hold in holds {
                    self.lapse(&hold.check, units);
                }
            }
            return self.store.observer.settlement_lost();
        };
        if call.is_empty() {
            return;
        }
        let mut sent = self.store.send_in_time(call, CallFor::Settlements);
        if sent.answer.is_refused() {
            // Counted as any other, and charged before the next request asks.
            let _ = Pin::new(&mut sent).poll(&mut Context::from_waker(Waker::noop()));
            return self.on_not_settled(&settled, NoReply::NotSent);
        }
        let context = Arc::clone(self);
        // A call that is dropped before it is sent is not sent.
        self.store.spawn(async move {
            match sent.await {
                Ok(reply) => {
                    if reply.first_refusal().is_some() {
                        context.store.observer.settlement_lost();
                    }
                    context.on_settled(&settled, &reply);
                }
                Err(error) => context.on_not_settled(&settled, error.no_reply()),
            }
        });
    }

    fn lapse(&self, check: &Check, units: u64) {
        if let Some(lapsed) = self.lapsed_units.get(usize::from(check.rule())) {
            lapsed.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Counts what a settlement has let lapse, and tells operators of blocks that it has begun.
    pub(super) fn on_settled(&self, settled: &[SettledCheck], reply: &ScriptReply) {
        for it in settled {
            match it.tells {
                SettledReply::Lapsed { at_risk } => {
                    let lapsed = reply.lapsed_units(it.place).unwrap_or(at_risk);
                    self.lapse(&it.check, lapsed);
                }
                SettledReply::Paid { hold, is_charge } => {
                    let units = reply.paid_units(it.place);
                    if units > 0 {
                        self.paid.tell(&hold, is_charge.then_some(units));
                    }
                }
                SettledReply::Block => {
                    report_block(&self.rules, &it.check, reply.block(it.place));
                }
            }
        }
    }

    /// What certainly was not carried out is charged to the local share.
    fn on_not_settled(&self, settled: &[SettledCheck], why: NoReply) {
        if why == NoReply::NotSent {
            self.store.observer.settlement_lost();
        }
        let fallback = lock(&self.charge_fallback).clone();
        for it in settled {
            let SettledReply::Lapsed {
                at_risk: at_risk @ 1..,
            } = it.tells
            else {
                continue;
            };
            let lapsed = match &fallback {
                Some(charge) if why == NoReply::NotSent => charge(&it.check, at_risk),
                _ => at_risk,
            };
            self.lapse(&it.check, lapsed);
        }
    }

    pub(super) fn cap(&self, rule: u16) -> Option<&NewKeyCap> {
        self.caps.get(usize::from(rule))?.as_deref()
    }

    /// Counts the key that a check has created, or was not to create.
    pub(super) fn note_new_key(&self, sent: &SentCheck, new_key: NewKey) {
        let (observer, rule) = (
            &self.store.observer,
            &self.rules.rules()[usize::from(sent.rule)],
        );
        match new_key {
            NewKey::Made => {
                observer.new_key(rule);
                if let Some(cap) = self.cap(sent.rule).filter(|_| sent.may_make == Some(true)) {
                    cap.add(wall_clock());
                }
            }
            NewKey::Refused => observer.new_key_refused(rule),
        }
    }

    /// Counts the keys that a request may have created whose reply nobody sees: all if `is_cut`, or else as many as there is room for,
    /// because a server that does not answer says nothing about clients.
    pub(super) fn note_unseen_keys(&self, layout: &RequestLayout, is_cut: bool) {
        for (_, sent) in layout.sent().filter(|it| it.1.may_make == Some(true)) {
            let (cap, now) = (self.cap(sent.rule), wall_clock());
            if let Some(cap) = cap.filter(|cap| is_cut || cap.has_room(now)) {
                cap.add(now);
            }
        }
    }

    /// Counts the key that a report of local usage has created, if `left` is what it leaves of a fresh state.
    pub(super) fn note_reported(&self, report: &Check, left: u64) {
        let rule = &self.rules.rules()[usize::from(report.rule())];
        let limit = rule.quota_of(usize::from(report.plan())).limit();
        // Usage beyond the limit leaves nothing either.
        let is_new = left > 0 && left.checked_add(report.cost()) == Some(limit);
        if is_new {
            self.store.observer.new_key(rule);
        }
    }
}

// The rule sets of a store.

/// The rule sets that are in use, or still report.
#[derive(Default)]
pub(super) struct InUse(Mutex<Vec<Weak<RuleSetContext>>>);

impl InUse {
    pub(super) fn add(&self, context: &Arc<RuleSetContext>) {
        let mut all = lock(&self.0);
        all.retain(|context| context.strong_count() > 0);
        all.push(Arc::downgrade(context));
    }

    pub(super) fn all(&self) -> Vec<Arc<RuleSetContext>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}
