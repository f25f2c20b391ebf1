//! A configuration whose rules can be replaced while requests are decided by it, and the rules that several share: one
//! configuration for each way in which clones of a layer were configured.

use std::{
    mem,
    num::NonZeroU32,
    sync::{Arc, Weak},
};

use tollgate_core::{
    Limiter, RuleError, Store,
    layer::Replacement,
    striped::{Handle, PerStripe},
    sync::{Mutex, MutexGuard, lock},
    types::RuleChange,
};

use crate::{
    diagnostics::wrong_setting,
    rate_limit::{config::Config, request_rules::RequestRules, settings::Settings},
    request_rule::RequestRule,
};

/// What a layer and its services share: the configuration in force, and the limiter that keeps its rule names in use.
pub(crate) struct LiveConfig {
    /// The configuration in force, for each stripe of threads: a request holds it, and its count is written with each one.
    current: PerStripe<Mutex<Arc<Config>>>,
    /// The limiter that keeps the names in use. Requests in flight hold a configuration alone, so that they do not keep a
    /// rule name from getting another quota.
    limiter: Mutex<Limiter>,
    /// What a handle replaces. Shared with the layers that were configured from the same one.
    pub(crate) rules: Arc<LayerRules>,
}

impl LiveConfig {
    pub(crate) fn new(
        store: impl Store,
        accepts: Accepts,
        rules: impl IntoIterator<Item: Into<RequestRule>>,
    ) -> Result<Arc<Self>, RuleError> {
        let mut rules: Vec<RequestRule> = rules.into_iter().map(Into::into).collect();
        accepts(&mut rules)?;
        let store: Arc<dyn Store> = Arc::new(store);
        let rules = RequestRules::new(Arc::clone(&store), rules)?;
        let config = Config::new(rules, Settings::default());
        // With the limiter that keeps the names in use.
        let state = State {
            rules: config.rules.clone(),
            followers: Vec::new(),
        };
        let rules = Arc::new(LayerRules {
            store,
            accepts,
            state: Mutex::new(state),
        });
        Ok(Self::following(
            &mut lock(&rules.state),
            Arc::clone(&rules),
            config,
        ))
    }

    /// A configuration that follows the rules of a layer, which are locked.
    fn following(state: &mut State, rules: Arc<LayerRules>, mut config: Config) -> Arc<Self> {
        let limiter = Mutex::new(config.rules.take_registered());
        let live = Arc::new(Self {
            current: PerStripe::new(|stripe| Mutex::new(Arc::new(config.for_stripe(stripe)))),
            limiter,
            rules,
        });
        // Those of layers that were configured further are gone.
        state.followers.retain(|other| other.strong_count() > 0);
        state.followers.push(Arc::downgrade(&live));
        live
    }

    /// The configuration in force, for one request. It does not change.
    #[inline]
    pub(crate) fn load(&self) -> Arc<Config> {
        Arc::clone(&lock(self.current.here()))
    }

    /// The limiter that keeps the rule names in use.
    pub(crate) fn limiter(&self) -> Limiter {
        lock(&self.limiter).clone()
    }

    /// The same rules with other settings.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Settings)) -> Arc<Self> {
        let mut state = lock(&self.rules.state);
        self.configured(&mut state, self.limiter(), change)
    }

    /// The same for another number of instances.
    pub(crate) fn with_instances(&self, instances: NonZeroU32) -> Result<Arc<Self>, RuleError> {
        let mut state = lock(&self.rules.state);
        let limiter = self.limiter().shared_by(instances)?;
        Ok(self.configured(&mut state, limiter, |_| {}))
    }

    fn configured(
        &self,
        state: &mut State,
        limiter: Limiter,
        change: impl FnOnce(&mut Settings),
    ) -> Arc<Self> {
        let before = self.load();
        let (mut rules, mut settings) = (before.rules.clone(), before.settings.clone());
        rules.limiter = limiter;
        change(&mut settings);
        Self::following(state, Arc::clone(&self.rules), before.with(rules, settings))
    }

    /// The configuration with other rules, for each stripe, and the limiter that keeps their names in use.
    fn prepare(&self, mut rules: RequestRules) -> Result<(Limiter, Vec<Arc<Config>>), RuleError> {
        rules.limiter = rules.limiter.succeeding(&lock(&self.limiter))?;
        let before = self.load();
        let mut config = before.with(rules, before.settings.clone());
        let limiter = config.rules.take_registered();
        let stripes = 0..self.current.iter().len();
        let prepared = stripes.map(|stripe| Arc::new(config.for_stripe(stripe)));
        Ok((limiter, prepared.collect()))
    }

    /// Puts configurations in force on all stripes in one step: no request sees one before another sees what was before. The rules
    /// of their layers are locked, so that no two of these meet.
    fn put_in_force(prepared: Vec<(Arc<Self>, Limiter, Vec<Arc<Config>>)>) {
        let parts = prepared.into_iter();
        let (live, mut next): (Vec<Arc<Self>>, Vec<_>) = parts
            .map(|(live, limiter, configs)| (live, (limiter, configs)))
            .unzip();
        let mut locked: Vec<Vec<_>> = live
            .iter()
            .map(|live| live.current.iter().map(lock).collect())
            .collect();
        for ((live, current), (limiter, configs)) in live.iter().zip(&mut locked).zip(&mut next) {
            mem::swap(&mut *lock(&live.limiter), limiter);
            for (current, config) in current.iter_mut().zip(configs) {
                mem::swap(&mut **current, config);
                // Services that remember the one of their last request wait for the lock as well.
                config.retire();
            }
        }
        // Requests go on. What no request holds any more is dropped after the locks are released.
        drop(locked);
    }
}

