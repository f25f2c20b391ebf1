//! Replies of the script as decisions.
//!
//! ```
//! use tollgate_core::{Check, Fingerprint, MINUTE, Outcome, Quota, Rule, RuleSet};
//! use tollgate_redis::call::Call;
//! use tollgate_redis::encode::Encoder;
//! use tollgate_redis::keyspace::{Keyspace, Partition};
//! use tollgate_redis::reply::Reply;
//!
//! let rules = RuleSet::new([Rule::new("api", Quota::gcra(60, MINUTE))])?;
//! let encoder = Encoder::new(&rules, Keyspace::new("tg", Partition::Key)?)?;
//! let checks = [Check::new(0, Fingerprint::from_bits(7), 1)];
//! let mut call = Call::new();
//! let asked = call.acquire(&encoder, &checks).expect("the call is empty");
//!
//! let reply = Reply::new(call.checks(), vec![1_700_000_000_000_000, -1, 59, 1_000_000]).expect("whole");
//! let decision = reply.decision(&asked, &checks, &rules);
//! assert!(decision.is_allowed());
//! assert_eq!(decision.verdicts()[0].remaining(), 59);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A value that is not ours fails the check, and the rule's own answer to a failure applies:
//!
//! ```
//! # use tollgate_core::{Check, Fingerprint, MINUTE, Outcome, Quota, Rule, RuleSet};
//! # use tollgate_redis::call::Call;
//! # use tollgate_redis::encode::Encoder;
//! # use tollgate_redis::keyspace::{Keyspace, Partition};
//! # use tollgate_redis::reply::Reply;
//! # let rules = RuleSet::new([Rule::new("api", Quota::gcra(60, MINUTE))])?;
//! # let encoder = Encoder::new(&rules, Keyspace::new("tg", Partition::Key)?)?;
//! # let checks = [Check::new(0, Fingerprint::from_bits(7), 1)];
//! # let mut call = Call::new();
//! # let asked = call.acquire(&encoder, &checks).expect("the call is empty");
//! let reply = Reply::new(call.checks(), vec![1_700_000_000_000_000, -3, 0, 0]).expect("whole");
//! assert_eq!(reply.decision(&asked, &checks, &rules).outcome(), Outcome::Failed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use tollgate_core::{
    Check, Decision, Outcome, Retry, RuleSet, Source, Tick, Verdict, algorithm::Assessment,
};

use crate::call::Asked;

const FITS: i64 = -1;
const NEVER: i64 = -2;

/// What the script answered to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    at: Tick,
    answers: Vec<i64>,
}

impl Reply {
    /// The integers of a reply to a call of `checks` checks. `None` if they are not one: another script answered.
    #[must_use]
    pub fn new(checks: usize, mut integers: Vec<i64>) -> Option<Self> {
        let at = u64::try_from(*integers.first()?).ok()?;
        integers.remove(0);
        (integers.len() == checks * 3).then_some(Self {
            at,
            answers: integers,
        })
    }

    /// The time of the decisions.
    #[must_use]
    pub fn at(&self) -> Tick {
        self.at
    }

    /// The decision about one of the requests of the call.
    #[must_use]
    pub fn decision(&self, asked: &Asked, checks: &[Check], rules: &RuleSet) -> Decision {
        let verdicts = checks.iter().zip(asked.places()).map(|(check, place)| {
            let (rule, plan) = (check.rule(), check.plan());
            let Some(place) = place else {
                return Verdict::unanswered(rule, plan, Outcome::NotAsked);
            };
            match self.answer(place) {
                Some(answer) => Verdict::new(rule, plan, answer, Source::Store),
                None => Verdict::unanswered(rule, plan, Outcome::Failed),
            }
        });
        Decision::new(self.at, verdicts, |verdict| rules.enforces(verdict.rule()))
    }

    /// The answer to a check; `None` where it failed.
    fn answer(&self, place: usize) -> Option<Assessment> {
        let [retry, remaining, reset_after] = *self.answers.get(place * 3..place * 3 + 3)? else {
            return None;
        };
        Some(Assessment {
            fits: retry == FITS,
            remaining: u64::try_from(remaining).ok()?,
            reset_after: u64::try_from(reset_after).ok()?,
            retry: match retry {
                FITS => Retry::Now,
                NEVER => Retry::Never,
                after => Retry::after_micros(u64::try_from(after).ok()?),
            },
        })
    }
}
