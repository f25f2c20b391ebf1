//! The registry of a store: which quotas live limiters and layers count under each rule name.

use std::sync::Arc;

use crate::{
    error::{RuleError, RuleErrorKind},
    rule::{Mode, Rule},
    rule_set::RuleSet,
    sync::{Mutex, lock},
};

/// Which quotas live limiters and layers count under each rule name. One for each store, shared by its clones.
///
/// One name is one budget. Two live limiters may share it, with the same quota and the same plans. Another quota under the
/// same name is refused: the looser one would give away what the stricter one has refused. Rules that take the place of
/// others say so: [`Limiter::replacing`](crate::Limiter::replacing).
///
/// A [`Store`](crate::Store) keeps one and hands it out; [`Limiter`](crate::Limiter) does the rest. A name is free again when
/// the last limiter, layer and service with it is dropped. Tickets, and responses under way, do not hold it.
#[derive(Clone, Default)]
pub struct RuleRegistry {
    /// Each is registered once.
    live: Arc<Mutex<Vec<Arc<RuleSet>>>>,
}

/// The names of a rule set are in use. Dropping it frees them.
pub(crate) struct Registration {
    registry: RuleRegistry,
    rules: Arc<RuleSet>,
    /// What else there is to do then.
    on_retire: Option<Box<dyn Fn() + Send + Sync>>,
}

impl RuleRegistry {
    /// Registers the names of a rule set, all or none. Those of `replaced` do not count, and stay registered until they are
    /// [retired](Registration::retire).
    ///
    /// # Errors
    ///
    /// A name that is in use with another quota or other plans, or a registration of another store among `replaced`.
    pub(crate) fn register(
        &self,
        rules: &Arc<RuleSet>,
        replaced: &[&Registration],
    ) -> Result<Registration, RuleError> {
        if replaced.iter().any(|old| !old.is_of(self)) {
            return Err(RuleError::general(
                RuleErrorKind::Conflict,
                "rules can only be replaced by rules on the same store; take the store that they were made with, or a clone of it",
            ));
        }
        let mut live = lock(&self.live);
        let is_replaced = |set: &&Arc<RuleSet>| replaced.iter().any(|old| old.has(set));
        for rule in rules.given().iter().filter(|rule| counts(rule)) {
            let mut others = live.iter().filter(|set| !is_replaced(set));
            let conflict = others.find_map(|other| {
                let same_name = &other.given()[other.given_position(rule.name())?];
                counts(same_name).then(|| difference(same_name, rule))?
            });
            if let Some(difference) = conflict {
                return Err(rule.error(RuleErrorKind::Conflict, difference));
            }
        }
        live.push(Arc::clone(rules));
        Ok(Registration {
            registry: self.clone(),
            rules: Arc::clone(rules),
            on_retire: None,
        })
    }
}

impl Registration {
    /// The same with something to do when it is [retired](Self::retire) or dropped. It is done each time.
    pub(crate) fn on_retire(mut self, act: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_retire = Some(Box::new(act));
        self
    }

    /// Frees its names: its limiter was replaced.
    pub(crate) fn retire(&self) {
        lock(&self.registry.live).retain(|rules| !self.has(rules));
        if let Some(on_retire) = &self.on_retire {
            on_retire();
        }
    }

    fn has(&self, rules: &Arc<RuleSet>) -> bool {
        Arc::ptr_eq(&self.rules, rules)
    }

    fn is_of(&self, registry: &RuleRegistry) -> bool {
        Arc::ptr_eq(&self.registry.live, &registry.live)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.retire();
    }
}

crate::debug_fields!(RuleRegistry, it => live: { lock(&it.live).len() });
crate::debug_fields!(Registration, it => rules: it.rules.version());

/// Whether a rule that was given counts on a state of its own: one that is off counts nothing. A threshold, which reads that of
/// another, is not given.
fn counts(rule: &Rule) -> bool {
    *rule.mode() != Mode::Off
}

/// In what the quotas of two rules of one name differ, and what to do about it.
fn difference(live: &Rule, new: &Rule) -> Option<String> {
    let plans: Vec<&str> = live.plan_names().chain(new.plan_names()).collect();
    let mut settings = settings(live, &plans).zip(settings(new, &plans));
    let (is, would_be) = settings.find(|(is, would_be)| is != would_be)?;
    Some(format!(
        "it is in use on this store, by another layer or limiter, with {is}, and this one has {would_be}; one name is one \
         budget: take another name, or the same quota in both (rules that take the place of others say so: `replacing`)"
    ))
}

