//! One rule in the encoding of the script.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    AlgorithmKind, Block, Mode, Quota, Rule, RuleSet, Tick,
    algorithm::{Algorithm as _, Gcra, SlidingWindow},
    calendar::Calendar,
    store::Fingerprint,
};

use crate::keys::keyspace::VERSION;

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
    /// Of slots.
    term: Duration,
    /// By plan. `None`: without a limit.
    pub(crate) plans: Box<[Option<[u8; IDENTITY]>]>,
    /// The overflow bucket for clients beyond the cap on new keys, if there is a cap.
    pub(crate) overflow: Option<Fingerprint>,
    /// For how long requests wait for units at most, in µs, if they do.
    pub(crate) wait: Option<u64>,
    /// How many units a key may owe.
    pub(crate) debt: u64,
    /// Whether a state that is lost is begun with what a ledger knows.
    pub(crate) durable: bool,
    /// Whether keys have balances.
    pub(crate) has_credits: bool,
    /// Whether any of its quotas may be one of a calendar.
    pub(crate) may_have_calendar: bool,
    /// When it blocks keys: the setting as `blocks.lua` reads it, up to what the caller has counted.
    pub(crate) block: Option<Box<[u8]>>,
    /// Whether denials count towards a block.
    pub(crate) counts_denials: bool,
    /// Where repeated requests cost nothing: for how long ids are known, and how many may repeat one, `<dB`.
    pub(crate) ids: Option<[u8; 9]>,
}

tollgate_core::debug_fields!(RuleArgs, it => name: it.name, plans: it.plans.len());

impl RuleArgs {
    pub(crate) fn new(rules: &RuleSet, place: usize) -> Self {
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
            term: SLOT_TERM,
            name: Arc::clone(owner.shared_name()),
            bit: bit(owner.name()),
            family: quotas
                .iter()
                .find_map(|quota| family(quota))
                .unwrap_or(b'-'),
            role,
            off,
            plans: quotas
                .iter()
                .map(|quota| identity(quota, SLOT_TERM))
                .collect(),
            overflow: None,
            may_have_calendar: rule.has_variable_quota()
                || quotas.iter().any(|quota| quota.calendar_of().is_some()),
            wait: rule
                .at_most_wait()
                .filter(|_| role != THRESHOLD && !rule.has_slots())
                .and_then(|at_most| u64::try_from(at_most.as_micros()).ok()),
            debt: rule.debt_of(),
            durable: rule.is_durable() && role == ENFORCED,
            has_credits: rule.has_credits() && role == ENFORCED && !off,
            block: rule.block_setting().map(block_setting),
            counts_denials: rule
                .block_setting()
                .is_some_and(|block| !block.counts_settled()),
            ids: rule.idempotent_for().map(|(period, repeats)| {
                let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
                let [a, b, c, d, e, f, g, h] = double(micros);
                [a, b, c, d, e, f, g, h, repeats]
            }),
        }
    }

    /// Sets another term of slots.
    pub(crate) fn set_term(&mut self, term: Duration) {
        self.term = term;
        for (plan, identity) in self.plans.iter_mut().enumerate() {
            *identity = self::identity(self.rule.quota_of(plan), term);
        }
    }

    /// Whether it is about slots.
    pub(crate) fn is_of_slots(&self) -> bool {
        self.family == SLOTS
    }

    /// Whether requests take slots of it: those of a threshold are only read.
    pub(crate) fn takes_slots(&self) -> bool {
        self.is_of_slots() && self.role != THRESHOLD
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
        identity(&self.rule.quota_under(usize::from(plan)), self.term)
    }
}

/// The setting of a block, `<I2dd` and `<d` for each time.
fn block_setting(block: &Block) -> Box<[u8]> {
    let micros = |time: Duration| double(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    // A block is after 1 000 denials at most.
    let mut setting = (block.denials() as u16).to_le_bytes().to_vec();
    setting.extend(micros(block.period()));
    setting.extend(micros(block.forgotten_after()));
    setting.extend(block.times().iter().flat_map(|time| micros(*time)));
    setting.into()
}

/// The bit of a name: 6 bits of its hash.
fn bit(name: &str) -> u64 {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    1 << (hash >> 58)
}

/// The letter of balances, whatever the algorithm.
pub(crate) const BALANCES: u8 = b'g';

/// The letter of an algorithm's states.
fn family(quota: &Quota) -> Option<u8> {
    Some(match quota.algorithm() {
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => b'a',
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
