//! The rules of a layer, which can be replaced.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tollgate_core::{Limiter, RuleChange, RuleError, RuleErrorKind, Store, layer::Replacement};

use crate::{rate_limit::request_rules::RequestRules, rule::RequestRule};

/// Whether a layer takes these rules.
pub(crate) type Accepts = fn(&[RequestRule]) -> Result<(), RuleError>;

/// The rules of a layer on their store, and the configurations that follow them: one for each way in which clones of the
/// layer were configured.
pub(crate) struct LayerRules {
    store: Arc<dyn Store>,
    accepts: Accepts,
    state: Mutex<State>,
}

/// The rules in force, and who follows them.
pub(crate) struct State {
    /// With the limiter that keeps the names in use.
    rules: RequestRules,
    followers: Vec<Weak<dyn FollowRules>>,
}

/// A configuration that follows the rules of a layer.
pub(crate) trait FollowRules: Send + Sync {
    /// Prepares the configuration with other rules. It is in force when the result is called.
    fn follow(self: Arc<Self>, rules: RequestRules) -> Result<Box<dyn FnOnce()>, RuleError>;
}

impl State {
    /// Adds a configuration with the rules in force.
    pub(crate) fn add(&mut self, follower: Weak<dyn FollowRules>) {
        // Those of layers that were configured further are gone.
        self.followers.retain(|other| other.strong_count() > 0);
        self.followers.push(follower);
    }
}

impl LayerRules {
    /// `rules` have the limiter that keeps the names in use.
    pub(crate) fn new(store: Arc<dyn Store>, accepts: Accepts, rules: RequestRules) -> Arc<Self> {
        Arc::new(Self {
            store,
            accepts,
            state: Mutex::new(State {
                rules,
                followers: Vec::new(),
            }),
        })
    }

    /// While it is held, no rules are replaced.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole at each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limiter that keeps the names in use.
    pub(crate) fn limiter(&self) -> Limiter {
        self.lock().rules.limiter.clone().into()
    }

    /// Replaces the rules of layers on one store, all or none, and says what changed by layer.
    pub(crate) fn replace_all(
        parts: Vec<(Arc<Self>, Vec<RequestRule>)>,
    ) -> Result<Vec<Vec<RuleChange>>, RuleError> {
        // Two replacements that meet take their locks in one order.
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|part| Arc::as_ptr(&parts[*part].0));
        let is_same = |pair: &[usize]| Arc::ptr_eq(&parts[pair[0]].0, &parts[pair[1]].0);
        if order.windows(2).any(is_same) {
            return Err(RuleError::general(
                RuleErrorKind::RuleSet,
                "the rules of one layer are replaced twice in one step; give all of its rules once",
            ));
        }
        let (layers, lists): (Vec<Arc<Self>>, Vec<Vec<RequestRule>>) = parts.into_iter().unzip();
        let mut states: Vec<(usize, MutexGuard<'_, State>)> = order
            .into_iter()
            .map(|part| (part, layers[part].lock()))
            .collect();
        states.sort_by_key(|(part, _)| *part);
        let Some(first) = layers.first() else {
            return Ok(Vec::new());
        };

        let mut sets = Vec::new();
        let mut changes = Vec::new();
        for ((layer, list), (_, state)) in layers.iter().zip(&lists).zip(&states) {
            (layer.accepts)(list)?;
            let set = RequestRules::rule_set(list)?;
            changes.push(set.changes_from(state.rules.set()));
            sets.push(set);
        }
        let replaced: Vec<&Limiter> = states.iter().map(|(_, s)| &*s.rules.limiter).collect();
        let replacement = Replacement::prepare(&replaced, &*first.store, sets, NonZeroU32::MIN)?;
        let mut prepared = Vec::new();
        let mut all = Vec::new();
        let lists = lists.into_iter();
        for ((list, limiter), (_, state)) in lists.zip(replacement.limiters()).zip(&states) {
            let rules = state.rules.succeeded_by(list, limiter.clone().into());
            for follower in state.followers.iter().filter_map(Weak::upgrade) {
                prepared.push(follower.follow(rules.clone())?);
            }
            all.push(rules);
        }
        let _in_force = replacement.commit();
        for put_in_force in prepared {
            put_in_force();
        }
        for (rules, (_, state)) in all.into_iter().zip(&mut states) {
            state.rules = rules;
        }
        Ok(changes)
    }
}
