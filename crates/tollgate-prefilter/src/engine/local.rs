//! What a process knows of keys: what it may spend, what it has to report, and what it has seen denied.

use tollgate_core::{
    Check, Outcome, Retry, Source, Tick, Verdict,
    algorithm::Assessment,
    store::{Fingerprint, Hold},
};

use crate::{
    denials::{Denials, KeyBlock},
    effective::Effective,
    engine::{
        counts::EngineUsage,
        entry::{Entry, Lease, Usage},
        limit::{Limit, Visit},
        store_time::StoreTime,
        wait::wait,
    },
    lease::{
        grant::{Grant, LeaseQuery, ReturnedLease},
        terms::LeaseTerms,
    },
    sync::{AtomicU64, Ordering},
    table::key_table::{KeyTable, Miss, TableKey},
};

/// What a process knows of keys.
#[derive(Debug)]
pub(crate) struct Local {
    keys: KeyTable<Entry>,
    pub(crate) store_time: StoreTime,
    /// The last time that was given to a query or a reply.
    last: AtomicU64,
}

/// When a query was sent: by the clock, and by a time that no other query or reply has, so that their order is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentAt {
    pub(crate) at: Tick,
    pub(crate) order: Tick,
}

impl Local {
    /// Of at most `keys` keys something is kept. The store decides each request of the others.
    pub(crate) fn new(keys: usize, keeps_denials: bool) -> Self {
        Self {
            keys: KeyTable::new(keys, keeps_denials),
            store_time: StoreTime::default(),
            last: AtomicU64::new(0),
        }
    }

    /// When a query is sent.
    #[inline]
    pub(crate) fn sent(&self, now: Tick) -> SentAt {
        let order = self.order(now);
        SentAt { at: now, order }
    }

    /// A time for a query that is sent now, or a reply that comes now.
    pub(crate) fn order(&self, now: Tick) -> Tick {
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // `next` always returns a time, and the update returns the one before.
        let (Ok(last) | Err(last)) = last;
        now.max(last.saturating_add(1))
    }

