//! Rule sets in the encoding of the script.
//!
//! The constant parts, the names of the rules and the bytes of their quotas, are encoded once. A
//! [`ScriptCall`](crate::script::args::ScriptCall) is then filled with requests.

use std::{iter, sync::Arc, time::Duration};

use tollgate_core::{
    AlgorithmKind, Block, Check, KeyBuf, Mode, PartKind, Quota, Rule, RuleError, RuleErrorKind,
    RuleSet, Tick,
    algorithm::{Algorithm as _, Gcra, SlidingWindow},
    calendar::Calendar,
    micros,
    store::Fingerprint,
};
use tollgate_prefilter::Places;

use crate::keys::{
    keys::Name,
    keyspace::{Bytes, Keyspace, Partition, VERSION, hash_tag_in},
};

/// A rule set in the encoding of the script.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) keyspace: Keyspace,
    rules: Box<[RuleArgs]>,
    /// Where the states of requests lie, in a cluster or on one server.
    pub(crate) places: Places,
    /// Whether a quota may be one of a calendar.
    pub(crate) has_calendars: bool,
    /// Whether any rule takes credits.
    has_credits: bool,
}

impl Encoder {
    #[cfg(test)]
    pub(crate) fn new(rules: &RuleSet, keyspace: Keyspace) -> Result<Self, RuleError> {
        Self::with_caps(rules, keyspace, SLOT_TERM, false, |_| false)
    }

    /// Prepares a rule set. An owner of slots is known for `slot_term` that is not heard from. `is_capped`: whether a rule has a cap on new
    /// states. A check that must not make one is decided against one bucket of the rule that all such share. See
    /// [`ScriptCall::request`](crate::script::args::ScriptCall::request).
    ///
    /// # Errors
    ///
    /// A partition by a rule that there is not, or that is not enforced; a cap on a threshold, which has no state of its own.
    pub(crate) fn with_caps(
        rules: &RuleSet,
        keyspace: Keyspace,
        slot_term: Duration,
        is_cluster: bool,
        is_capped: impl Fn(&Rule) -> bool,
    ) -> Result<Self, RuleError> {
        let with = match &keyspace.partition {
            Partition::ByRule(name) => Some(rule_that_partitions(rules, name)?),
            _ => None,
        };
        let lines = (0..rules.rules().len()).map(|place| RuleArgs::new(rules, place, slot_term));
        let lines: Box<[_]> = lines.collect();
        let are_several = is_cluster && keyspace.partition != Partition::One;
        let mut encoder = Self {
            keyspace,
            places: Places { are_several, with },
            has_calendars: lines.iter().any(|rule| rule.may_have_calendar),
            has_credits: rules.has_credits(),
            rules: lines,
        };
        // A part of its own, so that it is not the bucket of requests without a key.
        let mut key = KeyBuf::new();
        key.push(PartKind::SHARED, b"overflow");
        let capped = rules.rules().iter().enumerate();
        for (place, rule) in capped.filter(|(_, rule)| is_capped(rule)) {
            if encoder.rules[place].role == THRESHOLD {
                let why = "a cap on new keys needs a rule of this name that has states of its own";
                return Err(RuleError::new(RuleErrorKind::Store, rule.name(), why));
            }
            // A rule set has fewer than 65 536 rules.
            let overflow = encoder.fingerprint(place as u16, &key);
            encoder.rules[place].overflow = Some(overflow);
        }
        let has_hash_slot_tags = |rule: &RuleArgs| rule.durable || rule.overflow.is_some();
        if encoder.keyspace.partition != Partition::One
            && encoder.rules.iter().any(has_hash_slot_tags)
        {
            // It is slow the first time, and a request must not wait for it.
            let _ = hash_tag_in(0);
        }
        Ok(encoder)
    }

