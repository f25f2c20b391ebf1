//! Rule sets as the script is told of them.
//!
//! What is known beforehand is prepared once: the names of the rules and the bytes of their quotas. A
//! [`Call`](crate::call::Call) is then filled with requests.
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Rule, RuleSet};
//! use tollgate_redis::encode::Encoder;
//! use tollgate_redis::keyspace::{Keyspace, Partition};
//!
//! let rules = RuleSet::new([Rule::new("api", Quota::gcra(60, MINUTE))])?;
//! let encoder = Encoder::new(&rules, Keyspace::new("tg", Partition::Key)?);
//! assert!(encoder.is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each check carries the plans whose limit is larger, so there is a bound to them:
//!
//! ```
//! use tollgate_core::{MINUTE, Quota, Rule, RuleErrorKind, RuleSet};
//! use tollgate_redis::encode::Encoder;
//! use tollgate_redis::keyspace::{Keyspace, Partition};
//!
//! let mut rule = Rule::new("api", Quota::gcra(60, MINUTE));
//! for plan in 0..256 {
//!     rule = rule.plan(format!("plan-{plan}"), Quota::gcra(60 + plan, MINUTE));
//! }
//! let refused = Encoder::new(&RuleSet::new([rule])?, Keyspace::new("tg", Partition::Key)?);
//! assert_eq!(refused.expect_err("too many").kind(), RuleErrorKind::Store);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use tollgate_core::{
    AlgorithmKind, Check, Mode, Quota, RuleError, RuleErrorKind, RuleSet,
    algorithm::{Algorithm as _, Arrival, SlidingWindow},
};

use crate::keyspace::Keyspace;

/// The version of the format of states, in the upper half of their first byte.
const VERSION: u8 = 1 << 4;

/// The most plans of a rule: each check carries those that are larger than its own.
const MOST_PLANS: usize = 255;

/// The bytes of a quota in an argument and in a state.
pub(crate) const IDENTITY: usize = 21;

/// A rule set as the script is told of it.
#[derive(Debug)]
pub struct Encoder {
    pub(crate) keyspace: Keyspace,
    rules: Box<[RuleLine]>,
}

/// A rule as the script is told of it.
pub(crate) struct RuleLine {
    /// Whose state it is: its own, or that of the rule it marks.
    pub(crate) name: Box<str>,
    pub(crate) family: u8,
    pub(crate) role: u8,
    /// Whether nothing is asked of it. Its states can be forgotten all the same.
    off: bool,
    /// For a shadow, the place of the rule it replaces; 65 535: none.
    pub(crate) instead: u16,
    /// By plan: 21 bytes of the quota, and of each larger one. `None`: without a limit.
    plans: Box<[Option<Box<[u8]>>]>,
}

impl fmt::Debug for RuleLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleLine")
            .field("name", &self.name)
            .field("plans", &self.plans.len())
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// Prepares a rule set.
    ///
    /// # Errors
    ///
    /// A rule with more than 255 plans.
    pub fn new(rules: &RuleSet, keyspace: Keyspace) -> Result<Self, RuleError> {
        let lines = (0..rules.rules().len())
            .map(|place| RuleLine::new(rules, place))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            keyspace,
            rules: lines,
        })
    }

    /// A check's rule and quota, if there is something to ask.
    pub(crate) fn line(&self, check: &Check) -> Option<(&RuleLine, &[u8])> {
        let line = self.rules.get(usize::from(check.rule()))?;
        if line.off {
            return None;
        }
        let plan = line.plans.get(usize::from(check.plan()));
        Some((line, plan.or_else(|| line.plans.first())?.as_deref()?))
    }

    /// The rule at a place and one of its quotas, if any has a limit.
    pub(crate) fn any_line(&self, rule: u16) -> Option<(&RuleLine, &[u8])> {
        let line = self.rules.get(usize::from(rule))?;
        Some((line, line.plans.iter().flatten().next()?))
    }
}

impl RuleLine {
    fn new(rules: &RuleSet, place: usize) -> Result<Self, RuleError> {
        let rule = &rules.rules()[place];
        if rule.quotas() > MOST_PLANS + 1 {
            return Err(RuleError::new(
                RuleErrorKind::Store,
                rule.name(),
                format!(
                    "{} plans are above {MOST_PLANS}, the most on Redis; take a rule for each kind of plan",
                    rule.quotas() - 1
                ),
            ));
        }
        let refers_to = rules.refers_to(place);
        let (role, off) = match rule.mode() {
            Mode::Enforce => (0, false),
            Mode::Shadow { .. } => (1, false),
            Mode::Mark { .. } => (2, false),
            _ => (0, true),
        };
        let quotas: Vec<&Quota> = (0..rule.quotas()).map(|plan| rule.quota_of(plan)).collect();
        let plans = quotas.iter().map(|quota| {
            let own = identity(quota)?;
            let mut bytes = own.to_vec();
            for other in quotas.iter().filter(|other| other.limit() >= quota.limit()) {
                bytes.extend(
                    identity(other)
                        .filter(|other| *other != own)
                        .into_iter()
                        .flatten(),
                );
            }
            Some(bytes.into())
        });
        Ok(Self {
            name: match refers_to {
                Some(of) if role == 2 => rules.rules()[of].name().into(),
                _ => rule.name().into(),
            },
            family: quotas
                .iter()
                .find_map(|quota| family(quota))
                .unwrap_or(b'-'),
            role,
            off,
            instead: refers_to
                .filter(|_| role == 1)
                .and_then(|of| u16::try_from(of).ok())
                .unwrap_or(u16::MAX),
            plans: plans.collect(),
        })
    }
}

/// The letter of an algorithm's states.
fn family(quota: &Quota) -> Option<u8> {
    Some(match quota.algorithm() {
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => b'a',
        AlgorithmKind::FixedWindow => b'f',
        AlgorithmKind::SlidingWindow => b'w',
        AlgorithmKind::SlidingLog => b'l',
        AlgorithmKind::SlidingBuckets => b'b',
        _ => return None,
    })
}

/// What a quota is in an argument and in a state: `<BddI4`, as `prelude.lua` says.
fn identity(quota: &Quota) -> Option<[u8; IDENTITY]> {
    let period = u64::try_from(quota.period().as_micros()).ok()?;
    let (algorithm, first, third) = match family(quota)? {
        b'a' => {
            let denominator = Arrival::new(quota)?.denominator();
            // The rate is a multiple of the denominator, and this is the numerator in lowest terms.
            (1, period / (quota.rate() / denominator), denominator)
        }
        b'f' => (2, period, 0),
        b'w' => (3, period, SlidingWindow::new(quota)?.grain()),
        b'l' => (4, period, 0),
        _ => {
            let buckets = u64::from(quota.bucket_count());
            (5, period.div_ceil(buckets), buckets)
        }
    };
    let mut bytes = [0; IDENTITY];
    bytes[0] = VERSION | algorithm;
    bytes[1..9].copy_from_slice(&double(first));
    bytes[9..17].copy_from_slice(&double(quota.limit()));
    bytes[17..].copy_from_slice(&u32::try_from(third).ok()?.to_le_bytes());
    Some(bytes)
}

/// A number below 2^53.
pub(crate) fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}