/// What has to be the same under one name, in words: the quota first.
fn settings(rule: &Rule, plans: &[&str]) -> impl Iterator<Item = String> {
    let or_none = |what: Option<String>, none: &str| what.unwrap_or_else(|| none.to_owned());
    let wait = rule
        .at_most_wait()
        .map(|it| format!("a wait of at most {it:?}"));
    let block = rule.block_setting().map(|it| format!("{it:?}"));
    let ids = rule.idempotent_for().map(|(period, repeats)| {
        format!("ids that are known for {period:?}, {repeats} free repeats")
    });
    let of_plan = |name: &&str| match rule.plan_number(name) {
        Some(plan) => format!(
            "{:?} with plan {name:?} {:?}",
            rule.quota(),
            rule.quota_of(plan)
        ),
        None => format!("{:?} without a plan {name:?}", rule.quota()),
    };
    let plans: Vec<String> = plans.iter().map(of_plan).collect();
    let settings = [
        format!("{:?}", rule.quota()),
        or_none(wait, "no wait"),
        format!("a debt of at most {} units", rule.debt_of()),
        or_none(rule.has_credits().then(|| "credits".into()), "no credits"),
        or_none(block, "no block"),
        or_none(ids, "no ids"),
    ];
    settings.into_iter().chain(plans)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        quota::Quota,
        sync::{AtomicU64, Ordering},
        time::{MINUTE, SECOND},
    };

    fn rule(name: &str, limit: u64) -> Rule {
        Rule::new(name, Quota::gcra(limit, MINUTE))
    }

    fn set(rules: impl IntoIterator<Item = Rule>) -> Arc<RuleSet> {
        Arc::new(RuleSet::new(rules).expect("valid rules"))
    }

    fn register(
        registry: &RuleRegistry,
        rules: impl IntoIterator<Item = Rule>,
        replaced: &[&Registration],
    ) -> Result<Registration, String> {
        let registered = registry.register(&set(rules), replaced);
        registered.map_err(|error| {
            assert_eq!(error.kind(), RuleErrorKind::Conflict);
            error.to_string()
        })
    }

    fn registered(
        registry: &RuleRegistry,
        rules: impl IntoIterator<Item = Rule>,
        replaced: &[&Registration],
    ) -> Registration {
        register(registry, rules, replaced).expect("no conflict")
    }

    #[test]
    fn rules_that_were_retired_vouch_for_none() {
        let registry = RuleRegistry::default();
        let gone = registered(&registry, [rule("x", 1)], &[]);
        gone.retire();
        let _other = registered(&registry, [rule("x", 2)], &[]);
        assert!(register(&registry, [rule("x", 1)], &[&gone]).is_err());
    }

    #[test]
    fn what_is_to_be_done_when_rules_retire_is_done_then_and_when_they_are_dropped() {
        let registry = RuleRegistry::default();
        let done = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&done);
        let registration = registered(&registry, [rule("x", 1)], &[]).on_retire(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 0);
        registration.retire();
        assert_eq!(done.load(Ordering::Relaxed), 1);
        drop(registration);
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_conflict_says_what_is_in_use_and_what_would_be() {
        let queue = |at_most: Option<Duration>| {
            let rule = rule("x", 1);
            match at_most {
                Some(at_most) => rule.wait(at_most),
                None => rule,
            }
        };
        let plan = |limit| rule("x", 1).plan("gold", Quota::gcra(limit, MINUTE));
        for (live, new, words) in [
            (
                rule("x", 1),
                rule("x", 2),
                ["with gcra 1/min, and", "has gcra 2/min;"],
            ),
            (
                queue(None),
                queue(Some(SECOND)),
                ["with no wait, and", "has a wait of at most 1s;"],
            ),
            (
                queue(Some(SECOND)),
                queue(None),
                ["with a wait of at most 1s, and", "has no wait;"],
            ),
            (
                plan(5),
                rule("x", 1),
                ["with plan \"gold\" gcra 5", "without a plan \"gold\";"],
            ),
            (
                rule("x", 1),
                plan(5),
                ["without a plan \"gold\", and", "with plan \"gold\" gcra 5"],
            ),
            (
                plan(5),
                plan(6),
                ["with plan \"gold\" gcra 5", "with plan \"gold\" gcra 6"],
            ),
        ] {
            let registry = RuleRegistry::default();
            let _live = registered(&registry, [live], &[]);
            let error = register(&registry, [new], &[]).expect_err("they differ");
            let places = words.map(|words| error.find(words));
            let in_order = places[0].is_some() && places[0] < places[1];
            assert!(in_order, "{error}: {words:?}");
        }
    }
}
