//! The layers and limiters that have the rules in force.

use tollgate::{LiveLimiter, RuleError, RulesHandle, shed::ShedLayer};
use tollgate_core::{
    Tick,
    types::{RuleChange, WeakLiveLimiter},
};

use crate::rule_document::RuleDocument;

/// What has the rules in force. No layer or limiter with rules is kept: the names of what the service has dropped are free.
#[derive(Default)]
pub(crate) struct Followers {
    layers: Vec<RulesHandle>,
    limiters: Vec<WeakLiveLimiter>,
    sheds: Vec<(ShedLayer, Box<SetShed>)>,
}

/// What the service sets on a layer that sheds, in addition to what the document says.
pub(crate) type SetShed = dyn Fn(ShedLayer) -> ShedLayer + Send + Sync;

/// A document, and the time that its rules are for.
pub(crate) type At<'a> = (&'a RuleDocument, Tick);

impl Followers {
    /// How many layers and limiters there are, gone or not.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.layers.len() + self.limiters.len()
    }

    pub(crate) fn add_layer(&mut self, layer: RulesHandle) {
        self.forget_gone();
        self.layers.push(layer);
    }

    pub(crate) fn add_limiter(&mut self, limiter: &LiveLimiter) {
        self.forget_gone();
        self.limiters.push(limiter.downgrade());
    }

    pub(crate) fn add_shed(&mut self, layer: ShedLayer, set: Box<SetShed>) {
        self.sheds.push((layer, set));
    }

    /// Forgets the layers and limiters that are gone.
    pub(crate) fn forget_gone(&mut self) {
        self.layers.retain(|handle| handle.limiter().is_some());
        self.limiters.retain(|limiter| limiter.upgrade().is_some());
    }

    /// All or none. Says what changed in the first layer, or else in the first limiter.
    pub(crate) fn replace(
        &mut self,
        before: At<'_>,
        after: At<'_>,
    ) -> Result<Vec<RuleChange>, RuleError> {
        // First, since it is code of the service: a panic changes nothing.
        let changed = self.sheds.iter().filter(|_| !after.0.sheds_as(before.0));
        let sheds: Vec<ShedLayer> = changed.map(|(_, set)| set(after.0.shed_layer())).collect();
        let of_layers = self.replace_layers(after)?;
        let rules = |(document, at): At<'_>| document.limiter_rules_at(at);
        let mut of_limiters = Vec::new();
        let limiters = self.limiters.iter().filter_map(WeakLiveLimiter::upgrade);
        let limiters: Vec<LiveLimiter> = limiters.collect();
        for (index, limiter) in limiters.iter().enumerate() {
            match limiter.replace(rules(after)) {
                Ok(changes) => of_limiters.push(changes),
                Err(wrong) => {
                    // These rules were in force until now, and their names are free.
                    for limiter in &limiters[..index] {
                        let _ = limiter.replace(rules(before));
                    }
                    let _ = self.replace_layers(before);
                    return Err(wrong);
                }
            }
        }
        for ((layer, _), next) in self.sheds.iter().zip(sheds) {
            layer.replace(&next);
        }
        let changes = of_layers.into_iter().chain(of_limiters).next();
        Ok(changes.unwrap_or_default())
    }

    fn replace_layers(
        &mut self,
        (document, at): At<'_>,
    ) -> Result<Vec<Vec<RuleChange>>, RuleError> {
        if self.layers.is_empty() {
            return Ok(Vec::new());
        }
        let made = document.rules_at(at);
        loop {
            let layers = self.layers.len();
            let rules = self.layers.iter().map(|handle| (handle, made.clone()));
            let replaced = RulesHandle::replace_all(rules);
            if replaced.is_err() {
                self.forget_gone();
            }
            // A layer may go at any time, and the others have the rules without it.
            if replaced.is_ok() || self.layers.len() == layers {
                return replaced;
            }
        }
    }
}