/// The configuration of a service, which remembers the one of its last request. It does not keep it: one that was replaced is
/// gone with its last request.
pub(crate) struct ServiceConfig {
    live: Handle<LiveConfig>,
    last: Weak<Config>,
    /// Whether it has had a request. Many services are cloned for one, and would remember it in vain.
    is_used: bool,
}

impl ServiceConfig {
    pub(crate) fn new(live: Arc<LiveConfig>) -> Self {
        Self {
            live: Handle::new(live),
            last: Weak::new(),
            is_used: false,
        }
    }

    /// The configuration in force, for one request. It does not change.
    #[inline]
    pub(crate) fn load(&mut self) -> Arc<Config> {
        match self.last.upgrade() {
            Some(config) if config.is_in_force_here() => config,
            _ => self.load_anew(),
        }
    }

    fn load_anew(&mut self) -> Arc<Config> {
        let config = self.live.load();
        if self.is_used {
            self.last = Arc::downgrade(&config);
        }
        self.is_used = true;
        config
    }
}

impl Clone for ServiceConfig {
    #[inline]
    fn clone(&self) -> Self {
        Self {
            live: self.live.clone(),
            last: Weak::new(),
            is_used: false,
        }
    }
}

tollgate_core::debug_fields!(ServiceConfig, it => live: it.live);

/// Whether a layer takes these rules, and what it adds to them.
pub(crate) type Accepts = fn(&mut [RequestRule]) -> Result<(), RuleError>;

/// Makes the rules that take the place of a layer's of those in force, while they are locked.
pub(crate) type EditFn = dyn FnOnce(&[RequestRule]) -> Result<Vec<RequestRule>, RuleError>;

/// The rules of a layer on their store, and the configurations that follow them: one for each way in which clones of the
/// layer were configured.
pub(crate) struct LayerRules {
    store: Arc<dyn Store>,
    accepts: Accepts,
    /// While it is locked, no rules are replaced.
    state: Mutex<State>,
}

/// The rules in force, and who follows them.
struct State {
    /// With the limiter that keeps the names in use.
    rules: RequestRules,
    followers: Vec<Weak<LiveConfig>>,
}

impl LayerRules {
    /// The limiter that keeps the names in use.
    pub(crate) fn limiter(&self) -> Limiter {
        lock(&self.state).rules.limiter.clone()
    }

    /// Replaces the rules of layers on one store, all or none, and says what changed by layer.
    pub(crate) fn replace_all(
        parts: Vec<(Arc<Self>, Box<EditFn>)>,
    ) -> Result<Vec<Vec<RuleChange>>, RuleError> {
        // Two replacements that meet take their locks in one order.
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|part| Arc::as_ptr(&parts[*part].0));
        let is_same = |pair: &[usize]| Arc::ptr_eq(&parts[pair[0]].0, &parts[pair[1]].0);
        if order.windows(2).any(is_same) {
            return Err(wrong_setting(
                "the rules of one layer are replaced twice in one step; give all of its rules once",
            ));
        }
        let (layers, edits): (Vec<Arc<Self>>, Vec<_>) = parts.into_iter().unzip();
        let mut states: Vec<(usize, MutexGuard<'_, State>)> = order
            .into_iter()
            .map(|part| (part, lock(&layers[part].state)))
            .collect();
        states.sort_by_key(|(part, _)| *part);
        let Some(first) = layers.first() else {
            return Ok(Vec::new());
        };

        let (mut lists, mut sets, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for ((layer, edit), (_, state)) in layers.iter().zip(edits).zip(&states) {
            let mut list = edit(state.rules.list())?;
            (layer.accepts)(&mut list)?;
            let set = RequestRules::rule_set(&list)?;
            changes.push(set.changes_from(state.rules.set()));
            sets.push(set);
            lists.push(list);
        }
        let replaced: Vec<&Limiter> = states.iter().map(|(_, s)| &s.rules.limiter).collect();
        let replacement = Replacement::prepare(&replaced, &*first.store, sets, NonZeroU32::MIN)?;
        let mut prepared = Vec::new();
        let mut all = Vec::new();
        let lists = lists.into_iter();
        for ((list, limiter), (_, state)) in lists.zip(replacement.limiters()).zip(&states) {
            let rules = RequestRules::on(list, limiter.clone(), Some(&state.rules));
            for follower in state.followers.iter().filter_map(Weak::upgrade) {
                let (limiter, configs) = follower.prepare(rules.clone())?;
                prepared.push((follower, limiter, configs));
            }
            all.push(rules);
        }
        let _in_force = replacement.commit();
        LiveConfig::put_in_force(prepared);
        for (rules, (_, state)) in all.into_iter().zip(&mut states) {
            state.rules = rules;
        }
        Ok(changes)
    }
}

tollgate_core::debug_fields!(LiveConfig, it => config: it.load());

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use http::HeaderMap;
    use tollgate_core::{MINUTE, MemoryStore, Quota, striped};

