//! One rule in the encoding of the script.

use std::{fmt, sync::Arc, time::Duration};

use tollgate_core::{
    AlgorithmKind, Mode, OnChange, Quota, Rule, RuleSet,
    algorithm::{Algorithm as _, Gcra, SlidingWindow},
    store::Fingerprint,
};

use crate::keys::keyspace::VERSION;

/// The role of a rule that decides.
pub(crate) const ENFORCED: u8 = 0;

/// The role of a rule that is read on the state of another.
pub(crate) const THRESHOLD: u8 = 2;

/// In the place of a rule: none.
pub(crate) const NONE: u16 = u16::MAX;

/// How long an owner of slots is known that is not heard from.
pub(crate) const SLOT_TERM: Duration = Duration::from_secs(15);

/// The letter of the states of slots.
const SLOTS: u8 = b'c';

/// The bytes of a quota in an argument and in a state.
pub(crate) const IDENTITY: usize = 21;

/// A rule in the encoding of the script.
pub(crate) struct RuleArgs {
    /// The rule that owns the state: this one, or the one whose threshold it is.
    pub(crate) name: Box<str>,
    /// The same in the names of states.
    pub(crate) state_name: Arc<str>,
    /// One bit of 64, by the name. Redis permissions go by the names of keys, which contain the rule's name.
    pub(crate) bit: u64,
    pub(crate) family: u8,
    pub(crate) role: u8,
    /// Whether the rule is off: its checks are not sent, but its states can be reset.
    pub(crate) off: bool,
    /// For a shadow, the index of the rule that it would replace, or [`NONE`].
    pub(crate) instead: u16,
    rule: Rule,
    /// Of slots.
    term: Duration,
    /// By plan. `None`: without a limit.
    pub(crate) plans: Box<[Option<[u8; IDENTITY]>]>,
    /// The quotas of the rule that owns the state, its own first, where used units scale with the limit.
    scales: Option<Box<[[u8; IDENTITY]]>>,
    /// The overflow bucket for clients beyond the cap on new keys, if there is a cap.
    pub(crate) overflow: Option<Fingerprint>,
    /// For how long requests wait for units at most, in µs, if they do.
    pub(crate) wait: Option<u64>,
}

impl fmt::Debug for RuleArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleLine")
            .field("name", &self.name)
            .field("plans", &self.plans.len())
            .finish_non_exhaustive()
    }
}

impl RuleArgs {
    pub(crate) fn new(rules: &RuleSet, place: usize) -> Self {
        let rule = &rules.rules()[place];
        let refers_to = rules.refers_to(place);
        let (role, off) = match rule.mode() {
            Mode::Enforce => (ENFORCED, false),
            Mode::Shadow { .. } => (1, false),
            Mode::Threshold { .. } => (THRESHOLD, false),
            _ => (0, true),
        };
        let quotas: Vec<&Quota> = (0..rule.quotas()).map(|plan| rule.quota_of(plan)).collect();
        let owner = match refers_to {
            Some(of) if role == THRESHOLD => &rules.rules()[of],
            _ => rule,
        };
        let name = owner.name();
        Self {
            rule: rule.clone(),
            term: SLOT_TERM,
            name: name.into(),
            state_name: state_name(owner),
            bit: bit(name),
            family: quotas
                .iter()
                .find_map(|quota| family(quota))
                .unwrap_or(b'-'),
            role,
            off,
            instead: refers_to
                .filter(|_| role == 1)
                .and_then(|of| u16::try_from(of).ok())
                .unwrap_or(NONE),
            plans: quotas
                .iter()
                .map(|quota| identity(quota, SLOT_TERM))
                .collect(),
            scales: (owner.change_answer() == OnChange::Scale && !owner.has_slots())
                .then(|| identities(owner))
                .filter(|all| !all.is_empty()),
            overflow: None,
            wait: rule
                .at_most_wait()
                .filter(|_| role != THRESHOLD && !rule.has_slots())
                .and_then(|at_most| u64::try_from(at_most.as_micros()).ok()),
        }
    }

    /// The same with another term of slots.
    pub(crate) fn with_term(mut self, term: Duration) -> Self {
        let plans = 0..self.rule.quotas();
        self.plans = plans
            .map(|plan| identity(self.rule.quota_of(plan), term))
            .collect();
        self.term = term;
        self
    }

