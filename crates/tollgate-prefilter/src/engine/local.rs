//! What a process knows of keys.

use std::sync::OnceLock;

use tollgate_core::{
    AlgorithmKind, Check, Outcome, Quota, Retry, Source, Tick, Verdict,
    algorithm::{Algorithm, Assessment, FixedWindow, SlidingBuckets, SlidingWindow},
    store::{Fingerprint, Receipt},
};

use crate::{
    deny::{
        block_cache::BlockCache,
        deny_cache::{Denials, DenyCache},
    },
    effective::Effective,
    engine::{
        leases::Leases,
        limit::Limit,
        reports::{Left, Reports, SentAt},
        store_time::StoreTime,
        wait::wait,
    },
    lease::grant::{Grant, LeaseQuery, ReturnedLease},
    table::key_table::Miss,
};

/// What a process knows of keys: its leases, its local usage, and the denials it has seen.
#[derive(Debug)]
pub(crate) struct Local {
    /// `None`: it is turned off.
    pub(crate) deny: Option<DenyCache>,
    /// Made when a rule set needs it.
    leases: OnceLock<Leases>,
    /// Made when a rule set needs it.
    reports: OnceLock<Reports>,
    /// Made when a rule set needs it.
    blocks: OnceLock<BlockCache>,
    pub(crate) store_time: StoreTime,
    keys: usize,
}

impl Local {
    pub(crate) fn new(deny: Option<DenyCache>, keys: usize) -> Self {
        Self {
            deny,
            leases: OnceLock::new(),
            reports: OnceLock::new(),
            blocks: OnceLock::new(),
            store_time: StoreTime::default(),
            keys,
        }
    }

    /// Makes the tables that a limit needs.
    pub(crate) fn make_room(&self, limit: &Limit) {
        match limit.effective {
            Effective::Leased(_) => _ = self.leases.get_or_init(|| Leases::new(self.keys)),
            Effective::Eventual(_) => _ = self.reports.get_or_init(|| Reports::new(self.keys)),
            Effective::Exact(_) => {}
        }
        if limit.block.is_some() {
            self.blocks.get_or_init(|| BlockCache::new(self.keys));
        }
    }

    #[inline]
    pub(crate) fn blocks(&self) -> Option<&BlockCache> {
        self.blocks.get()
    }

    /// Whether this process may deny a check by itself whose verdict is of the deny cache: a rule that blocks keys then `counts` the
    /// denial, unless it begins a block.
    #[inline]
    pub(crate) fn may_deny(
        &self,
        limit: &Limit,
        check: &Check,
        verdict: &Verdict,
        counts: bool,
    ) -> bool {
        let (Some((_, block)), Some(blocks)) = (&limit.block, self.blocks()) else {
            return true;
        };
        if block.counts_settled() || verdict.is_blocked() || verdict.retry() == Retry::Never {
            return true;
        }
        let slot = limit.block_slot(check.key());
        slot.is_none_or(|slot| blocks.may_deny(slot, block.denials(), counts))
    }

