//! A cluster.

use std::{fmt, sync::Arc};

use tokio::{runtime::Handle, task::AbortHandle, time::Instant};

use crate::{
    address::{Address, AddressError, Place, Target},
    connection::{
        breaker_state::BreakerState,
        cluster::{
            options::ClusterOptions, routed::ClusterCall, shared::Shared, topology_refresh::learn,
        },
        error::{CallError, CallErrorKind},
        node::LONGEST,
        request::Request,
        script::Script,
    },
    keys::slot::slot,
};

/// The servers of a Redis Cluster, each with a connection of its own, and a task that learns which they are.
///
/// It may be started before any of them is there. Dropping it ends the task; a connection ends when its last call has.
pub(crate) struct Cluster {
    shared: Arc<Shared>,
    topology_refresh: AbortHandle,
}

impl Cluster {
    /// Starts to learn who is there, and to connect.
    ///
    /// # Errors
    ///
    /// An address that is none of a cluster, or that asks for encryption with options that do not say how.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O and time drivers.
    pub(crate) fn start(
        address: Address,
        mut options: ClusterOptions,
    ) -> Result<Self, AddressError> {
        let Target::Cluster(_) = address.target() else {
            return Err(AddressError::new(
                "it names no cluster; write it as redis-cluster://host:6379,host2:6379",
            ));
        };
        if address.is_encrypted() && !options.node.security.is_there() {
            return Err(AddressError::new(
                "an encrypted connection needs to know whom to trust; give it a configuration of rustls",
            ));
        }
        options.node.deadline = options.node.deadline.min(LONGEST);
        let shared = Arc::new(Shared::new(options, Handle::current()));
        let topology_refresh = tokio::spawn(learn(address, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            shared,
            topology_refresh,
        })
    }

    /// Runs a script where its first key is. Nothing is waited for but the answer: where the server is not known, has no
    /// connection, or fails, the call has failed already.
    ///
    /// A call without keys, or with keys in several slots, is refused as [`Misconfigured`](CallErrorKind::Misconfigured).
    pub(crate) fn call(
        &self,
        script: &Arc<Script>,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
    ) -> ClusterCall {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        let args: Vec<_> = args.iter().map(AsRef::as_ref).collect();
        self.send(keys.iter().copied(), None, |_| {
            Request::new(script, &keys, &args)
        })
    }

