//! What requests and the topology refresh of a cluster share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{runtime::Handle, sync::Notify, time::Instant};

use crate::{
    address::Place,
    connection::{
        cluster::map::{Map, Member},
        error::{CallError, CallErrorKind},
        options::NodeOptions,
    },
};

/// The state of a cluster.
pub(super) struct Shared {
    pub(super) map: ArcSwap<Map>,
    pub(super) options: NodeOptions,
    /// So that a call finds a timer wherever it is polled.
    pub(super) runtime: Handle,
    /// A notice here starts a topology refresh.
    pub(super) stale: Arc<Notify>,
    named: Mutex<HashMap<Place, Instant>>,
}

/// How long a server that no map knows is kept after another one has redirected a call to it.
const WELCOME: Duration = Duration::from_secs(30);
/// More of them are not remembered.
const MOST_NAMED: usize = 1_000;

impl Shared {
    pub(super) fn new(options: NodeOptions, runtime: Handle) -> Self {
        let unknown = CallError::new(
            CallErrorKind::Unavailable,
            "not connected to Redis: the servers of the cluster are not known yet",
        );
        Self {
            map: ArcSwap::from_pointee(Map::empty(unknown)),
            options,
            runtime,
            stale: Arc::new(Notify::new()),
            named: Mutex::new(HashMap::new()),
        }
    }

    /// The member at `place`, which a server sent a call to. If it is not known yet it will be.
    pub(super) fn named(&self, place: &Place) -> Option<Arc<Member>> {
        let known = self.map.load().member(place).cloned();
        let mut named = self.lock();
        if named.len() < MOST_NAMED || named.contains_key(place) {
            named.insert(place.clone(), Instant::now());
        }
        drop(named);
        if known.is_none() {
            self.stale.notify_one();
        }
        known
    }

    /// The servers that were named of late.
    pub(super) fn unlisted(&self) -> Vec<Place> {
        let mut named = self.lock();
        named.retain(|_, at| at.elapsed() < WELCOME);
        named.keys().cloned().collect()
    }

    /// Each change under the lock is one step, so that a poisoned lock guards whole data.
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Instant>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
