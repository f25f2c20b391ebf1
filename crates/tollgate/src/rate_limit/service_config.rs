//! The configuration of a service.

use std::sync::{Arc, Weak};

use tollgate_core::striped::Handle;

use crate::rate_limit::{config::Config, live_config::LiveConfig};

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
