//! Reservations: what a request holds, as it leaves its process. How to make one and redeem it is in
//! [`redeem`](crate::ReservationTicket).

use std::{
    error::Error,
    fmt,
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
};

use crate::{
    algorithm::{GcraState, Taken},
    check::Check,
    error::StoreError,
    hold::{Hold, Settlement},
    key::Fingerprint,
    rule::Rule,
    rule_set::RuleSet,
    variable_quota::CheckQuota,
};

/// How a text of a reservation begins, with the version of its format.
const PREFIX: &str = "tollgate1-";
/// Far more than a request with many rules needs.
const MOST_LETTERS: usize = 65_536;

/// A reservation as a text: put it onto a queue, into a database or a message. [`Limiter::redeem`](crate::Limiter::redeem) gives
/// the ticket back that was [made a reservation](crate::Ticket::into_reservation).
///
/// It has letters, digits, `-` and `_`, some 250 for each rule. It shows no key. Whoever has it can settle the request, once.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reservation(Box<str>);

impl Reservation {
    /// The reservation that a store has written as these letters, digits, `-` and `_`.
    #[must_use]
    pub fn of_store(letters: &str) -> Self {
        Self(format!("{PREFIX}{letters}").into())
    }

    /// What the store has written.
    #[must_use]
    pub fn letters(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl FromStr for Reservation {
    type Err = ReservationError;

    /// # Errors
    ///
    /// The text is not that of a reservation. Whether the store knows it shows when it is redeemed.
    fn from_str(text: &str) -> Result<Self, ReservationError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let letters = text.strip_prefix(PREFIX).unwrap_or_default();
        match letters.len() {
            1..=MOST_LETTERS if letters.bytes().all(is_letter) => Ok(Self(text.into())),
            _ => Err(ReservationError::new(
                ReservationErrorKind::Text,
                format!(
                    "a text of {} bytes is no reservation; one begins with {PREFIX:?}, followed by letters, digits, `-` and `_`",
                    text.len()
                ),
            )),
        }
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Without the text: it settles the request.
impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reservation(..)")
    }
}

/// Why a request was not reserved, or a reservation not redeemed.
pub struct ReservationError {
    kind: ReservationErrorKind,
    message: String,
    source: Option<StoreError>,
}

/// What a [`ReservationError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservationErrorKind {
    /// There is nothing left to settle: it was settled or cancelled before, its term has ended, the store has lost it, or a rule is gone
    /// or has another algorithm. Its units stay used.
    Gone,
    /// The text was cut or changed, or is that of another store or secret. Nothing has happened to the reservation.
    Text,
    /// The store cannot reserve this, whatever the time.
    Unsupported,
    /// So many reservations are open that there is no room for another one.
    Full,
    /// The store has failed. What is redeemed may be redeemed once more: it is settled once.
    Store,
}

impl ReservationError {
    /// An error of this kind.
    pub fn new(kind: ReservationErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// The store has no record of it.
    #[must_use]
    pub fn gone() -> Self {
        Self::new(
            ReservationErrorKind::Gone,
            "the reservation is gone: it was settled or cancelled before, its term has ended, or the store has lost it; \
             its units stay used",
        )
    }

    /// The text is not one that this store has written.
    #[must_use]
    pub fn foreign() -> Self {
        Self::new(
            ReservationErrorKind::Text,
            "the text of the reservation was cut or changed, or is of another store, namespace or secret; redeem it as it was \
             written, on the store that has written it. Nothing was settled",
        )
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> ReservationErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind == ReservationErrorKind::Full
            || self.source.as_ref().is_some_and(StoreError::is_transient)
    }
}

impl From<StoreError> for ReservationError {
    fn from(failed: StoreError) -> Self {
        Self {
            source: Some(failed),
            ..Self::new(ReservationErrorKind::Store, "the store has failed")
        }
    }
}

impl fmt::Display for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// As it is displayed, with what caused it: it comes out of `main`.
impl fmt::Debug for ReservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for ReservationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// What is reserved: the holds of one request, and the id of the record that the store keeps of them.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// Drawn at random.
    pub id: u128,
    /// The units. One whose check has a cost of 0 only says where the states of the others lie.
    pub holds: Vec<Hold>,
    /// The slots, once for each rule and key.
    pub slots: Vec<Hold>,
}

/// How holds of a reservation are settled: those of a cost of 0 only say where the states of the others lie.
#[derive(Clone, Debug)]
pub struct ReservedSettlement {
    /// The holds.
    pub holds: Vec<Hold>,
    /// What to do with their units.
    pub how: Settlement,
}

/// What a written hold is, in one byte.
const COUNTS: u8 = 1;
const OF_SLOTS: u8 = 2;
const OF_CHECK: u8 = 4;
const IN_QUEUE: u8 = 8;

impl Reserved {
    pub(crate) fn new(holds: &[Hold], slots: &[Hold]) -> Self {
        // The operating system keys each state.
        let word = || u128::from(RandomState::new().hash_one(PREFIX));
        let mut folded: Vec<Hold> = Vec::new();
        for slot in slots {
            let is_same = |it: &&mut Hold| {
                (it.check.rule(), it.check.key()) == (slot.check.rule(), slot.check.key())
            };
            match folded.iter_mut().find(is_same) {
                Some(same) => {
                    let cost = same.check.cost().saturating_add(slot.check.cost());
                    same.check = same.check.with_cost(cost);
                }
                None => folded.push(*slot),
            }
        }
        Self {
            id: word() << 64 | word(),
            holds: holds.to_vec(),
            slots: folded,
        }
    }

