//! Credits: a balance next to a quota, with an end.
//!
//! [`CreditState`] is what a store keeps of a rule and key, apart from what the rule counts, so that nothing that changes the rule or
//! resets the key touches it. Its methods are pure: a store tells the time and makes the step atomic. `credits.lua` and
//! `credits_change.lua` of tollgate-redis are the same in Lua.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    error::{StoreError, StoreErrorKind},
    macros::{FNV, fnv},
    quota::MAX_UNITS,
    time::{Tick, micros},
};

/// The most grants of a rule and key that have not ended: the store knows each by its id until then.
pub const MOST_GRANTS: usize = 256;

/// What a key has in [credits](crate::Rule::credits) of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// The units that are left.
    pub units: u64,
    /// Until when they may be used; `None`: nothing was granted, or it has ended.
    pub until: Option<SystemTime>,
    /// The units that this call has granted or taken back: 0 if it was repeated, and nothing changed.
    pub changed: u64,
}

/// What becomes of a balance, apart from requests: for stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreditChange {
    /// Units are added, unless this id has added some before.
    Grant {
        /// How many.
        units: u64,
        /// Until when. It prolongs the units that are there.
        until: Tick,
        /// A hash of the grant's id.
        id: u64,
    },
    /// Units of the grant with this id are taken back, as far as they are left.
    Revoke {
        /// A hash of the grant's id.
        id: u64,
    },
    /// Units are added or, below 0, taken away as far as they are there: what a ledger has more or less.
    Correct(i64),
    /// Nothing.
    Query,
}

/// Why a store does not change a balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreditRefusal {
    /// The grant would have ended by the store's clock.
    Ended,
    /// [`MOST_GRANTS`] have not ended.
    TooManyGrants,
    /// The balance would be above [`MAX_UNITS`].
    TooManyUnits,
    /// The store has no room for one more balance.
    NoRoom,
}

/// The latest end, in the year 2112.
const LAST: Tick = 1 << 52;
/// The longest id.
const LONGEST_ID: usize = 256;

impl CreditChange {
    /// A grant, or what is wrong with it.
    pub(crate) fn grant(units: u64, until: SystemTime, id: &str) -> Result<Self, String> {
        if !(1..=MAX_UNITS).contains(&units) {
            return Err(format!(
                "a grant of {units} units is not between 1 and {MAX_UNITS}"
            ));
        }
        let until = until.duration_since(UNIX_EPOCH).map_or(0, micros);
        if until >= LAST {
            return Err("a grant ends before the year 2112; take a year or ten".into());
        }
        let id = grant_hash(id)?;
        Ok(Self::Grant { units, until, id })
    }

    /// The end of a grant, or what is wrong with its id.
    pub(crate) fn revoke(id: &str) -> Result<Self, String> {
        Ok(Self::Revoke {
            id: grant_hash(id)?,
        })
    }
}

/// What a store knows a grant by: the same in all processes and versions. Or what is wrong with its id.
pub fn grant_hash(id: &str) -> Result<u64, String> {
    // Postgres takes no text with a byte that is 0.
    if id.is_empty() || id.len() > LONGEST_ID || id.contains('\0') {
        return Err(format!(
            "the id of a grant has {} bytes, or one that is 0; take one of 1 to {LONGEST_ID}, such as the number of the invoice: it makes \
             a repeated call grant nothing twice",
            id.len()
        ));
    }
    // Ids that differ in their last letters have different hashes, and others by 2^-64.
    Ok(fnv(FNV, id.as_bytes()))
}

impl Balance {
    /// A balance that ends at this time by the clock whose time is `now`.
    #[must_use]
    pub fn new(units: u64, until: Tick, now: Tick, changed: u64) -> Self {
        let is_live = until > now;
        Self {
            units: if is_live { units } else { 0 },
            until: is_live.then(|| UNIX_EPOCH + Duration::from_micros(until)),
            changed,
        }
    }
}