    /// The block of a key that the store has said, though it does not answer now.
    pub(crate) fn known_block(&self, limit: &Limit, check: &Check, now: Tick) -> Option<Verdict> {
        let slot = limit.block_slot(check.key())?;
        let block = self
            .blocks()?
            .known(slot, now)
            .filter(|_| check.cost() > 0)?;
        let end = Retry::after_micros(block.micros);
        let answer = Assessment::new(false, 0, block.micros, end);
        let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::DenyCache);
        Some(verdict.with_block_level(block.level))
    }

    #[inline]
    pub(crate) fn leases(&self) -> Option<&Leases> {
        self.leases.get()
    }

    #[inline]
    pub(crate) fn reports(&self) -> Option<&Reports> {
        self.reports.get()
    }

    /// When a query is sent.
    #[inline]
    pub(crate) fn sent(&self, now: Tick) -> SentAt {
        let order = self.reports().map_or(now, |reports| reports.order(now));
        SentAt { at: now, order }
    }

    /// Takes what a check costs from what this process may spend.
    #[inline]
    pub(crate) fn spend(&self, limit: &Limit, check: &Check, now: Tick) -> Result<Verdict, Miss> {
        let (key, cost) = (check.key(), check.cost());
        let (mut answer, source) = match &limit.effective {
            Effective::Leased(_) => {
                let Some(leases) = self.leases() else {
                    return Err(Miss { is_new: true });
                };
                let weighs = |window| {
                    let until = limit.windows.map_or(0, |it| it.counts_until(window));
                    until.saturating_sub(self.store_time.at(now))
                };
                let answer = leases.spend(limit, key, now, cost, weighs)?;
                (answer, Source::Lease)
            }
            Effective::Eventual(terms) => {
                let Some(reports) = self.reports() else {
                    return Err(Miss { is_new: true });
                };
                let answer = reports.spend(limit, key, now, cost, terms)?;
                // A cached denial says what was left, and that is less now.
                self.unlearn(key);
                (answer, Source::Local)
            }
            Effective::Exact(_) => return Err(Miss { is_new: true }),
        };
        if answer.remaining < cost {
            answer.retry = self.wait(limit, check, answer.remaining, now);
        }
        Ok(Verdict::new(check.rule(), check.plan(), answer, source))
    }

    /// When what a check costs fits again, if only `left` units are there.
    #[cold]
    fn wait(&self, limit: &Limit, check: &Check, left: u64, now: Tick) -> Retry {
        let (key, cost) = (check.key(), check.cost());
        let leases = self.leases();
        let due = leases.and_then(|leases| leases.due_after(limit, key, now, cost));
        wait(limit, self.store_time.at(now), (cost, left), due)
    }

    /// Denies a check of a request that waits for `patience` µs at most, if the deny cache says so.
    #[inline]
    pub(crate) fn deny(
        &self,
        limit: &Limit,
        check: &Check,
        now: Tick,
        patience: Tick,
    ) -> Option<Verdict> {
        let slot = limit.slot(check.key());
        let deny = self.deny.as_ref()?;
        if let (Some(slot), Some(blocks)) = (limit.block_slot(check.key()), self.blocks())
            && let Some((block, retry)) = blocks.deny(slot, now, check.cost())
        {
            let answer = Assessment::new(false, 0, block.micros, retry);
            let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::DenyCache);
            return Some(verdict.with_block_level(block.level));
        }
        let (mut denied, knows_left) =
            deny.deny(&limit.denials, slot, now, (check.cost(), patience))?;
        if let Effective::Leased(terms) = &limit.effective
            && terms.schedule().is_some()
            && !check.policy().is_exact()
        {
            denied = self.unless_due(limit, check, now, denied);
        }
        let verdict = Verdict::new(check.rule(), check.plan(), denied, Source::DenyCache);
        Some(if knows_left {
            verdict
        } else {
            verdict.with_remaining_unknown()
        })
    }

    /// A denial, with the time at which this process can serve the check from its scheduled lease, if that is sooner.
    fn unless_due(
        &self,
        limit: &Limit,
        check: &Check,
        now: Tick,
        denied: Assessment,
    ) -> Assessment {
        let due = || {
            self.leases()?
                .due_after(limit, check.key(), now, check.cost())
        };
        let mut answer = denied;
        if let (Retry::After(wait), Some(due)) = (denied.retry, due())
            && u128::from(due) < wait.as_micros()
        {
            answer.retry = Retry::after_micros(due.max(1));
        }
        answer
    }

    /// The units of a key's lease that may be spent now.
    pub(crate) fn leased(&self, limit: &Limit, key: Fingerprint, now: Tick) -> u64 {
        self.leases()
            .map_or(0, |leases| leases.left(limit, key, now))
    }

    /// What a query says to the store about the lease of a check's key; `None`: nothing.
    pub(crate) fn lease_query(
        &self,
        limit: &Limit,
        check: &Check,
        now: Tick,
    ) -> Option<LeaseQuery> {
        let (terms, leases) = (limit.lease_terms()?, self.leases()?);
        let query = leases.query(limit, check.key(), now, check.cost(), terms);
        (!query.is_empty()).then_some(query)
    }

    /// Learns from the store's verdict about a check.
    ///
    /// `is_cached`: a denial goes into the deny cache. `new_keys`: no local usage is begun.
    pub(crate) fn learn(
        &self,
        limit: &Limit,
        check: &Check,
        verdict: &Verdict,
        (sent, now): (SentAt, Tick),
        (is_cached, new_keys): (bool, bool),
        counted: u32,
    ) {
        let key = check.key();
        if let (Some(slot), Some(blocks)) = (limit.block_slot(key), self.blocks()) {
            blocks.learn(slot, now, (check.cost(), counted), verdict);
            if verdict.is_blocked() {
                self.unlearn(key);
            }
        }
        if verdict.outcome() == Outcome::Allow && check.cost() > 0 {
            self.unlearn(key);
        }
        let is_cached = is_cached && !verdict.is_blocked();
        if let (Outcome::Deny, true, Some(deny)) = (verdict.outcome(), is_cached, &self.deny) {
            let times = (sent.at, now);
            let slot = limit.slot(key);
            deny.learn(
                &limit.denials,
                slot,
                times,
                check.cost(),
                verdict,
                limit.has_plans,
            );
        }
        match &limit.effective {
            Effective::Leased(_) => {
                if let Some(leases) = self.leases() {
                    leases.learn(limit, key, sent.at, verdict);
                }
            }
            Effective::Eventual(_) => {
                if let Some(reports) = self.reports() {
                    let left = Left {
                        units: verdict.remaining(),
                        reset_after: verdict.reset_after_ticks(),
                    };
                    reports.learn(limit, key, (sent, now), left, new_keys);
                }
            }
            Effective::Exact(_) => {}
        }
    }

    /// The store has replied about the lease of a check's key, at `at` by its clock. Returns what is left of a lease of the
    /// window before, if it still weighs.
    pub(crate) fn on_lease_reply(
        &self,
        limit: &Limit,
        check: &Check,
        (sent, now): (Tick, Tick),
        at: Tick,
        grant: Option<Grant>,
    ) -> Option<ReturnedLease> {
        let leases = self.leases()?;
        let left = leases.on_reply(limit, check.key(), (sent, now), at, grant);
        if let Some(Grant::Scheduled { units, after }) = grant {
            self.learn_scheduled(limit, check, (sent, now), units, after);
        }
        left.filter(|_| limit.windows.is_some_and(|windows| windows.slide()))
    }

    /// A scheduled lease of `units` was granted, whose first units are refilled `after` µs from now. Until all of it has been
    /// refilled, nothing else fits.
    fn learn_scheduled(
        &self,
        limit: &Limit,
        check: &Check,
        times: (Tick, Tick),
        units: u64,
        after: Tick,
    ) {
        let (Some(deny), Denials::Bucket { fill, .. }) = (&self.deny, &limit.denials) else {
            return;
        };
        let Some(schedule) = limit.lease_terms().and_then(|terms| terms.schedule()) else {
            return;
        };
        // Both were rounded up. Without an overdraft fewer than eight units were left, which were granted first.
        let units = match after {
            0 => units.saturating_sub(8),
            _ => units,
        };
        let overdraft = after.saturating_sub(1) + schedule.span(units).saturating_sub(1);
        let answer = Assessment::new(false, 0, fill.saturating_add(overdraft), Retry::Unknown);
        let verdict = Verdict::new(check.rule(), check.plan(), answer, Source::Store);
        let slot = limit.slot(check.key());
        deny.learn(&limit.denials, slot, times, check.cost(), &verdict, false);
    }

    /// The store's verdict, with what this process may spend of the key, and less what it has counted and not sent.
    pub(crate) fn adjust(
        &self,
        limit: &Limit,
        check: &Check,
        verdict: Verdict,
        now: Tick,
    ) -> Verdict {
        let is_decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
        if verdict.is_blocked() {
            return verdict;
        }
        let leased = self.leased(limit, check.key(), now);
        let unsent = self
            .reports()
            .map_or(0, |reports| reports.unsent(limit, check.key()));
        if !is_decided || leased + unsent == 0 {
            return verdict;
        }
        let remaining = (verdict.remaining() + leased).saturating_sub(unsent);
        let fits = check.cost() <= remaining;
        let reset_after = verdict.reset_after_ticks();
        let retry = match verdict.retry() {
            _ if fits && remaining >= check.cost().max(1) => Retry::Now,
            // It would have fit, but for what is not reported yet.
            _ if !fits && verdict.outcome() == Outcome::Allow => {
                Retry::after_micros(reset_after.max(1))
            }
            Retry::Now => Retry::after_micros(reset_after.max(1)),
            retry => retry,
        };
        let answer = Assessment::new(fits, remaining, reset_after, retry);
        Verdict::new(check.rule(), check.plan(), answer, verdict.source())
    }

    /// Gives units that were spent at `spent` back to where they came from. Returns those that have to go back to the store.
    pub(crate) fn give_back(
        &self,
        limit: &Limit,
        receipt: &Receipt,
        (now, spent): (Tick, Tick),
        units: u64,
    ) -> u64 {
        let (key, taken) = (receipt.check.key(), receipt.taken);
        match receipt.source {
            Source::Lease => {
                let Some(leases) = self.leases() else {
                    return units;
                };
                let Some(windows) = limit.windows else {
                    leases.give_back(limit, key, (now, spent), units);
                    return 0;
                };
                match windows.that_counts_until(taken.fresh_at) {
                    Some(window) if taken.fresh_at > taken.at => {
                        leases.give_back_to(limit, key, window, (now, spent), units)
                    }
                    // They do not weigh any more.
                    _ => 0,
                }
            }
            Source::Local => {
                let back = self
                    .reports()
                    .map_or(0, |reports| reports.give_back(limit, key, spent, units));
                units - back
            }
            _ => units,
        }
    }

    /// Forgets the denials of a key: more may be left by now.
    pub(crate) fn unlearn(&self, key: Fingerprint) {
        if let Some(deny) = &self.deny {
            deny.forget(key);
        }
    }
}