    /// All checks.
    pub fn checks(&self) -> impl Iterator<Item = Check> {
        self.holds.iter().chain(&self.slots).map(|hold| hold.check)
    }

    /// What another process needs to settle it, without the id. `digest` is what stands for a key in all of them; together they tell
    /// who the client is, so a store does not show these bytes.
    pub fn to_bytes(&self, rules: &RuleSet, digest: impl Fn(Fingerprint) -> [u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let units = self.holds.iter().map(|hold| (hold, 0));
        let slots = self.slots.iter().map(|hold| (hold, OF_SLOTS));
        for (hold, is_of_slots) in units.chain(slots) {
            let (check, taken) = (&hold.check, hold.taken);
            let Some(rule) = rules.rules().get(usize::from(check.rule())) else {
                continue;
            };
            let plan = usize::from(check.plan());
            let quota = rule.quota_under(plan);
            let (of_check, plan) = match rule.plan_name(plan) {
                Some(name) => (0, name.to_owned()),
                None if plan < rule.quotas() => (0, String::new()),
                None => (OF_CHECK, quota.to_string()),
            };
            let in_queue = hold.before.map_or(0, |_| IN_QUEUE);
            let counts = if hold.counts { COUNTS } else { 0 };
            bytes.push(counts | is_of_slots | of_check | in_queue);
            for text in [rule.name(), quota.algorithm().name(), &plan] {
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            bytes.extend(digest(check.key()));
            for number in [check.cost(), taken.at, taken.fresh_at, hold.number] {
                bytes.extend(number.to_le_bytes());
            }
            if let Some(before) = hold.before {
                bytes.extend(before.tat().to_le_bytes());
                bytes.extend(before.rest().to_le_bytes());
                bytes.extend(before.cut().to_le_bytes());
            }
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written, for rules as they are now.
    ///
    /// # Errors
    ///
    /// A rule is gone or has another algorithm, or the bytes are none that were written.
    pub fn from_bytes(
        id: u128,
        bytes: &[u8],
        rules: &RuleSet,
        key: impl Fn([u8; 16]) -> Fingerprint,
    ) -> Result<Self, ReservationError> {
        let (mut holds, mut slots, mut reader) = (Vec::new(), Vec::new(), Reader(bytes));
        while !reader.0.is_empty() {
            let written = reader.hold().ok_or_else(ReservationError::foreign)?;
            let hold = written.under(rules, &key)?;
            match written.flags & OF_SLOTS {
                0 => holds.push(hold),
                _ => slots.push(hold),
            }
        }
        Ok(Self { id, holds, slots })
    }
}

struct Reader<'a>(&'a [u8]);

/// A hold as it was written.
struct WrittenHold<'a> {
    flags: u8,
    rule: &'a str,
    algorithm: &'a str,
    plan: &'a str,
    digest: [u8; 16],
    cost: u64,
    taken: Taken,
    number: u64,
    before: Option<GcraState>,
}

impl<'a> Reader<'a> {
    fn take<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.take().map(u32::from_le_bytes)? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }

    fn hold(&mut self) -> Option<WrittenHold<'a>> {
        let [flags] = self.take()?;
        let mut written = WrittenHold {
            flags,
            rule: self.text()?,
            algorithm: self.text()?,
            plan: self.text()?,
            digest: self.take()?,
            cost: self.number()?,
            taken: Taken::new(self.number()?, self.number()?),
            number: self.number()?,
            before: None,
        };
        if flags & IN_QUEUE != 0 {
            let (tat, mut word) = (self.number()?, || self.take().map(u32::from_le_bytes));
            written.before = Some(GcraState::new(tat, word()?, word()?));
        }
        Some(written)
    }
}

impl WrittenHold<'_> {
    fn under(
        &self,
        rules: &RuleSet,
        key: impl Fn([u8; 16]) -> Fingerprint,
    ) -> Result<Hold, ReservationError> {
        let given = rules.given().iter();
        let mut given = given.enumerate().map(|(index, rule)| {
            let quota = self.quota(rule);
            (index, quota, rule.quota_under(usize::from(quota.plan())))
        });
        let found = rules.position(self.rule).and_then(|at| given.nth(at));
        let found = found.filter(|(.., quota)| quota.algorithm().name() == self.algorithm);
        let Some((index, quota, _)) = found else {
            return Err(ReservationError::new(
                ReservationErrorKind::Gone,
                format!(
                    "the reservation is gone: there is no rule {:?} with the algorithm {} any more; its units stay used",
                    self.rule, self.algorithm
                ),
            ));
        };
        // A rule set has fewer than 65 536 rules.
        let check = Check::new(index as u16, key(self.digest), self.cost).with_quota(quota);
        Ok(Hold {
            before: self.before,
            number: self.number,
            counts: self.flags & COUNTS != 0,
            ..Hold::of_store(check, self.taken)
        })
    }

    /// The quota that it was taken under, or the rule's own where that is gone: units are converted then.
    fn quota(&self, rule: &Rule) -> CheckQuota {
        let found = match self.flags & OF_CHECK {
            0 => rule
                .plan_number(self.plan)
                // A rule has fewer than 65 535 plans.
                .map(|plan| CheckQuota::of_plan(plan as u16)),
            _ => (self.plan.parse().ok()).and_then(|quota| rule.quota_for(quota).ok()),
        };
        found.unwrap_or(CheckQuota::of_plan(0))
    }
}
