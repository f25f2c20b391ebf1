//! What keeps the rule names of a layer in use: the layer and its services, and not the requests on their way.

use std::{ops::Deref, sync::Arc};

use tollgate_core::Limiter;

/// The configuration of a service, with the limiter that keeps its rule names in use. Requests on their way hold the
/// configuration alone, so that none of them is in the way of other quotas.
///
/// One allocation, so that a service is cloned with one count.
pub(crate) struct Live<C> {
    config: Arc<C>,
    _limiter: Option<Limiter>,
}

impl<C> Live<C> {
    pub(crate) fn new(config: &Arc<C>, limiter: Option<&Limiter>) -> Arc<Self> {
        Arc::new(Self {
            config: Arc::clone(config),
            _limiter: limiter.cloned(),
        })
    }
}

impl<C> Deref for Live<C> {
    type Target = Arc<C>;

    #[inline]
    fn deref(&self) -> &Arc<C> {
        &self.config
    }
}
