//! Reservations: what a request holds, as it leaves its process. How to make one and redeem it is in
//! [`redeem`](crate::types::ReservationTicket).

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
};

use crate::{
    algorithm::Taken,
    check::Check,
    error::{StoreError, StoreErrorKind},
    hold::{Hold, Source},
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
/// It has ASCII letters, digits and `-`, some 300 for each rule, and shows no key. The first holder who settles the request settles it; later ones get `Gone`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reservation(Box<str>);

impl Reservation {
    /// The reservation that a store has written as these letters and digits.
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
    type Err = StoreError;

    /// # Errors
    ///
    /// The text is not that of a reservation. Whether a store has written it shows when it is redeemed.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let letters = text.strip_prefix(PREFIX).unwrap_or_default();
        match letters.len() {
            1..=MOST_LETTERS if letters.bytes().all(|it| it.is_ascii_alphanumeric()) => {
                Ok(Self(text.into()))
            }
            _ => Err(StoreError::new(
                StoreErrorKind::Foreign,
                format!(
                    "a text of {} bytes is no reservation; one is {PREFIX:?}, followed by letters and digits",
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

// Without the text: it settles the request.
crate::debug_fields!(Reservation);

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

/// What a written hold is, in one byte: it counts towards a block, is one of slots, has a quota that its check has brought along, was
/// taken from a balance.
const COUNTS: u8 = 1;
const OF_SLOTS: u8 = 2;
const OF_CHECK: u8 = 4;
const ON_CREDITS: u8 = 8;

impl Reserved {
    pub(crate) fn new(holds: &[Hold], slots: &[Hold]) -> Self {
        // The operating system keys each state.
        let word = || u128::from(RandomState::new().hash_one(PREFIX));
        let mut folded: Vec<Hold> = Vec::new();
        for slot in slots {
            let of = |hold: &Hold| (hold.check.rule(), hold.check.key());
            match folded.iter_mut().find(|same| of(same) == of(slot)) {
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

    /// What another process needs to settle it, without the id. `digest` is what stands for a key in all of them. A store shows nobody
    /// these bytes: they tell who the client is.
    pub fn to_bytes(&self, rules: &RuleSet, digest: impl Fn(Fingerprint) -> [u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let units = self.holds.iter().map(|hold| (hold, 0));
        let slots = self.slots.iter().map(|hold| (hold, OF_SLOTS));
        for (hold, is_of_slots) in units.chain(slots) {
            let (check, plan) = (&hold.check, usize::from(hold.check.plan()));
            let Some(rule) = rules.rules().get(usize::from(check.rule())) else {
                continue;
            };
            let quota = rule.quota_under(plan);
            let (of_check, plan) = match rule.plan_name(plan) {
                None if plan >= rule.quotas() => (OF_CHECK, quota.to_string()),
                name => (0, name.unwrap_or_default().to_owned()),
            };
            let counts = if hold.counts { COUNTS } else { 0 };
            let on_credits = match hold.source {
                Source::Credits => ON_CREDITS,
                _ => 0,
            };
            bytes.push(counts | is_of_slots | of_check | on_credits);
            for text in [rule.name(), quota.algorithm().name(), &plan] {
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            bytes.extend(digest(check.key()));
            let taken = hold.taken;
            for number in [check.cost(), check.id, taken.at, taken.fresh_at] {
                bytes.extend(number.to_le_bytes());
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
        mut bytes: &[u8],
        rules: &RuleSet,
        key: impl Fn([u8; 16]) -> Fingerprint,
    ) -> Result<Self, StoreError> {
        let (mut holds, mut slots) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            let (flags, hold) = read_hold(&mut bytes, rules, &key).ok_or_else(foreign)??;
            match flags & OF_SLOTS {
                0 => holds.push(hold),
                _ => slots.push(hold),
            }
        }
        Ok(Self { id, holds, slots })
    }
}

/// The text is not one that this store has written.
pub fn foreign() -> StoreError {
    StoreError::new(
        StoreErrorKind::Foreign,
        "the text of the reservation was cut or changed, or is of another store, namespace or secret; redeem it as it was \
         written, on the store that has written it. Nothing was settled",
    )
}

/// The store has no record of a reservation.
pub fn gone() -> StoreError {
    StoreError::new(
        StoreErrorKind::Gone,
        "the reservation is gone: it was settled or cancelled before, its term has ended, or the store has lost it; \
         its units stay used",
    )
}

fn take<const LEN: usize>(bytes: &mut &[u8]) -> Option<[u8; LEN]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*head)
}

fn read_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let len = take(bytes).map(u32::from_le_bytes)? as usize;
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    str::from_utf8(text).ok()
}

/// The next hold under the rule that has its name now, with its flags.
fn read_hold(
    bytes: &mut &[u8],
    rules: &RuleSet,
    key: impl Fn([u8; 16]) -> Fingerprint,
) -> Option<Result<(u8, Hold), StoreError>> {
    let [flags] = take(bytes)?;
    let (name, algorithm) = (read_text(bytes)?, read_text(bytes)?);
    let (plan, digest) = (read_text(bytes)?, take(bytes)?);
    let mut number = || take(bytes).map(u64::from_le_bytes);
    let (cost, id) = (number()?, number()?);
    let taken = Taken::new(number()?, number()?);
    let index = rules.position(name);
    let rule = index.and_then(|index| rules.given().get(index));
    let quota = rule.map(|rule| (rule, quota(rule, plan, flags & OF_CHECK != 0)));
    let found = index.zip(quota.filter(|(rule, quota)| {
        let quota = rule.quota_under(usize::from(quota.plan()));
        quota.algorithm().name() == algorithm
    }));
    let Some((index, (_, quota))) = found else {
        return Some(Err(StoreError::new(
            StoreErrorKind::Gone,
            format!(
                "the reservation is gone: there is no rule {name:?} with the algorithm {algorithm} any more; its units stay used"
            ),
        )));
    };
    // A rule set has fewer than 65 536 rules.
    let mut check = Check::new(index as u16, key(digest), cost).with_quota(quota);
    if id > 0 {
        check = check.with_id(Fingerprint::from_bits(u128::from(id)));
    }
    let mut hold = Hold::of_store(check, taken);
    hold.counts = flags & COUNTS != 0;
    if flags & ON_CREDITS != 0 {
        hold.source = Source::Credits;
    }
    Some(Ok((flags, hold)))
}

/// The quota that units were taken under, or the rule's own where that is gone: they are converted then.
fn quota(rule: &Rule, plan: &str, of_check: bool) -> CheckQuota {
    let found = match of_check {
        true => (plan.parse().ok()).and_then(|quota| rule.quota_for(quota).ok()),
        // A rule has fewer than 65 535 plans.
        false => (rule.plan_number(plan)).map(|plan| CheckQuota::of_plan(plan as u16)),
    };
    found.unwrap_or(CheckQuota::of_plan(0))
}
