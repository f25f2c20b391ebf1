//! The registry of a store: which quotas live limiters and layers count under each rule name.

use std::{collections::HashMap, fmt, sync::Arc};

use smallvec::SmallVec;

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
    names: Arc<Mutex<Names>>,
}

#[derive(Default)]
struct Names {
    by_name: HashMap<Arc<str>, SmallVec<[Entry; 1]>>,
    registrations: u64,
}

/// A rule of a live registration.
struct Entry {
    registration: u64,
    rules: Arc<RuleSet>,
    index: usize,
}

/// The names of a rule set are in use. Dropping it frees them.
pub(crate) struct Registration {
    registry: RuleRegistry,
    id: u64,
    rules: Arc<RuleSet>,
    /// What else there is to do then.
    on_retire: Option<Box<dyn Fn() + Send + Sync>>,
}

impl RuleRegistry {
    /// A registry without names.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the names of a rule set, all or none. Those of `replaced` do not count, and stay registered until they are
    /// [retired](Self::retire).
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
        let mut names = lock(&self.names);
        let is_replaced = |entry: &Entry| replaced.iter().any(|old| old.id == entry.registration);
        for rule in counted(rules).map(|index| &rules.rules()[index]) {
            let in_use = names.by_name.get(rule.shared_name()).into_iter().flatten();
            for entry in in_use.filter(|entry| !is_replaced(entry)) {
                if let Some(difference) = difference(entry.rule(), rule) {
                    return Err(rule.error(RuleErrorKind::Conflict, difference));
                }
            }
        }
        names.registrations += 1;
        let id = names.registrations;
        for index in counted(rules) {
            let name = Arc::clone(rules.rules()[index].shared_name());
            names.by_name.entry(name).or_default().push(Entry {
                registration: id,
                rules: Arc::clone(rules),
                index,
            });
        }
        Ok(Registration {
            registry: self.clone(),
            id,
            rules: Arc::clone(rules),
            on_retire: None,
        })
    }

    /// Frees the names of a registration.
    fn retire(&self, registration: &Registration) {
        let mut names = lock(&self.names);
        for index in counted(&registration.rules) {
            let name = registration.rules.rules()[index].shared_name();
            if let Some(entries) = names.by_name.get_mut(name) {
                entries.retain(|entry| entry.registration != registration.id);
                if entries.is_empty() {
                    names.by_name.remove(name);
                }
            }
        }
        drop(names);
        if let Some(on_retire) = &registration.on_retire {
            on_retire();
        }
    }
}

impl Registration {
    /// The same with something to do when it is [retired](RuleRegistry::retire) or dropped. It is done each time.
    pub(crate) fn on_retire(mut self, act: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_retire = Some(Box::new(act));
        self
    }

    /// Frees its names: its limiter was replaced.
    pub(crate) fn retire(&self) {
        self.registry.retire(self);
    }

    fn is_of(&self, registry: &RuleRegistry) -> bool {
        Arc::ptr_eq(&self.registry.names, &registry.names)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.retire(self);
    }
}

impl Entry {
    fn rule(&self) -> &Rule {
        &self.rules.rules()[self.index]
    }
}

impl fmt::Debug for RuleRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = lock(&self.names).by_name.len();
        write!(f, "RuleRegistry({names} names)")
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({})", self.id)
    }
}

/// The rules that count on a state of their own: a threshold reads that of another, and a rule that is off counts nothing.
fn counted(rules: &RuleSet) -> impl Iterator<Item = usize> {
    let counts = |rule: &Rule| *rule.mode() != Mode::Off;
    let given = rules.given().iter().enumerate();
    given.filter_map(move |(index, rule)| counts(rule).then_some(index))
}

/// In what the quotas of two rules of one name differ, and what to do about it.
fn difference(live: &Rule, new: &Rule) -> Option<String> {
    let (is, would_be) = if live.quota() != new.quota() {
        (format!("{:?}", live.quota()), format!("{:?}", new.quota()))
    } else {
        let names = live.plan_names().chain(new.plan_names());
        let plan = |rule: &Rule, name: &str| match rule.plan_number(name) {
            Some(number) => format!(
                "{:?} with plan {name:?} {:?}",
                rule.quota(),
                rule.quota_of(number)
            ),
            None => format!("{:?} without a plan {name:?}", rule.quota()),
        };
        let mut plans = names.map(|name| (plan(live, name), plan(new, name)));
        plans.find(|(live, new)| live != new)?
    };
    Some(format!(
        "it is in use on this store, by another layer or limiter, with {is}, and this one has {would_be}; one name is one \
         budget: take another name, or the same quota in both (rules that take the place of others say so: `replacing`)"
    ))
}
