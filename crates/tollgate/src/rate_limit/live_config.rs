//! A configuration whose rules can be replaced while requests are decided by it.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tollgate_core::{Limiter, RuleError, Store, striped::PerStripe};

use crate::{
    rate_limit::{
        config::Config,
        layer_rules::{Accepts, FollowRules, LayerRules, State},
        request_rules::RequestRules,
        settings::Settings,
    },
    rule::RequestRule,
};

/// What a layer and its services share: the configuration in force, and the limiter that keeps its rule names in use.
pub(crate) struct LiveConfig {
    /// The configuration in force, for each stripe of threads: a request holds it, and its count is written with each one.
    current: PerStripe<Mutex<Arc<Config>>>,
    /// The limiter that keeps the names in use. Requests in flight hold a configuration alone, so that they do not keep a
    /// rule name from getting another quota.
    limiter: Mutex<Limiter>,
    /// Shared with the layers that were configured from the same one.
    rules: Arc<LayerRules>,
}

impl LiveConfig {
    pub(crate) fn new(
        replaced: &[&Limiter],
        store: impl Store,
        accepts: Accepts,
        rules: impl IntoIterator<Item: Into<RequestRule>>,
    ) -> Result<Arc<Self>, RuleError> {
        let rules: Vec<RequestRule> = rules.into_iter().map(Into::into).collect();
        accepts(&rules)?;
        let rules = RequestRules::new(replaced, &store, rules)?;
        let config = Config::new(rules, Settings::default());
        // With the limiter that keeps the names in use.
        let rules = LayerRules::new(Arc::new(store), accepts, config.rules.clone());
        Ok(Self::following(
            &mut rules.lock(),
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
        let follower: Weak<Self> = Arc::downgrade(&live);
        state.add(follower);
        live
    }

    /// The configuration in force, for one request. It does not change.
    #[inline]
    pub(crate) fn load(&self) -> Arc<Config> {
        Arc::clone(&lock(self.current.here()))
    }

    /// The rules, which a handle replaces.
    pub(crate) fn rules(&self) -> &Arc<LayerRules> {
        &self.rules
    }

    /// The limiter that keeps the rule names in use.
    pub(crate) fn limiter(&self) -> Limiter {
        lock(&self.limiter).clone()
    }

    /// The same rules with other settings, but for the number of instances.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Settings)) -> Arc<Self> {
        let mut state = self.rules.lock();
        let mut settings = self.load().settings.clone();
        change(&mut settings);
        self.configured(&mut state, self.limiter(), settings)
    }

    /// The same rules with these settings.
    pub(crate) fn with_settings(&self, settings: Settings) -> Result<Arc<Self>, RuleError> {
        let mut state = self.rules.lock();
        let limiter = self.limiter();
        let limiter = match self.load().settings.instances == settings.instances {
            true => limiter,
            false => limiter.shared_by(settings.instances)?,
        };
        Ok(self.configured(&mut state, limiter, settings))
    }

    pub(crate) fn with_instances(&self, instances: NonZeroU32) -> Result<Arc<Self>, RuleError> {
        let settings = Settings {
            instances,
            ..self.load().settings.clone()
        };
        self.with_settings(settings)
    }

    fn configured(&self, state: &mut State, limiter: Limiter, settings: Settings) -> Arc<Self> {
        let before = self.load();
        let mut rules = before.rules.clone();
        rules.limiter = limiter.into();
        let config = before.with(rules, settings);
        Self::following(state, Arc::clone(&self.rules), config)
    }
}

impl FollowRules for LiveConfig {
    fn follow(self: Arc<Self>, rules: RequestRules) -> Result<Box<dyn FnOnce()>, RuleError> {
        let mut rules = rules;
        rules.limiter = rules.limiter.succeeding(&lock(&self.limiter))?;
        let before = self.load();
        let mut config = before.with(rules, before.settings.clone());
        let limiter = config.rules.take_registered();
        let stripes = 0..self.current.iter().len();
        let prepared = stripes.map(|stripe| Arc::new(config.for_stripe(stripe)));
        let prepared: Vec<_> = prepared.collect();
        Ok(Box::new(move || self.put_in_force(limiter, prepared)))
    }
}

impl LiveConfig {
    /// Puts a configuration in force on all stripes in one step: no request sees it before another sees the one before.
    fn put_in_force(&self, limiter: Limiter, prepared: Vec<Arc<Config>>) {
        let mut current: Vec<_> = self.current.iter().map(lock).collect();
        let before = std::mem::replace(&mut *lock(&self.limiter), limiter);
        let replaced = current.iter_mut().zip(prepared);
        let replaced: Vec<_> = replaced
            .map(|(current, config)| std::mem::replace(&mut **current, config))
            .collect();
        // Services that remember the one of their last request wait for the lock as well.
        for config in &replaced {
            config.retire();
        }
        // Requests go on. What no request holds any more is dropped after the locks are released.
        drop(current);
        drop((before, replaced));
    }
}

/// What is locked is whole at each step.
#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for LiveConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::HeaderMap;
    use tollgate_core::{MINUTE, MemoryStore, Quota, striped};