    /// Does something with what is kept of a key, and lists the key if something may have to be sent then.
    fn with<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        act: impl FnOnce(&mut Entry) -> Option<R>,
    ) -> Option<R> {
        let act = |entry: &mut Entry| act(entry).map(|done| (done, entry.list()));
        let (done, is_first) = self.keys.with(limit.at(key), act)??;
        if is_first {
            limit.list(key);
        }
        Some(done)
    }

    /// Does something with the lease of a key.
    pub(crate) fn lease<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        act: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        self.with(limit, key, |entry| entry.lease(limit).map(act))
    }

    /// Does something with the local usage of a key.
    pub(crate) fn usage<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        act: impl FnOnce(&mut Usage) -> R,
    ) -> Option<R> {
        self.with(limit, key, |entry| entry.usage(limit).map(act))
    }

    /// Does something with what is known of the block of a key, if its rule blocks keys.
    pub(crate) fn block<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        act: impl FnOnce(&mut KeyBlock) -> R,
    ) -> Option<R> {
        limit.block.as_ref()?;
        let act = |entry: &mut Entry| entry.block.as_mut().map(|block| act(block));
        self.keys.with(limit.at(key), act)?
    }

    /// The same of a lease or local usage that may begin with it.
    fn begin<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
        act: impl FnOnce(&mut Entry) -> Option<R>,
    ) -> Option<R> {
        let act = |entry: &mut Entry| {
            entry.begin(limit, now);
            act(entry).map(|done| (done, entry.list()))
        };
        let may_go = |entry: &Entry| entry.may_go(now);
        let (done, is_first) = self.keys.with_new(limit.at(key), now, may_go, act)??;
        if is_first {
            limit.list(key);
        }
        Some(done)
    }

    /// Takes what a check costs from what this process may spend.
    #[inline]
    pub(crate) fn spend(&self, limit: &Limit, check: &Check, now: Tick) -> Result<Verdict, Miss> {
        let (at, cost) = (limit.at(check.key()), check.cost());
        let (mut answer, source) = match &limit.effective {
            Effective::Leased(_) => {
                let answer = self.keys.look(at, |entry| {
                    let lease = entry.lease(limit)?;
                    let is_spent = lease.holder.spend(now, cost);
                    is_spent.then(|| self.of_lease(limit, lease, now))
                })?;
                (answer, Source::Lease)
            }
            Effective::Eventual(terms) => {
                let (answer, is_first) = self.keys.look(at, |entry| {
                    let answer = entry.usage(limit)?.spend(now, cost, terms)?;
                    Some((answer, entry.list()))
                })?;
                if is_first {
                    limit.list(check.key());
                }
                // A cached denial says what was left, and that is less now.
                self.keys.unlearn(at);
                (answer, Source::Local)
            }
            Effective::Exact(_) => return Err(Miss { is_new: true }),
        };
        if answer.remaining < cost {
            answer.retry = self.wait(limit, check, answer.remaining, now);
        }
        Ok(Verdict::new(check.rule(), check.plan(), answer, source))
    }

    /// What is left of a lease of which was spent.
    #[inline]
    fn of_lease(&self, limit: &Limit, lease: &Lease, now: Tick) -> Assessment {
        let remaining = lease.left.saturating_add(lease.holder.left(now));
        let reset_after = match lease.holder.window() {
            Some(window) => {
                let until = limit.windows.map_or(0, |it| it.counts_until(window));
                until.saturating_sub(self.store_time.at(now))
            }
            None => lease.fresh_at.saturating_sub(now),
        };
        Assessment::new(true, remaining, reset_after, Retry::Now)
    }

    /// When what a check costs fits again, if only `left` units are there.
    #[cold]
    fn wait(&self, limit: &Limit, check: &Check, left: u64, now: Tick) -> Retry {
        let due = self.due_after(limit, check, now);
        wait(limit, self.store_time.at(now), (check.cost(), left), due)
    }

    /// In how many µs a scheduled lease has what a check costs, if it will.
    fn due_after(&self, limit: &Limit, check: &Check, now: Tick) -> Option<Tick> {
        limit.lease_terms()?;
        let due = |lease: &mut Lease| lease.holder.due_after(now, check.cost());
        self.lease(limit, check.key(), due)?
    }

    /// Denies a check of a request that waits for `patience` µs at most, if an earlier denial says so.
    #[inline]
    pub(crate) fn deny(
        &self,
        limit: &Limit,
        check: &Check,
        now: Tick,
        patience: Tick,
    ) -> Option<Verdict> {
        let (at, cost) = (limit.at(check.key()), check.cost());
        let denied = |known: &mut KeyBlock| known.deny(check, now);
        if self.keys.keeps_denials()
            && let Some(denied) = self.block(limit, check.key(), denied).flatten()
        {
            return Some(denied);
        }
        if check.has_id() {
            // A repeat passes also where nothing is left.
            return None;
        }
        let words = self.keys.denial(at, limit.id)?;
        let (mut denied, knows_left) = limit.denials.deny(words, now, cost, patience)?;
        if let Effective::Leased(terms) = &limit.effective
            && terms.schedule().is_some()
            && !check.policy().is_exact()
            // This process can serve it from its scheduled lease, if that is sooner.
            && let (Retry::After(wait), Some(due)) = (denied.retry, self.due_after(limit, check, now))
            && u128::from(due) < wait.as_micros()
        {
            denied.retry = Retry::after_micros(due.max(1));
        }
        let verdict = Verdict::new(check.rule(), check.plan(), denied, Source::DenyCache);
        Some(match knows_left {
            true => verdict,
            false => verdict.with_remaining_unknown(),
        })
    }

    /// Whether this process may deny a check by itself whose verdict is of an earlier denial: a rule that blocks keys then `counts` the
    /// denial, unless it begins a block.
    #[inline]
    pub(crate) fn may_deny(
        &self,
        limit: &Limit,
        check: &Check,
        verdict: &Verdict,
        counts: bool,
    ) -> bool {
        let Some(block) = &limit.block else {
            return true;
        };
        if block.counts_settled() || verdict.is_blocked() || verdict.retry() == Retry::Never {
            return true;
        }
        // Nothing is known of a key that had to go.
        let may = |known: &mut KeyBlock| known.may_deny(block.denials(), counts);
        self.block(limit, check.key(), may).unwrap_or(false)
    }

    /// Learns from the store's verdict about a check.
    ///
    /// `is_cached`: a denial is remembered. `is_new`: no local usage is begun. `counted`: the denials that count towards a block.
    pub(crate) fn learn(
        &self,
        limit: &Limit,
        check: &Check,
        verdict: &Verdict,
        (sent, now): (SentAt, Tick),
        (is_cached, is_new): (bool, bool),
        counted: u32,
    ) {
        let (at, cost) = (limit.at(check.key()), check.cost());
        if limit.block.is_some() {
            let learn = |entry: &mut Entry| {
                let block = entry.block.get_or_insert_default();
                block.learn(now, cost, counted, verdict);
            };
            if verdict.block_level().is_some() || counted > 0 {
                let may_go = |entry: &Entry| entry.may_go(now);
                self.keys.with_new(at, now, may_go, learn);
            } else {
                let forgets = |entry: &mut Entry| entry.block.is_some().then(|| learn(entry));
                self.keys.with(at, forgets);
            }
        }
        if verdict.is_blocked() || verdict.outcome() == Outcome::Allow && cost > 0 {
            self.keys.unlearn(at);
        } else if verdict.outcome() == Outcome::Deny
            && is_cached
            && let Some(words) = limit.denials.learn((sent.at, now), cost, verdict)
        {
            // Where a rule has plans, the last denial of a key counts: what was learned under another plan may have been overtaken.
            self.keys.learn(at, limit.id, words, limit.has_plans);
        }
        let fresh_at = sent.at.saturating_add(verdict.reset_after_ticks());
        match &limit.effective {
            Effective::Leased(_) => {
                self.lease(limit, check.key(), |lease| {
                    (lease.left, lease.fresh_at) = (verdict.remaining(), fresh_at);
                    if sent.at > lease.unanswered {
                        lease.unanswered = 0;
                    }
                });
            }
            Effective::Eventual(terms) => {
                let learn = |entry: &mut Entry| {
                    let usage = entry.usage(limit)?;
                    usage.counted.on_remaining(sent.order, verdict.remaining());
                    usage.fresh_at = fresh_at;
                    // The store does not know of these.
                    usage.uses(now, usage.counted.unreported(), terms);
                    Some(())
                };
                match is_new {
                    true => self.with(limit, check.key(), learn),
                    false => self.begin(limit, check.key(), now, learn),
                };
            }
            Effective::Exact(_) => {}
        }
    }

    /// The units of a key's lease that may be spent now.
    pub(crate) fn leased(&self, limit: &Limit, key: Fingerprint, now: Tick) -> u64 {
        if limit.lease_terms().is_none() {
            return 0;
        }
        let left = self.lease(limit, key, |lease| lease.holder.left(now));
        left.unwrap_or(0)
    }

    /// What a query says to the store about the lease of a check's key; `None`: nothing. Not for new keys.
    pub(crate) fn lease_query(
        &self,
        limit: &Limit,
        check: &Check,
        now: Tick,
    ) -> Option<LeaseQuery> {
        let terms = limit.lease_terms()?;
        let query = self.begin(limit, check.key(), now, |entry| {
            let lease = entry.lease(limit)?;
            let is_answered = lease.unanswered == 0;
            is_answered.then(|| lease.holder.query(now, check.cost(), terms))
        });
        query.filter(|query| !query.is_empty())
    }

    /// The store has replied about the lease of a check's key, at `at` by its clock. Returns what is left of a lease of the
    /// window before, if it still weighs.
    pub(crate) fn on_lease_reply(
        &self,
        limit: &Limit,
        check: &Check,
        times: (Tick, Tick),
        at: Tick,
        grant: Option<Grant>,
    ) -> Option<ReturnedLease> {
        let terms = limit.lease_terms()?;
        let left = self.lease(limit, check.key(), |lease| {
            // What the store said is left was before the grant.
            let granted = grant.map_or(0, |grant| grant.units());
            lease.left = lease.left.saturating_sub(granted);
            lease.holder.on_reply(times, at, grant, terms)
        });
        if let Some(Grant::Scheduled { units, after }) = grant {
            self.learn_scheduled(limit, check, times, units, after);
        }
        left.flatten()
            .filter(|_| limit.windows.is_some_and(|windows| windows.slide()))
    }

    /// Looks at up to `most` of the leases that are left to look at, and takes out those that are not needed, to be returned. Also
    /// gives how many were looked at.
    pub(crate) fn sweep(
        &self,
        limit: &Limit,
        now: Tick,
        most: usize,
    ) -> (Vec<(Fingerprint, ReturnedLease)>, usize) {
        let mut unneeded = Vec::new();
        // Units of a window weigh for longer than this process spends them. They go back with the next query, or a flush.
        let window = limit.lease_terms().and_then(LeaseTerms::window);
        let weighs = window.map_or(0, |window| 2 * window);
        let visited = limit.visit(Some(most), |key| {
            self.stays_listed(limit, key, |entry| {
                let holder = &mut entry.lease(limit)?.holder;
                let returned = holder.sweep(now).and_then(|query| query.returned);
                unneeded.extend(returned.map(|returned| (key, returned)));
                let until = holder.until();
                Some(until.is_some_and(|until| now < until.saturating_add(weighs)))
            })
        });
        (unneeded, visited)
    }

    /// All leases under a limit, taken out to be returned.
    pub(crate) fn take_out(&self, limit: &Limit, now: Tick) -> Vec<(Fingerprint, ReturnedLease)> {
        let mut held = Vec::new();
        limit.visit(None, |key| {
            self.stays_listed(limit, key, |entry| {
                let returned = entry.lease(limit)?.holder.take_out(now);
                held.extend(returned.map(|returned| (key, returned)));
                Some(false)
            })
        });
        held
    }

    /// Keys whose report is due `by` a time, at most `most` of them.
    pub(crate) fn due_by(&self, limit: &Limit, by: Tick, most: usize) -> Vec<Fingerprint> {
        let mut due = Vec::new();
        let Some(terms) = limit.report_terms() else {
            return due;
        };
        limit.visit(None, |key| {
            if due.len() >= most {
                return Visit::Stop;
            }
            self.stays_listed(limit, key, |entry| {
                let counted = &entry.usage(limit)?.counted;
                if counted.is_due(by, terms) {
                    due.push(key);
                }
                Some(counted.unreported() > 0)
            })
        });
        due
    }

    /// Counts all units under a limit that are in no report as lost, and returns how many.
    pub(crate) fn give_up(&self, limit: &Limit) -> u64 {
        let mut lost = 0;
        limit.visit(None, |key| {
            self.stays_listed(limit, key, |entry| {
                let counted = &mut entry.usage(limit)?.counted;
                let units = counted.report();
                lost += counted.lost(units);
                Some(false)
            })
        });
        lost
    }

    /// Looks at a listed key: whether it stays listed. `None`: it has nothing of this limit.
    fn stays_listed(
        &self,
        limit: &Limit,
        key: Fingerprint,
        look: impl FnOnce(&mut Entry) -> Option<bool>,
    ) -> Visit {
        let stays = self.keys.with(limit.at(key), |entry| {
            let stays = look(entry)?;
            entry.is_listed = stays;
            Some(stays)
        });
        match stays.flatten() {
            Some(true) => Visit::Keep,
            _ => Visit::Drop,
        }
    }

    /// Notes that a key was seen, and counts nothing.
    pub(crate) fn see(&self, limit: &Limit, key: Fingerprint) -> Miss {
        let seen = self.keys.look(limit.at(key), |_| None::<()>);
        seen.err().unwrap_or(Miss { is_new: false })
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
        let Denials::Bucket { fill, .. } = &limit.denials else {
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
        if let Some(words) = limit.denials.learn(times, check.cost(), &verdict) {
            self.keys
                .learn(limit.at(check.key()), limit.id, words, false);
        }
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
        if verdict.is_blocked() || verdict.is_repeat() {
            return verdict;
        }
        let leased = self.leased(limit, check.key(), now);
        let unsent = self.usage(limit, check.key(), |usage| usage.counted.unsent());
        let unsent = unsent.unwrap_or(0);
        if !is_decided || leased + unsent == 0 || verdict.debt() > 0 {
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
        receipt: &Hold,
        (now, spent): (Tick, Tick),
        units: u64,
    ) -> u64 {
        let (key, taken) = (receipt.check.key(), receipt.taken);
        match (receipt.source, limit.windows, limit.report_terms()) {
            (Source::Lease, None, _) => {
                self.lease(limit, key, |lease| {
                    lease.holder.give_back(now, spent, units)
                });
                0
            }
            (Source::Lease, Some(windows), _) => match windows.that_counts_until(taken.fresh_at) {
                Some(window) if taken.fresh_at > taken.at => {
                    let give_back = |lease: &mut Lease| {
                        (lease.holder).give_back_to(window, (now, spent), units)
                    };
                    self.lease(limit, key, give_back).unwrap_or(units)
                }
                // They do not weigh any more.
                _ => 0,
            },
            (Source::Local, _, Some(terms)) => {
                let give_back = |usage: &mut Usage| {
                    // What was counted before the last report was in it, and only the store knows whether it still weighs. What was
                    // counted at the same time may have been in it or not: other unreported units take its place.
                    if spent < usage.reported_at {
                        return 0;
                    }
                    let back = usage.counted.give_back(units);
                    usage.fresh_at = usage.fresh_at.saturating_sub(terms.puts_off(back));
                    back
                };
                units - self.usage(limit, key, give_back).unwrap_or(0)
            }
            _ => units,
        }
    }

    /// Forgets the denials of a state: more may be left by now.
    pub(crate) fn unlearn(&self, at: TableKey) {
        self.keys.unlearn(at);
    }

    /// Forgets the denials and the block of a state that is forgotten.
    pub(crate) fn forget(&self, at: TableKey) {
        self.keys.unlearn(at);
        self.keys.with(at, |entry| entry.block = None);
    }

    /// Forgets what is held under a limit of a key whose state is about to be forgotten. Returns the lease, to be returned, and the units
    /// that were in no report.
    pub(crate) fn forget_held(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
    ) -> (Option<ReturnedLease>, u64) {
        let returned = self.lease(limit, key, |lease| {
            (lease.left, lease.fresh_at) = (0, 0);
            // A query in flight stays so.
            let returned = lease.holder.take_out(now);
            lease.holder.forget(now);
            returned
        });
        let order = self.order(now);
        let unsent = self.usage(limit, key, |usage| {
            let unsent = usage.counted.unsent();
            usage.counted.forget(order);
            unsent
        });
        (returned.flatten(), unsent.unwrap_or(0))
    }

    /// What is held, by a look at every key.
    pub(crate) fn usage_at(&self, now: Tick) -> EngineUsage {
        let mut usage = EngineUsage::default();
        let table = self.keys.usage(|entry| {
            let (lease, unreported) = entry.held();
            usage.units_unreported += unreported;
            let units = lease.map_or(0, |lease| lease.held(now));
            usage.units_on_lease += units;
            match lease.filter(|_| units > 0) {
                None => {}
                Some(lease) if lease.has_scheduled(now) => usage.scheduled_keys += 1,
                Some(_) => usage.leased_keys += 1,
            }
        });
        usage.table = table;
        usage
    }
}
