//! A cluster.

use std::sync::Arc;

use tokio::{task::AbortHandle, time::Instant};

use crate::{
    address::Address,
    connection::{
        cluster::{
            map::{ClusterState, Member, Redirect},
            topology_refresh::learn,
        },
        command::Command,
        error::{CallError, CallErrorKind, code_of},
        node::{Answer, AnswerFuture},
        options::{NodeEvent, NodeOptions, Resent},
    },
    error::SetupError,
    keys::keyspace::hash_slot,
};

/// The servers of a Redis Cluster, each with a connection of its own, and a task that learns which they are.
///
/// It may be started before any of them is there. Dropping it ends the task; a connection ends when its last call has.
pub(crate) struct Cluster {
    shared: Arc<ClusterState>,
    topology_refresh: AbortHandle,
}

impl Cluster {
    /// Starts to learn who is there, and to connect.
    ///
    /// # Errors
    ///
    /// An address that asks for encryption, and options that do not say how.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O and time drivers.
    pub(crate) fn start(address: Address, options: NodeOptions) -> Result<Self, SetupError> {
        options.security.check(&address)?;
        let shared = Arc::new(ClusterState::new(options));
        let topology_refresh = tokio::spawn(learn(address, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            shared,
            topology_refresh,
        })
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
            return AnswerFuture::refused(error);
        };
        let map = self.shared.map.load();
        let member = match map.owner(hash_slot) {
            Ok(member) => member,
            Err(error) => return AnswerFuture::refused(error),
        };
        command.hash_slot = hash_slot;
        let command = Arc::new(command);
        let call = (member.node).send(Arc::clone(&command), deadline, false);
        if call.is_refused() {
            return call;
        }
        let routed = Routed {
            shared: Arc::clone(&self.shared),
            command,
            deadline,
            member: Arc::clone(member),
            sent_on: 0,
        };
        AnswerFuture::sent(routed.answer(call))
    }

    #[cfg(test)]
    pub(crate) fn call(&self, command: Command) -> AnswerFuture {
        let deadline = Instant::now() + self.shared.options.deadline;
        self.send(command, deadline)
    }

    /// The first hash slot of each server that has hash slots.
    #[cfg(feature = "metrics")]
    pub(crate) fn hash_slots(&self) -> Vec<u16> {
        self.shared.map.load().first_slots()
    }

    /// The servers that have hash slots.
    pub(crate) fn primaries(&self) -> Vec<Arc<Member>> {
        self.shared.map.load().primaries().to_vec()
    }

    /// Why a hash slot has no server, where no server has one.
    pub(crate) fn why_unassigned(&self) -> String {
        self.shared.map.load().unassigned.to_string()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.topology_refresh.abort();
    }
}

tollgate_core::debug_fields!(Cluster, it => primaries: it.primaries());

// One call to a cluster.

/// A call that a server has, and where it goes from there.
struct Routed {
    shared: Arc<ClusterState>,
    command: Arc<Command>,
    deadline: Instant,
    /// Who was asked last. Held so that it does not end before it has answered.
    member: Arc<Member>,
    /// How often it was sent on.
    sent_on: u8,
}

/// How often a call is sent on: to the owner of a hash slot, and to where that is moving it.
const MOST_SENT_ON: u8 = 2;

impl Routed {
    async fn answer(mut self, call: AnswerFuture) -> Answer {
        let mut answer = call.await;
        while let Err(error) = answer {
            answer = self.follow(error)?.await;
        }
        answer
    }

    /// Sends the call to where an error says, or gives back the error that is its end.
    fn follow(&mut self, error: CallError) -> Result<AnswerFuture, CallError> {
        let options = &self.shared.options;
        let Some(redirect) = Redirect::of(&error, &self.member.place, options) else {
            if matches!(code_of(error.line()), "CLUSTERDOWN" | "READONLY") {
                self.shared.stale.notify_one();
            }
            return Err(error);
        };
        let lost = |why: &str| {
            let message = format!("{why}: {error}");
            Err(CallError::new(CallErrorKind::Unavailable, message))
        };
        let why = match redirect.is_ask {
            true => Resent::AskRedirect,
            false => {
                self.shared.stale.notify_one();
                Resent::Moved
            }
        };
        let Some(place) = &redirect.place else {
            return lost("the hash slot is with a server that has no name yet");
        };
        let map = self.shared.map.load();
        let corrected =
            (!redirect.is_ask).then(|| map.correct(self.command.hash_slot, place).cloned());
        let Some(member) = corrected.flatten().or_else(|| self.shared.named(place)) else {
            return lost("the hash slot is with a server that is being connected");
        };
        if self.sent_on == MOST_SENT_ON {
            // The reply to `ASKING` is dropped. Where it is not allowed, the call comes back at once.
            return lost(
                "the hash slot moves on and on, or the user has no right to ASKING (+asking)",
            );
        }
        self.sent_on += 1;
        options.tell(&NodeEvent::Resent(why));
        self.member = member;
        let command = Arc::clone(&self.command);
        Ok((self.member.node).send(command, self.deadline, redirect.is_ask))
    }
}