    use super::*;
    use crate::{header::name::RATELIMIT_POLICY, key::constant, rule::Rule};

    fn rule(limit: u64) -> RequestRule {
        Rule::new("all", Quota::fixed_window(limit, MINUTE)).by(constant("all"))
    }

    fn live() -> Arc<LiveConfig> {
        LiveConfig::new(MemoryStore::new(), |_| Ok(()), [rule(60)]).expect("a valid rule")
    }

    #[test]
    fn layers_that_change_together_change_in_one_step() {
        let store = MemoryStore::new();
        let named = |name: &str, limit| {
            Rule::new(name, Quota::fixed_window(limit, MINUTE)).by(constant("all"))
        };
        let live = ["outer", "inner"].map(|name| {
            let rules = [named(name, 1)];
            LiveConfig::new(store.clone(), |_| Ok(()), rules).expect("a valid rule")
        });
        let limit = |live: &Arc<LiveConfig>| {
            let config = live.load();
            config.rules.set().rules()[0].quota_of(0).limit()
        };
        const LAST: u64 = 300;
        std::thread::scope(|scope| {
            for order in [[0, 1], [1, 0]] {
                let layers = order.map(|at| &live[at]);
                scope.spawn(move || {
                    let mut seen = 0;
                    while seen < LAST {
                        // Nobody sees an older one than somebody has seen elsewhere.
                        for layer in layers {
                            let now = limit(layer);
                            assert!(now >= seen, "{now} after {seen}");
                            seen = now;
                        }
                    }
                });
            }
            for limit in 2..=LAST {
                let part = |at: usize, name| {
                    let list = vec![named(name, limit)];
                    let edit: Box<EditFn> = Box::new(move |_| Ok(list));
                    (Arc::clone(&live[at].rules), edit)
                };
                LayerRules::replace_all(vec![part(0, "outer"), part(1, "inner")])
                    .expect("valid rules");
            }
        });
    }

    #[test]
    fn a_request_counts_on_its_own_stripe_alone() {
        let live = live();
        let counts = || -> Vec<usize> {
            let current = live.current.iter();
            current
                .map(|config| Arc::strong_count(&lock(config)))
                .collect()
        };
        let service = Mutex::new(ServiceConfig::new(Arc::clone(&live)));
        let request = || {
            let (mut expected, stripe) = (counts(), striped::current_stripe());
            // The second and third time, the service remembers it: on the first stripe, and where it goes on.
            let mut service = lock(&service);
            let held = [service.load(), service.load(), service.load()];
            drop(service);
            expected[stripe] += held.len();
            assert_eq!(counts(), expected);

            // Prepared values are counted as well.
            let rules = &held[0].rules;
            let key = rules.limiter.check_at(0, &tollgate_core::KeyBuf::new(), 1);
            let decision = rules.limiter.acquire(&[key]).ready().expect("at once");
            let mut fields = HeaderMap::new();
            let verdicts = decision.verdicts();
            held[0]
                .headers
                .write(&mut fields, verdicts, rules.set(), None);
            let policy = fields[RATELIMIT_POLICY].as_bytes().as_ptr() as usize;
            (stripe, policy)
        };
        // New threads have the stripes in rotation.
        let mut policies = BTreeMap::new();
        while policies.len() < live.current.iter().count() {
            let requested = std::thread::scope(|scope| scope.spawn(request).join());
            let (stripe, policy) = requested.expect("no panic");
            policies.insert(stripe, policy);
        }
        let distinct: BTreeSet<_> = policies.values().collect();
        assert_eq!(
            distinct.len(),
            policies.len(),
            "each stripe has a value of its own"
        );
    }
}
