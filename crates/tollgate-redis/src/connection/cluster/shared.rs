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
        cluster::{
            map::{Map, Member},
            options::ClusterOptions,
        },
        error::{CallError, CallErrorKind},
    },
};

/// The state of a cluster.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) map: ArcSwap<Map>,
    pub(super) options: ClusterOptions,
    /// So that a call finds a timer wherever it is polled.
    pub(super) runtime: Handle,
    stale: Arc<Notify>,
    named: Mutex<HashMap<Place, Instant>>,
}

/// How long a server that no map knows is kept after another one has redirected a call to it.
const WELCOME: Duration = Duration::from_secs(30);
/// More of them are not remembered.
const MOST_NAMED: usize = 1_000;

impl Shared {
    pub(super) fn new(options: ClusterOptions, runtime: Handle) -> Self {
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

    /// A notice here starts a topology refresh.
    pub(super) fn stale(&self) -> &Arc<Notify> {
        &self.stale
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

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    fn shared() -> Shared {
        Shared::new(ClusterOptions::default(), Handle::current())
    }

    fn place(port: u16) -> Place {
        Place::Tcp("shard".into(), port)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_another_one_has_named_is_asked_about_for_half_a_minute() {
        let shared = shared();
        assert!(shared.named(&place(1)).is_none());
        // The map is learnt anew for it.
        let learnt = timeout(WELCOME, shared.stale().notified()).await;
        assert!(learnt.is_ok());
        advance(Duration::from_secs(10)).await;
        assert!(shared.named(&place(2)).is_none());
        advance(Duration::from_millis(19_999)).await;
        assert_eq!(shared.unlisted().len(), 2);
        advance(Duration::from_millis(1)).await;
        assert_eq!(shared.unlisted(), [place(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_servers_that_are_named_are_bounded_and_those_that_are_known_stay() {
        let shared = shared();
        for port in 0..=1_000 {
            shared.named(&place(port));
        }
        assert_eq!(shared.unlisted().len(), 1_000);
        advance(Duration::from_secs(20)).await;
        shared.named(&place(7));
        shared.named(&place(2_000));
        advance(Duration::from_secs(20)).await;
        assert_eq!(shared.unlisted(), [place(7)]);
    }
}
