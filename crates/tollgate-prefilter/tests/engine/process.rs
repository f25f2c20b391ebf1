//! A process with its engine.

use std::sync::Arc;

use tollgate_core::RuleSet;
use tollgate_prefilter::{BoundRules, Engine, EngineOptions};

use crate::world::World;

/// A process with its engine.
pub(crate) struct Process {
    pub(crate) engine: Arc<Engine>,
    /// The last is in use, the others are retired.
    pub(crate) bound: Vec<Arc<BoundRules>>,
    pub(crate) is_removed: bool,
    /// The units that are lost.
    pub(crate) really_lost: u64,
}

impl Process {
    pub(crate) fn new(world: &World, rules: &Arc<RuleSet>) -> Self {
        let options = EngineOptions {
            keys: 1,
            ..EngineOptions::default()
        };
        let engine = Engine::new(options);
        let bound = BoundRules::new(&engine, Arc::clone(rules), world.places(), |_| None);
        Self {
            engine,
            bound: vec![bound],
            is_removed: false,
            really_lost: 0,
        }
    }

    /// The units that the engine says are lost.
    pub(crate) fn lost(&self) -> u64 {
        self.engine.counts().units_lost
    }
}
