//! What is counted in this process while the store fails.

use std::{num::NonZeroU32, sync::Arc};

use smallvec::SmallVec;

use crate::{
    algorithm::Retry,
    decision::{Decision, Outcome, Source},
    error::RuleError,
    memory::MemoryStore,
    quota::Quota,
    rule::{OnStoreError, Rule},
    rule_set::RuleSet,
    store::{BoundStore, Check, Checks, Settlement, Store},
    ticket::holdings,
};

/// The most bytes of a rule's states while its store fails.
pub(crate) const BYTES: usize = 16 << 20;

/// The rules' answers to a store failure, with the local shares and caps in bounded memory.
#[derive(Debug)]
pub(crate) struct Fallback {
    pub(crate) bound: Arc<dyn BoundStore>,
}

impl Fallback {
    /// The local shares and caps of these rules, each of at most 16 MiB.
    ///
    /// # Errors
    ///
    /// A quota whose share cannot be counted.
    pub(crate) fn new(rules: &RuleSet, instances: NonZeroU32) -> Result<Self, RuleError> {
        let local = rules.given().iter().map(|rule| local_rule(rule, instances));
        let store = MemoryStore::builder().bytes_per_rule(BYTES).build();
        Ok(Self {
            bound: store.bind(Arc::new(RuleSet::new(local)?))?,
        })
    }

    /// What is counted here of a key starts anew.
    pub(crate) fn reset(&self, check: &Check) {
        // It is in memory, and answers at once.
        let _ = self.bound.reset(check.rule(), check.key()).ready();
    }

    /// Decides what the store could not, by each rule's answer to a store failure: all local shares in one step.
    ///
    /// A rule that denied by counting wins. If the whole is denied, what the store or a lease had taken is cancelled.
    #[inline]
    pub(crate) fn resolve(
        &self,
        bound: &dyn BoundStore,
        checks: &[Check],
        decision: Decision,
    ) -> Decision {
        if decision.outcome() == Outcome::Failed
            || decision
                .verdicts()
                .iter()
                .any(|verdict| verdict.outcome() == Outcome::Failed)
        {
            return self.resolve_failed(bound, checks, decision);
        }
        decision
    }

    #[cold]
    fn resolve_failed(
        &self,
        bound: &dyn BoundStore,
        checks: &[Check],
        mut decision: Decision,
    ) -> Decision {
        let rules = bound.rules();
        let enforced = |rule: usize| rules.enforces(rule);
        if decision.outcome() == Outcome::Deny {
            // A rule that denied by counting wins: nobody else is asked, and its `retry` stands.
            not_asked_if_failed(&mut decision, enforced);
            return decision;
        }
        let taken = holdings(bound, checks, &decision);
        let mut local = Checks::new();
        let mut places: SmallVec<[usize; 4]> = SmallVec::new();
        for (place, check) in checks.iter().enumerate() {
            let Some(verdict) = decision.verdicts_mut().get_mut(place) else {
                continue;
            };
            if verdict.outcome() != Outcome::Failed || !enforced(verdict.rule()) {
                continue;
            }
            match rules
                .rules()
                .get(verdict.rule())
                .map(Rule::store_error_answer)
            {
                Some(OnStoreError::Allow | OnStoreError::Degraded) => verdict.pass_degraded(),
                Some(OnStoreError::Deny) => verdict.deny_for_failure(),
                Some(OnStoreError::LocalShare | OnStoreError::Cap(_)) => {
                    local.push(*check);
                    places.push(place);
                }
                // A check of no rule limits nothing.
                None => *verdict = verdict.not_asked(),
            }
        }
        decision.conclude(|verdict| enforced(verdict.rule()));
        if decision.outcome() == Outcome::Deny {
            not_asked_if_failed(&mut decision, enforced);
        } else if let Some(answer) = self.ask_locally(&local) {
            for (place, verdict) in places.iter().zip(answer.verdicts()) {
                let check = &checks[*place];
                let asked = local.iter().filter(|other| same_state(other, check));
                let asked = asked.fold(0_u64, |sum, other| sum.saturating_add(other.cost()));
                let mut verdict = verdict.from_source(Source::Fallback);
                if verdict.outcome() == Outcome::Deny
                    && verdict.retry() == Retry::Never
                    && asked
                        <= rules.rules()[verdict.rule()]
                            .quota_of(verdict.plan())
                            .limit()
                {
                    // It is the share that never lets it pass; the quota does.
                    verdict.deny_for_failure();
                }
                decision.verdicts_mut()[*place] = verdict;
            }
        }
        decision.conclude(|verdict| enforced(verdict.rule()));
        if !decision.is_allowed() && !taken.is_empty() {
            bound.settle(&taken, Settlement::Cancel);
        }
        decision
    }

    fn ask_locally(&self, checks: &[Check]) -> Option<Decision> {
        if checks.is_empty() {
            return None;
        }
        self.bound.acquire(checks).ready()
    }
}

/// What a rule counts against in this process while its store fails.
fn local_rule(rule: &Rule, instances: NonZeroU32) -> Rule {
    let share = |quota: &Quota| match rule.store_error_answer() {
        OnStoreError::LocalShare => quota.share(instances.get()),
        OnStoreError::Cap(cap) => cap,
        // Never asked.
        OnStoreError::Allow | OnStoreError::Deny | OnStoreError::Degraded => Quota::unlimited(),
    };
    let mut local = Rule::new(Arc::clone(rule.shared_name()), share(rule.quota())).cost(0);
    for plan in 1..rule.quotas() {
        let name = rule.plan_name(plan).unwrap_or_default();
        local = local.plan(name, share(rule.quota_of(plan)));
    }
    local
}

fn same_state(one: &Check, other: &Check) -> bool {
    one.rule() == other.rule() && one.key() == other.key()
}

fn not_asked_if_failed(decision: &mut Decision, enforced: impl Fn(usize) -> bool) {
    for verdict in decision.verdicts_mut() {
        if verdict.outcome() == Outcome::Failed && enforced(verdict.rule()) {
            *verdict = verdict.not_asked();
        }
    }
}
