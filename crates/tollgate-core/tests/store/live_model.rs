//! Swaps beside an exact model: random sequences of requests and replaced rules, while time stands still.

use std::collections::HashMap;

use proptest::prelude::*;
use tollgate_core::{Key, LiveLimiter, ManualClock, MemoryStore, Outcome, Quota, Retry, Rule};

use crate::every_algorithm;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Enforce,
    Shadow,
    Off,
    /// Another rule is in force: the name is not used.
    Gone,
}

/// What is put in force.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// An index in [`every_algorithm`], or no limit.
    algorithm: Option<usize>,
    limit: u64,
    mode: Mode,
    /// Whether checks may bring a quota along.
    is_variable: bool,
}

impl Version {
    fn quota(&self) -> Quota {
        match self.algorithm {
            Some(algorithm) => every_algorithm(self.limit)[algorithm],
            None => Quota::unlimited(),
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let other = Rule::new("other", Quota::gcra(1, super::LONG));
        let rule = Rule::new("rule", self.quota());
        let rule = match self.is_variable {
            true => rule.variable_quota(),
            false => rule,
        };
        match self.mode {
            Mode::Enforce => vec![rule],
            Mode::Shadow => vec![other, rule.shadow()],
            Mode::Off => vec![rule.off(), other],
            Mode::Gone => vec![other],
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Swap(Version),
    /// With the limit of a quota that the check brings along, if it does.
    Acquire {
        who: usize,
        cost: u64,
        brings: Option<u64>,
    },
}

fn steps(is_variable: bool) -> impl Strategy<Value = Vec<Step>> {
    let modes = [
        Mode::Enforce,
        Mode::Enforce,
        Mode::Enforce,
        Mode::Shadow,
        Mode::Off,
        Mode::Gone,
    ];
    let swap = (
        proptest::option::weighted(0.9, 0..5_usize),
        1_u64..40,
        proptest::sample::select(modes.to_vec()),
    );
    let swap = swap.prop_map(move |(algorithm, limit, mode)| {
        Step::Swap(Version {
            algorithm,
            limit,
            mode,
            is_variable,
        })
    });
    let brings = proptest::option::weighted(0.7, 1_u64..40);
    let acquire = (0..4_usize, 1_u64..15, brings);
    let acquire = acquire.prop_map(|(who, cost, brings)| Step::Acquire { who, cost, brings });
    proptest::collection::vec(prop_oneof![1 => swap, 3 => acquire], 1..120)
}

/// What each client has used of the rule under each algorithm: whole units, as no time passes.
#[derive(Default)]
struct Model(HashMap<(Option<usize>, usize), u64>);

impl Model {
    /// Whether so many units fit; they are taken then.
    fn acquire(&mut self, limit: u64, who: (Option<usize>, usize), cost: u64) -> bool {
        let used = self.0.entry(who).or_default();
        let fits = *used + cost <= limit;
        if fits {
            *used += cost;
        }
        fits
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn swaps_agree_with_an_exact_model(
        first in 0..5_usize,
        limit in 1_u64..40,
        steps in steps(false),
    ) {
        agrees(first, limit, false, steps)?;
    }

    #[test]
    fn quotas_of_checks_agree_with_an_exact_model_while_rules_are_swapped(
        first in 0..5_usize,
        limit in 1_u64..40,
        steps in steps(true),
    ) {
        agrees(first, limit, true, steps)?;
    }
}

fn agrees(
    first: usize,
    limit: u64,
    is_variable: bool,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let clock = ManualClock::new(1_700_000_000_123_456);
    let store = MemoryStore::builder().clock(&clock).build();
    let mut version = Version {
        algorithm: Some(first),
        limit,
        mode: Mode::Enforce,
        is_variable,
    };
    let limiter = LiveLimiter::new(store, version.rules()).expect("valid rules");
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Swap(to) => {
                limiter.replace(to.rules()).expect("valid rules");
                version = to;
            }
            Step::Acquire { who, cost, brings } => {
                let key = Key::of([who.to_le_bytes()]);
                let in_force = limiter.limiter();
                let Ok(check) = in_force.check("rule", &key) else {
                    prop_assert_eq!(version.mode, Mode::Gone);
                    continue;
                };
                let brings = brings.filter(|_| is_variable && version.algorithm.is_some());
                let check = match (brings, version.algorithm) {
                    (Some(limit), Some(algorithm)) => {
                        let quota = every_algorithm(limit)[algorithm];
                        let quota = in_force.quota_for("rule", quota);
                        check.with_quota(quota.expect("a quota of the rule's algorithm"))
                    }
                    _ => check,
                };
                let decision = in_force.acquire(&[check.with_cost(cost)]).ready();
                let decision = decision.expect("memory answers at once");
                let verdict = decision.verdicts()[0];
                if version.mode == Mode::Off || version.algorithm.is_none() {
                    prop_assert_eq!(verdict.outcome(), Outcome::NotDecided);
                    prop_assert!(decision.is_allowed());
                    continue;
                }
                let limit = brings.unwrap_or(version.limit);
                let who = (version.algorithm, who);
                let fits = model.acquire(limit, who, cost);
                let outcome = if fits { Outcome::Allow } else { Outcome::Deny };
                prop_assert_eq!(verdict.outcome(), outcome, "{:?}", version);
                prop_assert_eq!(decision.is_allowed(), fits || version.mode == Mode::Shadow);
                let left = limit.saturating_sub(model.0[&who]);
                prop_assert_eq!(verdict.remaining(), left, "{:?}", version);
                prop_assert_eq!(verdict.retry() == Retry::Never, cost > limit);
            }
        }
    }
    if version.mode == Mode::Enforce && version.algorithm.is_some() {
        let limiter = limiter.limiter();
        let of_algorithm =
            |((by, _), _): &(&(Option<usize>, usize), &u64)| *by == version.algorithm;
        for ((_, who), used) in model.0.iter().filter(of_algorithm) {
            let key = Key::of([who.to_le_bytes()]);
            let check = limiter.check("rule", &key).expect("a rule");
            let looked = limiter.peek(&[check.with_cost(0)]).ready();
            let looked = looked.expect("memory answers at once").verdicts()[0].remaining();
            prop_assert_eq!(looked, version.limit.saturating_sub(*used));
        }
    }
    Ok(())
}