    /// What stands for a key, for the rule at a place.
    ///
    /// The rule's name is part of the hash, so that the names in Redis do not show which clients of two rules are the same.
    /// The exception is a client that determines the hash slot, which all rules of a request share.
    pub(crate) fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        let rule_args = self.rule(rule);
        let domain = match (&self.keyspace.partition, rule_args) {
            (Partition::Key, _) | (_, None) => &b""[..],
            (_, Some(rule_args)) => rule_args.name.as_bytes(),
        };
        self.keyspace.keys.fingerprint(domain, key)
    }

    /// What stands for the id of a check in its state, as the name of the state stands for its key; and how its rule takes ids.
    pub(crate) fn id_of(&self, rule_args: &RuleArgs, check: &Check) -> Option<([u8; 8], [u8; 9])> {
        let (terms, id) = rule_args.ids.zip(check.id()).filter(|_| check.cost() > 0)?;
        let id = Fingerprint::from_bits(id.get().into());
        match self.keyspace.keys.names(id).0 {
            Name::Hash(id) => Some(((id.bits() as u64).to_le_bytes(), terms)),
            // None was made of a text.
            Name::Text(_) => None,
        }
    }

    /// Whether a state of the rule at a place is found by its client alone, as a reset has to.
    pub(crate) fn is_found_alone(&self, rule: u16) -> bool {
        self.places.with.is_none_or(|with| with == rule)
    }

    /// The rule whose client determines the hash slot of these checks, if it is not among them.
    pub(crate) fn lies_with_another(&self, checks: &[Check]) -> Option<&str> {
        let with =
            (self.places.with).filter(|with| checks.iter().all(|check| check.rule() != *with))?;
        self.rule(with).map(|rule_args| &*rule_args.name)
    }

    /// The client that decides about the hash slot of these checks, if it is another than each one's own.
    pub(crate) fn with(&self, mut checks: impl Iterator<Item = Check>) -> Option<Fingerprint> {
        let with = self.places.with?;
        checks
            .find(|check| check.rule() == with)
            .map(|check| check.key())
    }

    /// The names of the balance of a check: of two secrets that by the newer, then that by the older.
    pub(crate) fn balance_names(&self, check: &Check) -> Vec<Bytes> {
        let Some(rule) = self.rule(check.rule()) else {
            return Vec::new();
        };
        let (newer, older) = self.keyspace.keys.names(check.key());
        let write = |name: Name| {
            let mut bytes = Bytes::new();
            (self.keyspace).write_name(&mut bytes, &rule.name, BALANCES, &name, None);
            bytes
        };
        iter::once(newer).chain(older).map(write).collect()
    }

    /// Whether the client of this rule determines the hash slot: the rule of the partition, or a threshold of it.
    pub(crate) fn is_with(&self, rule: u16) -> bool {
        let owner = |rule| self.rule(rule).map(|rule_args| &rule_args.name);
        (self.places.with).is_some_and(|with| owner(with) == owner(rule))
    }

    /// A check's rule and quota, if it has to be sent.
    pub(crate) fn args_of(&self, check: &Check) -> Option<(&RuleArgs, [u8; IDENTITY])> {
        let rule_args = self.rule(check.rule())?;
        if rule_args.off {
            return None;
        }
        let plan = match rule_args.plans.get(usize::from(check.plan())) {
            Some(plan) => *plan,
            None => rule_args.brought(check.plan()),
        };
        Some((rule_args, plan?))
    }

    /// For how long a request with these checks waits at most, in µs, as the engine says it.
    #[cfg(test)]
    pub(crate) fn patience(&self, checks: &[Check], patience: Tick) -> Tick {
        let waits = checks
            .iter()
            .filter(|check| check.cost() > 0)
            .filter_map(|check| {
                let (rule_args, _) = self.args_of(check)?;
                rule_args.wait.filter(|_| rule_args.role == ENFORCED)
            });
        waits.fold(patience, u64::min)
    }

    /// As many checks without a balance as have the keys of so many with one, which has two names more.
    pub(crate) fn most_places(&self, checks: usize) -> usize {
        match self.has_credits {
            true => checks + checks.div_ceil(2),
            false => checks,
        }
    }

    /// The rule at a place.
    pub(crate) fn rule(&self, rule: u16) -> Option<&RuleArgs> {
        self.rules.get(usize::from(rule))
    }

    /// The rule at a place and one of its quotas, if any has a limit.
    pub(crate) fn any_args(&self, rule: u16) -> Option<(&RuleArgs, [u8; IDENTITY])> {
        let rule_args = self.rule(rule)?;
        Some((rule_args, *rule_args.plans.iter().flatten().next()?))
    }
}

/// The place of the rule that a partition names.
fn rule_that_partitions(rules: &RuleSet, name: &str) -> Result<u16, RuleError> {
    let place = rules.position(name).filter(|place| rules.enforces(*place));
    // A rule set has fewer than 65 536 rules.
    place.map(|place| place as u16).ok_or_else(|| {
        RuleError::new(
            RuleErrorKind::Store,
            name,
            "a partition needs an enforced rule of this name; name one that every request has, or take `Partition::One`",
        )
    })
}

