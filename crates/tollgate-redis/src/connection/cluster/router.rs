//! A cluster.

use std::sync::Arc;

use arc_swap::Guard;
use tokio::{task::JoinSet, time::Instant};

use crate::{
    address::Address,
    connection::{
        cluster::{
            map::{ClusterState, Map, Member, Redirect},
            topology_refresh::learn,
        },
        command::Command,
        error::{CallError, CallErrorKind, code_of},
        node::{Answer, AnswerFuture},
        options::{NodeEvent, NodeOptions, Resent},
    },
    keys::keyspace::hash_slot,
};

/// The servers of a Redis Cluster, each with a connection of its own, and a task that learns which they are.
///
/// It may be started before any of them is there. Dropping it ends the task; a connection ends when its last call has.
pub(crate) struct Cluster {
    shared: Arc<ClusterState>,
    _topology_refresh: JoinSet<()>,
}

impl Cluster {
    /// Starts to learn who is there, and to connect.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O and time drivers.
    pub(crate) fn start(address: Address, options: NodeOptions) -> Self {
        let shared = Arc::new(ClusterState::new(options));
        let mut topology_refresh = JoinSet::new();
        topology_refresh.spawn(learn(address, Arc::clone(&shared)));
        Self {
            shared,
            _topology_refresh: topology_refresh,
        }
    }

    /// Runs a command where its first key is, until the deadline. Nothing is waited for but the answer: where the server is not known, has
    /// no connection, or fails, the call has failed already.
    ///
    /// A call without keys is refused as [`Misconfigured`](CallErrorKind::Misconfigured).
    pub(crate) fn send(&self, mut command: Command, deadline: Instant) -> AnswerFuture {
        // A server refuses keys of several hash slots by itself.
        let Some(hash_slot) = command.keys.iter().next().map(hash_slot) else {
            let message = "a call to a cluster needs a key, which says where it goes";
            let error = CallError::new(CallErrorKind::Misconfigured, message);
            return AnswerFuture::Refused(error);
        };
        let map = self.shared.map.load();
        let member = match map.owner(hash_slot) {
            Ok(member) => member,
            Err(error) => return AnswerFuture::Refused(error),
        };
        command.hash_slot = hash_slot;
        let command = Arc::new(command);
        let call = (member.node).send(Arc::clone(&command), deadline, false);
        if call.is_refused() {
            return call;
        }
        let (shared, member) = (Arc::clone(&self.shared), Arc::clone(member));
        AnswerFuture::Sent(Box::pin(follow(shared, command, deadline, member, call)))
    }

    #[cfg(test)]
    pub(crate) fn call(&self, command: Command) -> AnswerFuture {
        let deadline = Instant::now() + self.shared.options.deadline;
        self.send(command, deadline)
    }

    /// Who has which hash slot, as far as it is known.
    pub(crate) fn map(&self) -> Guard<Arc<Map>> {
        self.shared.map.load()
    }
}

tollgate_core::debug_fields!(Cluster, it => primaries: it.map().primaries);

// One call to a cluster.

/// How often a call is sent on: to the owner of a hash slot, and to where that is moving it.
const MOST_SENT_ON: u8 = 2;

/// Sends a call to where its answers say, until one is the end of it. `member` was asked last; it does not end before it has answered.
async fn follow(
    shared: Arc<ClusterState>,
    command: Arc<Command>,
    deadline: Instant,
    mut member: Arc<Member>,
    call: AnswerFuture,
) -> Answer {
    let mut answer = call.await;
    let mut sent_on = 0;
    while let Err(error) = answer {
        let Some(redirect) = Redirect::of(&error, &member.place, &shared.options) else {
            if matches!(code_of(error.line()), "CLUSTERDOWN" | "READONLY") {
                shared.stale.notify_one();
            }
            return Err(error);
        };
        let lost = |why: &str| {
            let message = format!("{why}: {error}");
            Err(CallError::new(CallErrorKind::Unavailable, message))
        };
        let is_ask = redirect.why == Resent::AskRedirect;
        if !is_ask {
            shared.stale.notify_one();
        }
        let Some(place) = &redirect.place else {
            return lost("the hash slot is with a server that has no name yet");
        };
        let moved = (!is_ask).then_some(command.hash_slot);
        let Some(named) = shared.named(place, moved) else {
            return lost("the hash slot is with a server that is being connected");
        };
        if sent_on == MOST_SENT_ON {
            // The reply to `ASKING` is dropped. Where it is not allowed, the call comes back at once.
            return lost(
                "the hash slot moves on and on, or the user has no right to ASKING (+asking)",
            );
        }
        sent_on += 1;
        shared.options.tell(&NodeEvent::Resent(redirect.why));
        member = named;
        let call = (member.node).send(Arc::clone(&command), deadline, is_ask);
        answer = call.await;
    }
    answer
}