/// A receipt for units that were spent locally, as the store has counted them: when it granted the lease, or with a report.
pub(crate) fn as_counted(limit: &Limit, receipt: &Receipt) -> Receipt {
    let mut receipt = *receipt;
    receipt.taken.fresh_at = match limit.windows {
        Some(windows) => {
            let window = windows.that_counts_until(receipt.taken.fresh_at);
            window.map_or(0, |window| windows.counts_until(window))
        }
        None => weighs_until(&limit.quota, &receipt),
    };
    receipt
}

/// Until when units weigh that were counted locally and reported. What the receipt says is from an earlier reply, and the store
/// refunds nothing to a window whose end is another.
fn weighs_until(quota: &Quota, receipt: &Receipt) -> Tick {
    let taken = receipt.taken;
    let until = match quota.algorithm() {
        AlgorithmKind::FixedWindow => fresh_at::<FixedWindow>(quota, taken.at),
        AlgorithmKind::SlidingWindow => fresh_at::<SlidingWindow>(quota, taken.at),
        AlgorithmKind::SlidingBuckets => fresh_at::<SlidingBuckets>(quota, taken.at),
        _ => None,
    };
    until.unwrap_or(taken.fresh_at)
}

/// When a state is fresh after a unit was taken at `at`.
fn fresh_at<A: Algorithm>(quota: &Quota, at: Tick) -> Option<Tick> {
    let quota = A::new(quota)?;
    let mut state = A::State::default();
    quota.take(&mut state, at, 1);
    Some(quota.fresh_at(&state))
}
