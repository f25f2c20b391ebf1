//! What a ledger hears besides the usage of windows: what is granted, and paid from a balance, and what becomes of reservations.
//!
//! A payment is noted as usage is. A grant is written before its caller has an answer, once for its id. Reservations are noted by an id
//! of each of their holds, so that a ledger that hears of one in any order settles or releases it once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{Base, DurableRules, Journal, Usage, Window};
use crate::{
    check::Check,
    credits::{Balance, CreditChange},
    error::{StoreError, StoreErrorKind},
    hold::{Hold, Settlement, Source},
    key::Fingerprint,
    rule::Rule,
    step::{Pending, Step},
    store::rule_store::RuleStore,
    sync::{Mutex, Ordering, lock},
    time::Tick,
};

/// For how long a process takes it that a store has the balance of a key, in µs; and when a ledger is asked again that did not answer.
const KNOWN: Tick = 30_000_000;
pub(crate) const UNKNOWN: Tick = 5_000_000;
/// How long a grant waits for a ledger.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the units of a [`Usage`] are that were not used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MovementKind {
    /// What a balance has gained: below 0 if it has paid.
    Credits,
    /// A hold that is reserved for so long from now.
    Reserved(HoldId, Duration),
    /// It was settled: what it has cost, less what was reserved.
    Settled(HoldId),
}

/// The id of a reservation, and which of its holds.
pub type HoldId = (u128, u16);

/// A grant, or its end, that a store has carried out.
#[derive(Clone, Debug)]
pub struct CreditEntry {
    /// What was done.
    pub change: CreditChange,
    /// Its id.
    pub id: Arc<str>,
    /// The units that the store says.
    pub changed: u64,
}

pub(super) type Movements = Mutex<HashMap<(Arc<str>, Fingerprint, Window, MovementKind), Usage>>;

impl Journal {
    /// Takes out the movements that were noted.
    #[must_use]
    pub fn take_movements(&self) -> Vec<(Usage, MovementKind)> {
        let mut movements = lock(&self.movements);
        let taken = movements.drain().map(|((.., kind), usage)| (usage, kind));
        let is_written = |it: &(Usage, _)| it.0.account.as_deref() != Some("");
        taken.filter(is_written).collect()
    }
}

impl DurableRules {
    pub(super) fn note(&self, check: &Check, at: Tick, units: i64, kind: MovementKind) {
        let Some((rule, of_rule)) = self.of(check) else {
            return;
        };
        let Some(window) = Self::window(rule, check, at).filter(|_| self.journal.is_attached())
        else {
            return;
        };
        let (name, account) = (Arc::clone(&of_rule.name), self.account_of(check));
        let most = self.journal.most.load(Ordering::Relaxed);
        let mut noted = lock(&self.journal.movements);
        let is_credits = kind == MovementKind::Credits;
        let key = (Arc::clone(&name), check.key(), window, kind);
        if let Some(usage) = noted.get_mut(&key) {
            if is_credits {
                usage.units = usage.units.saturating_add(units);
            }
        } else if noted.len() < most {
            let usage = Usage {
                rule: name,
                subject: check.key(),
                account,
                window,
                units,
            };
            noted.insert(key, usage);
        } else {
            let lost = &self.journal.lost;
            lost.fetch_add(units.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// A charge that was noted as usage was paid from the balance of the key.
    pub(crate) fn paid(&self, check: &Check, units: u64) {
        let (units, now) = (i64::try_from(units).unwrap_or(i64::MAX), self.clock.now());
        if self.journal.is_attached() {
            self.add(check, now, -units, now);
        }
        self.note(check, now, -units, MovementKind::Credits);
    }

    /// What a request holds was made a reservation, or has a new term.
    pub(crate) fn reserved(&self, id: u128, holds: &[Hold], term: Duration) {
        for (hold, of) in of_windows(id, holds) {
            // A cost has 56 bits.
            let (units, kind) = (hold.check.cost() as i64, MovementKind::Reserved(of, term));
            self.note(&hold.check, hold.taken.at, units, kind);
        }
    }

    /// A reservation was settled: each hold in its own way, or not at all.
    pub(crate) fn redeemed(&self, id: u128, holds: &[Hold], hows: &[Option<Settlement>]) {
        for (hold, how) in holds.iter().zip(hows) {
            if let Some(how) = how.filter(|_| hold.source == Source::Credits) {
                self.settled(hold, how, true);
            }
        }
        for (hold, of) in of_windows(id, holds) {
            let how = hows.get(usize::from(of.1)).copied().flatten();
            if let Some(how) = how {
                self.settled_by_day(hold, how);
            }
            let (units, at) = self.change_of(hold, how.unwrap_or(Settlement::Refund(0)));
            self.note(&hold.check, at, units, MovementKind::Settled(of));
        }
    }

    /// Whether a denial may be due to a balance that the store has lost.
    pub(crate) fn may_lack_balance(&self, check: &Check, now: Tick) -> bool {
        let takes_credits = |(rule, _): (&Rule, _)| rule.has_credits() && check.cost() > 0;
        self.of(check).is_some_and(takes_credits)
            && self.account(check, |account| account.balance_until <= now) == Some(true)
            && self.journal.is_attached()
    }

    /// Nobody else asks for the balance of this key for some time.
    pub(crate) fn set_balance_known(&self, check: &Check, until: Tick) {
        self.account(check, |account| account.balance_until = until);
    }

    /// Gives the store the balance of a key, unless it has one, and says whether that was new.
    pub(crate) async fn restore_balance(
        &self,
        store: &dyn RuleStore,
        check: &Check,
        base: &Base,
        now: Tick,
    ) -> Result<bool, StoreError> {
        let restored = match base.credits.until() > now {
            true => store.restore_credits(check, &base.credits).await?.changed,
            false => 0,
        };
        self.set_balance_known(check, now.saturating_add(KNOWN));
        Ok(restored > 0)
    }

    /// Changes a balance in the store and the ledger, or tells it.
    pub(crate) fn change_credits(
        self: &Arc<Self>,
        store: &Arc<dyn RuleStore>,
        check: &Check,
        change: CreditChange,
        id: &str,
    ) -> Step<Result<Balance, StoreError>> {
        let (this, store, check) = (Arc::clone(self), Arc::clone(store), *check);
        let id: Arc<str> = id.into();
        Step::Wait(Pending::new(async move {
            let now = this.clock.now();
            match this.base(&check, now, PATIENCE, None).await {
                Some(base) => drop(this.restore_balance(&*store, &check, &base, now).await?),
                None if change == CreditChange::Query => {}
                None => return Err(unwritten("nothing was changed")),
            }
            let balance = store.credits(&check, change).await?;
            let changed = balance.changed;
            let entry = CreditEntry {
                change,
                id,
                changed,
            };
            if change != CreditChange::Query {
                let written = this.base(&check, now, PATIENCE, Some(entry)).await;
                written
                    .ok_or_else(|| unwritten("the store has the change, and the ledger may not"))?;
            }
            Ok(balance)
        }))
    }
}

fn unwritten(what: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Timeout,
        format!(
            "the ledger of this durable rule does not answer: {what}; repeat the call as it was"
        ),
    )
}

/// The holds of a reservation that a ledger releases: what a balance has paid stays paid.
fn of_windows(id: u128, holds: &[Hold]) -> impl Iterator<Item = (&Hold, HoldId)> {
    let held = (0..).zip(holds);
    held.filter(|(_, hold)| hold.source != Source::Credits && hold.check.cost() > 0)
        .map(move |(index, hold)| (hold, (id, index)))
}
