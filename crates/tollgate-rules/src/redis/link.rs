//! A connection to Redis that is made anew when it breaks.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use ::redis::{
    Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ScriptInvocation, ServerErrorKind,
    aio::{ConnectionLike, PubSub},
};
use futures_core::Stream;
use tokio::time::{Instant, timeout};

use crate::redis::{
    push_error::{PushError, PushErrorKind},
    servers::{Connection, PATIENCE, Servers},
};

/// For how long a master is taken for the one that the sentinels name. A process looks about as often.
const NAMED_FOR: Duration = Duration::from_secs(4);

/// What is asked of a server.
#[derive(Clone, Copy)]
enum Call<'a> {
    Script(&'a ScriptInvocation<'a>),
    Command(&'a Cmd),
}

impl Call<'_> {
    async fn on<T: FromRedisValue>(self, connection: &mut impl ConnectionLike) -> RedisResult<T> {
        match self {
            Self::Script(script) => script.invoke_async(connection).await,
            Self::Command(command) => command.query_async(connection).await,
        }
    }
}

/// A connection for scripts and commands.
pub(crate) struct Link {
    servers: Arc<Servers>,
    connection: Option<(Connection, Instant)>,
}

impl Link {
    pub(crate) fn new(servers: Arc<Servers>) -> Self {
        let connection = None;
        Self {
            servers,
            connection,
        }
    }

    /// Runs a script.
    pub(crate) async fn run<T: FromRedisValue>(
        &mut self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, PushError> {
        self.call(Call::Script(script)).await
    }

    /// Sends a command.
    pub(crate) async fn send<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, PushError> {
        self.call(Call::Command(command)).await
    }

    async fn call<T: FromRedisValue>(&mut self, call: Call<'_>) -> Result<T, PushError> {
        let mut reply = self.reply(call).await;
        // It was the master, and changed nothing; the sentinels name another one.
        if self.servers.master().is_some() && reply.as_ref().is_err_and(is_replica) {
            self.connection = None;
            reply = self.reply(call).await;
        }
        reply.map_err(|wrong| {
            // What the server says itself leaves the connection as it was.
            if wrong.code().is_none() {
                self.connection = None;
            }
            let message = match wrong.redirect_node() {
                Some((server, slot)) if !self.servers.are_cluster() => format!(
                    "Redis is a cluster, and the rules' slot {slot} is on {server}; write the address as redis-cluster://{server}"
                ),
                _ if is_moving(&wrong) => format!(
                    "the rules' slot moves from one server to another, and not all of its keys are there yet: {wrong}; try again when it has moved"
                ),
                _ => match self.servers.master() {
                    Some(master) if wrong.kind() == ErrorKind::MasterNameNotFoundBySentinel => {
                        format!("the sentinels know no master of the name {master:?}: {wrong}")
                    }
                    _ => format!("Redis: {wrong}"),
                },
            };
            PushError::new(PushErrorKind::Unavailable, message)
        })
    }

    async fn reply<T: FromRedisValue>(&mut self, call: Call<'_>) -> RedisResult<T> {
        let named_for =
            |made: &Instant| self.servers.master().is_some() && made.elapsed() > NAMED_FOR;
        // A master that was replaced may go on answering.
        self.connection.take_if(|(_, made)| named_for(made));
        let connection = match &mut self.connection {
            Some((connection, _)) => connection,
            None => {
                let made = Box::pin(self.servers.connect()).await?;
                &mut self.connection.insert((made, Instant::now())).0
            }
        };
        // Boxed, because the futures of redis-rs are deep, and those of users hold these.
        match connection {
            Connection::Server(server) => Box::pin(call.on(server)).await,
            Connection::Cluster(cluster) => Box::pin(call.on(cluster)).await,
        }
    }
}

/// Whether a server that is a replica has refused to write. Older servers wrap what a script's command was told.
fn is_replica(wrong: &RedisError) -> bool {
    wrong.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || wrong.detail().is_some_and(|what| what.contains("READONLY"))
}

/// Whether a server said that only some of the keys of a call are there, because their slot moves.
fn is_moving(wrong: &RedisError) -> bool {
    wrong.kind() == ErrorKind::Server(ServerErrorKind::TryAgain)
}

/// Publications of a channel.
pub(crate) struct Subscription(PubSub);

impl Subscription {
    /// `None`: Redis does not let us, or does not answer. Looking is enough then.
    pub(crate) async fn new(servers: &Servers, channel: &str) -> Option<Self> {
        let subscribed = async {
            let mut pubsub = Box::pin(servers.listen()).await.ok()?;
            Box::pin(pubsub.subscribe(channel)).await.ok()?;
            Some(Self(pubsub))
        };
        timeout(PATIENCE, subscribed).await.ok().flatten()
    }

    /// Waits for a publication. `None`: the connection is broken.
    pub(crate) async fn next(&mut self) -> Option<()> {
        let mut messages = self.0.on_message();
        poll_fn(|cx| Pin::new(&mut messages).poll_next(cx))
            .await
            .map(drop)
    }
}