// One rule in the encoding of the script.

/// The role of a rule that decides.
pub(crate) const ENFORCED: u8 = 0;

/// The same with the balance of the key.
pub(crate) const WITH_BALANCE: u8 = 3;

/// The role of a rule that is read on the state of another.
pub(crate) const THRESHOLD: u8 = 2;

/// How long an owner of slots is known that is not heard from.
pub(crate) const SLOT_TERM: Duration = Duration::from_secs(15);

/// The letter of the states of slots.
const SLOTS: u8 = b'c';

/// The bytes of a quota in an argument and in a state.
pub(crate) const IDENTITY: usize = 21;

/// A rule in the encoding of the script.
pub(crate) struct RuleArgs {
    /// The rule that owns the state: this one, or the one whose threshold it is.
    pub(crate) name: Arc<str>,
    /// One bit of 64, by the name. Redis permissions go by the names of keys, which contain the rule's name.
    pub(crate) bit: u64,
    pub(crate) family: u8,
    pub(crate) role: u8,
    /// Whether the rule is off: its checks are not sent, but its states can be reset.
    pub(crate) off: bool,
    rule: Rule,
    slot_term: Duration,
    /// By plan. `None`: without a limit.
    pub(crate) plans: Box<[Option<[u8; IDENTITY]>]>,
    /// The overflow bucket for clients beyond the cap on new keys, if there is a cap.
    pub(crate) overflow: Option<Fingerprint>,
    /// For how long requests wait for units at most, in µs, if they do.
    pub(crate) wait: Option<u64>,
    /// Whether a state that is lost is begun with what a ledger knows.
    pub(crate) durable: bool,
    /// Whether keys have balances.
    pub(crate) has_credits: bool,
    /// Whether any of its quotas may be one of a calendar.
    pub(crate) may_have_calendar: bool,
    /// When it blocks keys: the setting as `blocks.lua` reads it, up to what the caller has counted and behind that.
    pub(crate) block: Option<(Box<[u8]>, [u8; 2])>,
    /// Where repeated requests cost nothing: for how long ids are known, and how many may repeat one, `<dB`.
    pub(crate) ids: Option<[u8; 9]>,
}

tollgate_core::debug_fields!(RuleArgs, it => name: it.name, plans: it.plans.len());

impl RuleArgs {
    pub(crate) fn new(rules: &RuleSet, place: usize, slot_term: Duration) -> Self {
        let rule = &rules.rules()[place];
        let refers_to = rules.refers_to(place);
        let (role, off) = match rule.mode() {
            Mode::Enforce => (ENFORCED, false),
            Mode::Shadow => (1, false),
            Mode::Threshold { .. } => (THRESHOLD, false),
            _ => (0, true),
        };
        let quotas: Vec<&Quota> = (0..rule.quotas()).map(|plan| rule.quota_of(plan)).collect();
        let owner = match refers_to {
            Some(of) if role == THRESHOLD => &rules.rules()[of],
            _ => rule,
        };
        Self {
            rule: rule.clone(),
            slot_term,
            name: Arc::clone(owner.shared_name()),
            bit: 1 << (blake3::hash(owner.name().as_bytes()).as_bytes()[0] % 64),
            family: quotas
                .iter()
                .find_map(|quota| family(quota))
                .unwrap_or(b'-'),
            role,
            off,
            plans: quotas
                .iter()
                .map(|quota| identity(quota, slot_term))
                .collect(),
            overflow: None,
            may_have_calendar: rule.has_variable_quota()
                || quotas.iter().any(|quota| quota.calendar_of().is_some()),
            wait: rule
                .at_most_wait()
                .filter(|_| role != THRESHOLD && !rule.has_slots())
                .and_then(|at_most| u64::try_from(at_most.as_micros()).ok()),
            durable: rule.is_durable() && role == ENFORCED,
            has_credits: rule.has_credits() && role == ENFORCED && !off,
            block: rule.block_setting().map(block_setting),
            ids: rule.idempotent_for().map(|(period, repeats)| {
                let [a, b, c, d, e, f, g, h] = double(micros(period));
                [a, b, c, d, e, f, g, h, repeats]
            }),
        }
    }