impl From<CreditRefusal> for StoreError {
    fn from(refusal: CreditRefusal) -> Self {
        let message = match refusal {
            CreditRefusal::Ended => {
                "the grant has ended already, by the clock of the store; give it an end that is to come".into()
            }
            CreditRefusal::TooManyGrants => format!(
                "{MOST_GRANTS} grants of this key have not ended, and each is known by its id until then; grant more at once, or \
                 with an earlier end"
            ),
            CreditRefusal::TooManyUnits => {
                format!("the balance would be above {MAX_UNITS} units; grant less")
            }
            CreditRefusal::NoRoom => {
                "the store has no room for one more balance, and takes none away for it; raise `bytes_per_rule`".into()
            }
        };
        Self::new(StoreErrorKind::Refused, message)
    }
}

/// What is kept of a rule and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreditState {
    units: u64,
    until: Tick,
    grants: Vec<CreditGrant>,
}

/// A grant that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CreditGrant {
    id: u64,
    /// 0 once it was taken back.
    units: u64,
    until: Tick,
}

impl CreditState {
    /// The units that are left.
    #[must_use]
    pub fn units(&self, now: Tick) -> u64 {
        match self.until > now {
            true => self.units,
            false => 0,
        }
    }

    /// When it ends.
    #[must_use]
    pub fn until(&self) -> Tick {
        self.until
    }

    /// Takes up to `units`, and says how many.
    pub fn take(&mut self, now: Tick, units: u64) -> u64 {
        let taken = units.min(self.units(now));
        self.units -= taken;
        taken
    }

    /// Gives units back that were taken. After the end they lapse.
    pub fn give_back(&mut self, now: Tick, units: u64) {
        if self.until > now {
            self.units = self.units.saturating_add(units).min(MAX_UNITS);
        }
    }

    /// Grants or revokes, and says how many units changed.
    ///
    /// # Errors
    ///
    /// A grant that cannot be. Nothing has changed then.
    pub fn change(&mut self, now: Tick, change: CreditChange) -> Result<u64, CreditRefusal> {
        if self.until <= now {
            *self = Self::default();
        }
        self.grants.retain(|grant| grant.until > now);
        let id = match change {
            CreditChange::Grant { id, .. } | CreditChange::Revoke { id } => id,
            CreditChange::Correct(units) => {
                let before = self.units;
                match u64::try_from(units) {
                    Ok(units) => self.give_back(now, units),
                    Err(_) => drop(self.take(now, units.unsigned_abs())),
                }
                return Ok(before.abs_diff(self.units));
            }
            CreditChange::Query => return Ok(0),
        };
        let known = self.grants.iter_mut().find(|grant| grant.id == id);
        let (units, until) = match (change, known) {
            (CreditChange::Grant { units, until, .. }, None) => (units, until),
            (CreditChange::Revoke { .. }, Some(grant)) => {
                let granted = std::mem::take(&mut grant.units);
                return Ok(self.take(now, granted));
            }
            _ => return Ok(0),
        };
        if until <= now {
            return Err(CreditRefusal::Ended);
        }
        if self.grants.len() >= MOST_GRANTS {
            return Err(CreditRefusal::TooManyGrants);
        }
        if self.units.saturating_add(units) > MAX_UNITS {
            return Err(CreditRefusal::TooManyUnits);
        }
        self.units += units;
        self.until = self.until.max(until);
        self.grants.push(CreditGrant { id, units, until });
        Ok(units)
    }

    /// What a call says of it that has changed so many units.
    #[must_use]
    pub fn balance(&self, now: Tick, changed: u64) -> Balance {
        Balance::new(self.units, self.until, now, changed)
    }

    /// What a ledger has: the units, their end, and each grant that has not ended, by its hash, with its units (0 once it was taken back)
    /// and its end.
    #[must_use]
    pub fn of_ledger(
        units: u64,
        until: Tick,
        grants: impl IntoIterator<Item = (u64, u64, Tick)>,
    ) -> Self {
        let grant = |(id, units, until)| CreditGrant { id, units, until };
        Self {
            units: units.min(MAX_UNITS),
            until,
            grants: grants.into_iter().take(MOST_GRANTS).map(grant).collect(),
        }
    }

    /// The grants, as [`of_ledger`](Self::of_ledger) takes them.
    pub fn grants(&self) -> impl Iterator<Item = (u64, u64, Tick)> {
        let grants = self.grants.iter();
        grants.map(|grant| (grant.id, grant.units, grant.until))
    }

    /// The heap memory in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.grants.capacity() * size_of::<CreditGrant>()
    }
}
