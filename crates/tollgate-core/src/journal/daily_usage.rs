//! What clients have used by day, under rules that [count it](crate::Rule::daily_usage).
//!
//! A client has its place from its first check on, so that settlements find it. Where more than half of the places are taken, those leave
//! of which all is written. What finds no place is lost, and counted.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{DurableRules, Journal, RuleJournal};
use crate::{
    check::Check,
    decision::{Decision, Outcome},
    hold::{Hold, Settlement},
    key::{Fingerprint, KeyBuf},
    sync::{Ordering, lock},
    time::Tick,
};

const DAY: Tick = 86_400_000_000;

/// What an account has used of a rule on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DailyUsage {
    /// The account, never empty.
    pub account: Arc<str>,
    /// The name of the rule.
    pub rule: Arc<str>,
    /// When the day begins, in UTC, in µs since the epoch.
    pub day: Tick,
    /// Requests that were admitted.
    pub allowed: u64,
    /// Requests that this rule denied, or would have as a shadow.
    pub denied: u64,
    /// The units that the admitted ones took, with what was charged and given back later.
    pub units: i64,
}

#[derive(Default)]
pub(super) struct DayClient {
    account: Arc<str>,
    /// Not yet written: mostly of one day.
    days: SmallVec<[DailyUsage; 1]>,
}

impl Journal {
    /// Requests and settlements that daily usage had no place for. It only grows.
    pub fn lost_daily(&self) -> u64 {
        self.lost_daily.load(Ordering::Relaxed)
    }

    /// Takes out what was counted by day.
    #[must_use]
    pub fn take_daily(&self) -> Vec<DailyUsage> {
        let rules = lock(&self.rules).clone();
        let most = self.most.load(Ordering::Relaxed);
        let is_crowded = self.day_clients.load(Ordering::Relaxed) > most / 2;
        let (mut taken, mut clients) = (Vec::new(), 0);
        for shard in rules.iter().flat_map(|rule| &rule.day_clients.0) {
            let mut shard = lock(shard);
            shard.retain(|_, client| {
                let is_idle = client.days.is_empty();
                taken.extend(client.days.drain(..));
                !(is_idle && is_crowded)
            });
            clients += shard.len();
        }
        self.day_clients.store(clients, Ordering::Relaxed);
        taken
    }
}

impl DurableRules {
    pub(crate) fn has_daily_usage(&self) -> bool {
        !self.daily.is_empty()
    }

    /// `None` without a ledger, too.
    fn daily_of(&self, rule: u16) -> Option<&RuleJournal> {
        let of_rule = self.daily.get(usize::from(rule))?.as_deref();
        of_rule.filter(|_| self.journal.is_attached())
    }

    /// A check was made for a key.
    pub(super) fn note_day_client(&self, rule: u16, subject: Fingerprint, key: &KeyBuf) {
        if let Some(of_rule) = self.daily_of(rule)
            && let Some(rule) = self.rules.rules().get(usize::from(rule))
            && let Some(account) = &rule.settings.daily_usage
            && of_rule
                .day_clients
                .with(subject, || false, |_| ())
                .is_none()
        {
            // Not under the lock: it is code of the application.
            let account = account.account(key);
            let room = || self.journal.takes_room(&self.journal.day_clients);
            of_rule
                .day_clients
                .with(subject, room, |client| client.account = account);
        }
    }

    /// A request was decided.
    pub(crate) fn count_by_day(&self, checks: &[Check], decision: &Decision) {
        if !self.has_daily_usage() {
            return;
        }
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            let Some(of_rule) = self.daily_of(check.rule()) else {
                continue;
            };
            let at = self.clock.now();
            match verdict.outcome() {
                Outcome::Deny => self.add_to_day(of_rule, check, at, |day| day.denied += 1),
                Outcome::Allow if decision.is_allowed() => {
                    // A repeat costs nothing. A cost has 56 bits.
                    let units = verdict.hold(*check, at).check.cost() as i64;
                    self.add_to_day(of_rule, check, at, |day| {
                        day.allowed += 1;
                        day.units = day.units.saturating_add(units);
                    });
                }
                _ => {}
            }
        }
    }

    /// A hold was settled. What comes back is of the day on which it was taken.
    pub(super) fn settled_by_day(&self, hold: &Hold, how: Settlement) {
        let (units, at) = self.change_of(hold, how);
        self.add_units_to_day(&hold.check, at, units);
    }

    pub(super) fn add_units_to_day(&self, check: &Check, at: Tick, units: i64) {
        if let Some(of_rule) = self.daily_of(check.rule()).filter(|_| units != 0) {
            self.add_to_day(of_rule, check, at, |day| {
                day.units = day.units.saturating_add(units);
            });
        }
    }

    fn add_to_day(
        &self,
        of_rule: &RuleJournal,
        check: &Check,
        at: Tick,
        add: impl FnOnce(&mut DailyUsage),
    ) {
        let day = at - at % DAY;
        let change = |client: &mut DayClient| {
            if client.account.is_empty() {
                return;
            }
            let days = &mut client.days;
            let known = days.iter().position(|it| it.day == day);
            let index = known.unwrap_or_else(|| {
                days.push(DailyUsage {
                    account: Arc::clone(&client.account),
                    rule: Arc::clone(&of_rule.name),
                    day,
                    ..DailyUsage::default()
                });
                days.len() - 1
            });
            add(&mut days[index]);
        };
        let added = of_rule.day_clients.with(check.key(), || false, change);
        if added.is_none() {
            self.journal.lost_daily.fetch_add(1, Ordering::Relaxed);
        }
    }
}