    /// How many units a key may owe.
    pub(crate) fn debt(&self) -> u64 {
        self.rule.debt_of()
    }

    /// Whether its requests may wait.
    pub(crate) fn may_wait(&self) -> bool {
        self.rule.at_most_wait().is_some()
    }

    /// Whether it is about slots.
    pub(crate) fn is_of_slots(&self) -> bool {
        self.family == SLOTS
    }

    /// The calendar of the quota under a plan's number, or one that a check brings along.
    #[inline]
    pub(crate) fn calendar_of(&self, plan: u16) -> Option<Calendar> {
        if !self.may_have_calendar {
            return None;
        }
        self.rule.quota_under(usize::from(plan)).calendar_of()
    }

    /// The quota that a check brings along, under a number that is no plan's. `None`: without a limit.
    #[cold]
    pub(crate) fn brought(&self, plan: u16) -> Option<[u8; IDENTITY]> {
        identity(&self.rule.quota_under(usize::from(plan)), self.slot_term)
    }
}

/// The setting of a block: `<I2dd` and `<d` for each time, and `<BB`.
fn block_setting(block: &Block) -> (Box<[u8]>, [u8; 2]) {
    // A block is after 1 000 denials at most.
    let mut setting = (block.denials() as u16).to_le_bytes().to_vec();
    setting.extend(double(micros(block.period())));
    setting.extend(double(micros(block.forgotten_after())));
    setting.extend(block.times().iter().flat_map(|time| double(micros(*time))));
    // And has 32 times at most.
    let behind = [u8::from(!block.counts_settled()), block.times().len() as u8];
    (setting.into(), behind)
}

/// The letter of balances, whatever the algorithm.
pub(crate) const BALANCES: u8 = b'g';

/// The letter of an algorithm's states.
fn family(quota: &Quota) -> Option<u8> {
    Some(match quota.algorithm() {
        algorithm if algorithm.is_bucket() => b'a',
        AlgorithmKind::FixedWindow => b'f',
        AlgorithmKind::SlidingWindow => b'w',
        AlgorithmKind::SlidingLog => b'l',
        AlgorithmKind::SlidingBuckets => b'b',
        AlgorithmKind::Concurrent => SLOTS,
        _ => return None,
    })
}

/// What a quota is in an argument and in a state: `<BddI4`, as `prelude.lua` says.
fn identity(quota: &Quota, slot_term: Duration) -> Option<[u8; IDENTITY]> {
    let period = u64::try_from(quota.period().as_micros()).ok()?;
    let (algorithm, first, third) = match family(quota)? {
        b'a' => {
            let denominator = Gcra::new(quota)?.denominator();
            // The rate is a multiple of the denominator, and this is the numerator in lowest terms.
            (1, period / (quota.rate() / denominator), denominator)
        }
        b'f' => (2, period, 0),
        b'w' => (3, period, SlidingWindow::new(quota)?.resolution()),
        b'l' => (4, period, 0),
        SLOTS => (6, u64::try_from(slot_term.as_micros()).ok()?, 0),
        _ => {
            let buckets = u64::from(quota.bucket_count());
            (5, period.div_ceil(buckets), buckets)
        }
    };
    let mut bytes = [0; IDENTITY];
    bytes[0] = VERSION << 4 | algorithm;
    bytes[1..9].copy_from_slice(&double(first));
    bytes[9..17].copy_from_slice(&double(quota.limit()));
    bytes[17..].copy_from_slice(&u32::try_from(third).ok()?.to_le_bytes());
    Some(bytes)
}

/// Puts the window of `now` of a calendar and the next one into the [identity] of its quota, in the places of a period.
pub(crate) fn set_window(identity: &mut [u8], calendar: &Calendar, now: Tick) {
    let (first, lengths) = calendar.in_words(now);
    identity[1..9].copy_from_slice(&double(first));
    identity[17..IDENTITY].copy_from_slice(&lengths.to_le_bytes());
}

/// The algorithm of a check of a rule whose requests wait, in its place in the [identity] of the quota. States have that of the
/// quota: such a rule counts on with what was used before requests waited.
pub(crate) const WAITS: u8 = VERSION << 4;

/// The algorithm of a check of a durable rule, in the same way.
pub(crate) const DURABLE: u8 = VERSION << 4 | 8;

/// A number below 2^53.
pub(crate) fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}
