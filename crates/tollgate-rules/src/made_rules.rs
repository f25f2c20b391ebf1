//! The rules for layers that were made of a document.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use tollgate::RequestRule;

/// The rules for layers that were made of a document, so that a document after it makes only those that differ.
#[derive(Default)]
pub(crate) struct MadeRules {
    list: Vec<MadeRule>,
    by_name: OnceLock<HashMap<Arc<str>, usize>>,
}

/// What was made of one rule.
#[derive(Clone)]
pub(crate) struct MadeRule {
    /// A hash of all that it was made of.
    pub(crate) recipe: u64,
    /// Shared by copies: a document of thousands of rules makes many of them.
    pub(crate) made: Arc<Made>,
}

/// A rule's name, and the rules that were made of it.
pub(crate) struct Made {
    pub(crate) name: Arc<str>,
    pub(crate) rules: Vec<RequestRule>,
}

impl MadeRules {
    pub(crate) fn new(list: Vec<MadeRule>) -> Self {
        Self {
            list,
            by_name: OnceLock::new(),
        }
    }

    /// What was made at this index by this recipe, which is of the rule's name as well.
    pub(crate) fn made_by(&self, index: usize, recipe: u64) -> Option<&MadeRule> {
        let there = self.list.get(index);
        there.filter(|there| there.recipe == recipe)
    }

    /// What was made of the rule with this name, which is probably at this index.
    pub(crate) fn get(&self, index: usize, name: &str) -> Option<&MadeRule> {
        let there = self
            .list
            .get(index)
            .filter(|there| *there.made.name == *name);
        there.or_else(|| {
            let by_name = self.by_name.get_or_init(|| {
                let names = self.list.iter().enumerate();
                names
                    .map(|(index, there)| (Arc::clone(&there.made.name), index))
                    .collect()
            });
            self.list.get(*by_name.get(name)?)
        })
    }

    /// All of them, for a layer.
    pub(crate) fn rules(&self) -> Vec<RequestRule> {
        let mut all = Vec::with_capacity(self.list.len());
        for of_rule in &self.list {
            all.extend_from_slice(&of_rule.made.rules);
        }
        all
    }
}