    /// As [`call`](Self::call), with a request about these keys that is made once it may be sent, for their slot; answered
    /// until `by`, where a part of the time is gone already.
    pub(crate) fn send<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
        by: Option<Instant>,
        request: impl FnOnce(u16) -> Request,
    ) -> ClusterCall {
        let mut slots = keys.map(slot);
        let refused = |message| {
            let error = CallError::new(CallErrorKind::Misconfigured, message);
            ClusterCall::refused(error)
        };
        let Some(first) = slots.next() else {
            return refused("a call to a cluster needs a key, which says where it goes");
        };
        if slots.any(|slot| slot != first) {
            return refused("the keys of one call to a cluster have to be in one slot");
        }
        let map = self.shared.map.load();
        let member = match map.owner(first) {
            Ok(member) => member,
            Err(error) => return ClusterCall::refused(error),
        };
        let now = Instant::now();
        if by.is_some_and(|by| by <= now) {
            let message = "Redis was not asked: the time was gone with what was asked before";
            return ClusterCall::refused(CallError::new(CallErrorKind::Expired, message));
        }
        let deadline = by.unwrap_or(now + self.shared.options.node.deadline);
        let call = ClusterCall::send(&self.shared, member, first, deadline, || request(first));
        match by {
            Some(_) => call.ending_at_deadline(),
            None => call,
        }
    }

    /// The first slot of each server that has slots.
    #[cfg(feature = "metrics")]
    pub(crate) fn slots(&self) -> Vec<u16> {
        self.shared.map.load().first_slots()
    }

    /// Whether the map is known, and there is a connection to every server in it that has slots.
    pub(crate) fn is_connected(&self) -> bool {
        let map = self.shared.map.load();
        let mut primaries = map.primaries().iter();
        !map.primaries().is_empty() && primaries.all(|member| member.node.is_connected())
    }

    /// Why some requests do not go to their server.
    pub(crate) fn trouble(&self) -> Option<String> {
        let map = self.shared.map.load();
        if map.primaries().is_empty() {
            return Some(map.unknown().to_string());
        }
        let mut primaries = map.primaries().iter();
        primaries.find_map(|member| {
            let trouble = member.node.trouble()?;
            Some(format!("{}: {trouble}", member.place))
        })
    }

    /// The servers that have slots, and whether requests are kept from them.
    pub(crate) fn breakers(&self) -> Vec<(Place, BreakerState)> {
        let map = self.shared.map.load();
        let primaries = map.primaries().iter();
        primaries
            .map(|member| (member.place.clone(), member.node.breaker()))
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.topology_refresh.abort();
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let map = self.shared.map.load();
        let nodes = map.members().iter();
        f.debug_map()
            .entries(nodes.map(|member| (member.place.to_string(), &member.node)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::connection::{cluster::played::Played, value::Value};

    fn start(address: &str) -> Result<Cluster, String> {
        let address = Address::parse(address).expect("an address");
        Cluster::start(address, ClusterOptions::default()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_cluster_is_refused_that_could_never_be_reached() {
        let error = start("redis://127.0.0.1:1").expect_err("it is no cluster");
        assert!(error.contains("redis-cluster://"), "{error}");
        if cfg!(feature = "tls") {
            let error =
                start("rediss-cluster://127.0.0.1:1").expect_err("it is not known whom to trust");
            assert!(error.contains("rustls"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_cluster_whose_servers_are_not_known_says_so() {
        let cluster = start("redis-cluster://127.0.0.1:1").expect("it is one");
        let trouble = cluster.trouble().expect("there is trouble");
        assert!(trouble.contains("not known yet"), "{trouble}");
        assert!(!cluster.is_connected());
    }

    #[tokio::test]
    async fn a_cluster_that_is_dropped_is_not_asked_about_any_more() {
        let cluster = start("redis-cluster://127.0.0.1:1").expect("it is one");
        let shared = Arc::downgrade(&cluster.shared);
        tokio::task::yield_now().await;
        drop(cluster);
        // The task ends where it is scheduled next.
        tokio::task::yield_now().await;
        assert!(shared.upgrade().is_none());
    }

    /// A cluster of two servers with half of the slots each. Without an answer there is no server.
    async fn played(answers: &[Option<&'static str>; 2]) -> (Cluster, Played) {
        let played = Played::start(ClusterOptions::default(), 2, answers).await;
        let cluster = Cluster {
            shared: Arc::clone(&played.shared),
            topology_refresh: tokio::spawn(std::future::pending::<()>()).abort_handle(),
        };
        (cluster, played)
    }

    /// In a slot of the first server, and of the second.
    const KEYS: [&str; 2] = ["b", "a"];

    fn send(cluster: &Cluster, key: &str, by: Option<Instant>) -> ClusterCall {
        let script = Arc::new(Script::new("return 1"));
        let key = key.as_bytes();
        cluster.send([key].into_iter(), by, |_| {
            Request::new(&script, &[key], &[])
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_to_the_server_of_its_slot() {
        let (cluster, played) = played(&[Some(":1\r\n"), Some(":2\r\n")]).await;
        for (key, number) in KEYS.into_iter().zip(1..) {
            let answer = send(&cluster, key, None).await.unwrap();
            assert_eq!(answer, Value::Integer(number), "{key}");
        }
        assert_eq!(played.heard(), ["s1:1", "s2:2"]);
        assert!(cluster.is_connected());
        assert_eq!(cluster.trouble(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_when_its_request_does_and_else_after_the_deadline() {
        let (cluster, played) = played(&[Some(""), Some("")]).await;
        let deadline = cluster.shared.options.node.deadline;
        let began = Instant::now();
        let error = send(&cluster, KEYS[0], None).await.unwrap_err();
        assert_eq!(
            (error.kind(), began.elapsed()),
            (CallErrorKind::Unknown, deadline)
        );
        // Whatever was sent before it.
        let _earlier = played.occupy(2, Instant::now() + 10 * deadline);
        sleep(Duration::from_millis(1)).await;
        let by = Instant::now() + deadline / 2;
        let error = send(&cluster, KEYS[1], Some(by)).await.unwrap_err();
        assert_eq!((error.kind(), Instant::now()), (CallErrorKind::Unknown, by));
    }

    #[tokio::test]
    async fn a_deadline_is_an_hour_at_most() {
        let address = Address::parse("redis-cluster://127.0.0.1:1").expect("an address");
        let mut options = ClusterOptions::default();
        options.node.deadline = Duration::MAX;
        let cluster = Cluster::start(address, options).expect("it is one");
        let deadline = cluster.shared.options.node.deadline;
        assert_eq!(deadline, Duration::from_secs(3_600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_time_is_gone_is_not_sent() {
        let (cluster, played) = played(&[Some(":1\r\n"), Some(":2\r\n")]).await;
        let now = Instant::now();
        for by in [now, now - Duration::from_millis(1)] {
            let call = send(&cluster, KEYS[0], Some(by));
            assert!(call.is_refused());
            assert_eq!(call.await.unwrap_err().kind(), CallErrorKind::Expired);
        }
        assert!(played.heard().is_empty());
        let by = now + Duration::from_millis(1);
        assert!(send(&cluster, KEYS[0], Some(by)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_missing_is_named_whichever_it_is() {
        for (answers, missing) in [
            ([None, Some(":2\r\n")], "s1:1: "),
            ([Some(":1\r\n"), None], "s2:2: "),
        ] {
            let (cluster, _played) = played(&answers).await;
            assert!(!cluster.is_connected());
            let trouble = cluster.trouble().expect("one is missing");
            assert!(trouble.starts_with(missing), "{trouble}");
        }
    }
}