    /// Whether it is about slots.
    pub(crate) fn is_of_slots(&self) -> bool {
        self.family == SLOTS
    }

    /// Whether requests take slots of it: those of a threshold are only read.
    pub(crate) fn takes_slots(&self) -> bool {
        self.is_of_slots() && self.role != THRESHOLD
    }

    /// The rule's own quotas: a check under one of them leaves their states as they are. A state that another quota has written is
    /// scaled to the first of these, which is the quota of the check, or for a threshold that of its rule. `None`: nothing is
    /// scaled, as under a quota that the check brings along.
    pub(crate) fn scaled<'a>(
        &'a self,
        quota: &'a [u8; IDENTITY],
    ) -> Option<impl Iterator<Item = &'a [u8; IDENTITY]>> {
        let known = self.scales.as_deref()?;
        let is_own = self.role != THRESHOLD;
        (!is_own || known.contains(quota)).then(|| {
            let others = known.iter().filter(move |other| !is_own || *other != quota);
            is_own.then_some(quota).into_iter().chain(others)
        })
    }

    /// The quota that a check brings along, under a number that is no plan's. `None`: without a limit.
    #[cold]
    pub(crate) fn brought(&self, plan: u16) -> Option<[u8; IDENTITY]> {
        identity(&self.rule.quota_under(usize::from(plan)), self.term)
    }
}

/// All quotas of a rule that have a limit, each once. Slots in use count alike under any quota, and none has its term here.
fn identities(rule: &Rule) -> Box<[[u8; IDENTITY]]> {
    let quotas = (0..rule.quotas()).filter_map(|plan| identity(rule.quota_of(plan), SLOT_TERM));
    let mut all = Vec::with_capacity(rule.quotas());
    for quota in quotas {
        if !all.contains(&quota) {
            all.push(quota);
        }
    }
    all.into()
}

/// The bit of a name: 6 bits of its hash.
fn bit(name: &str) -> u64 {
    1 << (hash(name.bytes()) >> 58)
}

/// FNV-1a.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The name of a rule in the names of its states. Where all clients begin anew when the rule's own quota changes, the states of
/// each quota are others: whatever processes with the old and with the new one do at the same time, no state begins anew twice.
fn state_name(rule: &Rule) -> Arc<str> {
    if rule.change_answer() != OnChange::Reset {
        return rule.name().into();
    }
    // No name of a rule has a `~`.
    let quota = identity(rule.quota(), SLOT_TERM).unwrap_or_default();
    format!("{}~{:016x}", rule.name(), hash(quota)).into()
}

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

/// The algorithm of a check of a rule whose requests wait, in its place in the [identity] of the quota. States have that of the
/// quota: such a rule counts on with what was used before requests waited.
pub(crate) const WAITS: u8 = VERSION << 4;

/// A number below 2^53.
pub(crate) fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use tollgate_core::{MINUTE, SECOND};

    use super::*;

    #[test]
    fn the_states_of_a_rule_that_begins_anew_are_named_after_its_quota() {
        let names = |rule: Rule| {
            let warn = rule.quota().burst(5);
            let rules = RuleSet::new([rule.threshold("warn", warn)]).expect("valid");
            let [own, warn] = [0, 1].map(|place| RuleArgs::new(&rules, place));
            assert_eq!(
                own.state_name, warn.state_name,
                "a threshold reads the state"
            );
            assert_eq!((&*own.name, &*warn.name), ("rule", "rule"));
            own.state_name
        };
        let rule = |on_change| Rule::new("rule", Quota::gcra(9, MINUTE)).on_change(on_change);
        assert_eq!(&*names(rule(OnChange::Keep)), "rule");
        let reset = || rule(OnChange::Reset);
        let name = names(reset());
        assert_eq!(name, names(reset()));
        assert!(name.starts_with("rule~") && name.len() == 21, "{name}");
        // A client that changes plans keeps its state, and so do the others when a plan is added.
        assert_eq!(name, names(reset().plan("gold", Quota::gcra(7, SECOND))));
        let quotas = [
            Quota::gcra(9, MINUTE).burst(8),
            Quota::gcra(9, SECOND),
            Quota::gcra(8, MINUTE),
        ];
        for quota in quotas {
            let other = Rule::new("rule", quota).on_change(OnChange::Reset);
            assert_ne!(names(other), name, "{quota}");
        }
    }
}