    use super::*;
    use crate::{
        header::RATELIMIT_POLICY,
        key::constant,
        rate_limit::{rules_handle::RulesHandle, service_config::ServiceConfig},
        rule::Rule,
    };

    fn rule(limit: u64) -> RequestRule {
        Rule::new("all", Quota::fixed_window(limit, MINUTE)).by(constant("all"))
    }

    fn live() -> Arc<LiveConfig> {
        LiveConfig::new(&[], MemoryStore::new(), |_| Ok(()), [rule(60)]).expect("a valid rule")
    }

    fn limit(config: &Config) -> u64 {
        config.rules.set().rules()[0].quota().limit()
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
        let (service, policies) = (
            Mutex::new(ServiceConfig::new(Arc::clone(&live))),
            Mutex::new(Vec::new()),
        );
        striped::on_each_stripe(|| {
            let mut expected = counts();
            // The second and third time, the service remembers it: on the first stripe, and where it goes on.
            let mut service = lock(&service);
            let held = [service.load(), service.load(), service.load()];
            drop(service);
            expected[striped::current_stripe()] += held.len();
            assert_eq!(counts(), expected);

            // Prepared values are counted as well.
            let rules = &held[0].rules;
            let key = rules.limiter.check_at(0, &tollgate_core::KeyBuf::new(), 1);
            let decision = rules.limiter.acquire(&[key]).ready().expect("at once");
            let mut fields = HeaderMap::new();
            let verdicts = decision.verdicts();
            held[0]
                .headers
                .write(&mut fields, verdicts, rules.set(), decision.at());
            lock(&policies).push(fields[RATELIMIT_POLICY].as_bytes().as_ptr() as usize);
        });
        let policies = lock(&policies);
        let distinct: BTreeSet<_> = policies.iter().collect();
        assert_eq!(
            distinct.len(),
            policies.len(),
            "each stripe has a value of its own"
        );
    }

    #[test]
    fn a_replacement_is_in_force_at_once_on_all_stripes_and_keeps_nothing_of_what_was_before() {
        let live = live();
        let in_flight = Mutex::new(Vec::new());
        striped::on_each_stripe(|| {
            let mut service = ServiceConfig::new(Arc::clone(&live));
            let requests = [service.load(), service.load(), service.load()];
            assert!(requests.iter().all(|config| limit(config) == 60));
            lock(&in_flight).push((striped::current_stripe(), service, requests));
        });
        let handle = RulesHandle::new(live.rules());
        handle.replace([rule(90)]).expect("a valid rule");
        striped::on_each_stripe(|| {
            let here = striped::current_stripe();
            let mut in_flight = lock(&in_flight);
            let mut services = in_flight.iter_mut();
            let (_, service, requests) =
                services.find(|(stripe, ..)| *stripe == here).expect("one");
            assert_eq!(limit(&service.load()), 90);
            assert_eq!(
                limit(&requests[0]),
                60,
                "a request ends by what it began with"
            );
        });
        let in_flight = in_flight.into_inner().expect("no panic");
        for (_, _service, requests) in in_flight {
            let before = Arc::downgrade(&requests[0]);
            drop(requests);
            assert!(before.upgrade().is_none());
        }
    }
}
