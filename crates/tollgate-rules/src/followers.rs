//! The layers that have the rules in force.

use tollgate::{RequestRule, RuleError, RulesHandle, shed::ShedLayer};
use tollgate_core::{Tick, types::RuleChange};

use crate::rule_document::RuleDocument;

/// What has the rules in force. No layer with rules is kept: the names of what the service has dropped are free.
#[derive(Default)]
pub(crate) struct Followers {
    pub(crate) layers: Vec<RulesHandle>,
    sheds: Vec<(ShedLayer, Box<SetShed>)>,
}

/// What the service sets on a layer that sheds, in addition to what the document says.
pub(crate) type SetShed = dyn Fn(ShedLayer) -> ShedLayer + Send + Sync;

impl Followers {
    pub(crate) fn add_layer(&mut self, layer: RulesHandle) {
        self.forget_gone();
        self.layers.push(layer);
    }

    pub(crate) fn add_shed(&mut self, layer: ShedLayer, set: Box<SetShed>) {
        self.sheds.push((layer, set));
    }

    /// Forgets the layers that are gone.
    pub(crate) fn forget_gone(&mut self) {
        self.layers.retain(|handle| handle.limiter().is_some());
    }

    /// Puts the rules of a document at a time in force in all layers, or in none. Says what changed in the first one.
    pub(crate) fn replace(
        &mut self,
        before: &RuleDocument,
        document: &RuleDocument,
        at: Tick,
    ) -> Result<Vec<RuleChange>, RuleError> {
        // First, since it is code of the service: a panic changes nothing.
        let changed = self.sheds.iter().filter(|_| !document.sheds_as(before));
        let sheds: Vec<ShedLayer> = changed.map(|(_, set)| set(document.shed_layer())).collect();
        let changes = self.replace_layers(&document.rules_at(at))?;
        for ((layer, _), next) in self.sheds.iter().zip(sheds) {
            layer.replace(&next);
        }
        Ok(changes)
    }

    fn replace_layers(&mut self, made: &[RequestRule]) -> Result<Vec<RuleChange>, RuleError> {
        loop {
            let layers = self.layers.len();
            if layers == 0 {
                return Ok(Vec::new());
            }
            let rules = self.layers.iter().map(|handle| (handle, made.to_vec()));
            let replaced = RulesHandle::replace_all(rules);
            if replaced.is_err() {
                self.forget_gone();
            }
            // A layer may go at any time, and the others have the rules without it.
            if replaced.is_ok() || self.layers.len() == layers {
                return Ok(replaced?.into_iter().next().unwrap_or_default());
            }
        }
    }
}
