//! A connection to Redis that is made anew when it breaks.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use ::redis::{
    Cmd, FromRedisValue, RedisResult, ScriptInvocation,
    aio::{MultiplexedConnection, PubSub},
};
use futures_core::Stream;
use tokio::time::timeout;

use crate::redis::{
    dial::PATIENCE,
    push_error::{PushError, PushErrorKind},
    servers::Servers,
};

/// How often a call follows servers that send it elsewhere.
const REDIRECTS: usize = 5;

/// What is asked of a server.
#[derive(Clone, Copy)]
enum Call<'a> {
    Script(&'a ScriptInvocation<'a>),
    Command(&'a Cmd),
}

/// A connection for scripts and commands.
pub(crate) struct Link {
    servers: Arc<Servers>,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    pub(crate) fn new(servers: Arc<Servers>) -> Self {
        let connection = None;
        Self {
            servers,
            connection,
        }
    }

    async fn connection(&mut self) -> RedisResult<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let made = self.servers.connect().await?;
        self.connection = Some(made.clone());
        Ok(made)
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
        let mut redirects = 0;
        loop {
            let reply = match self.connection().await {
                Ok(mut connection) => match call {
                    Call::Script(script) => script.invoke_async(&mut connection).await,
                    Call::Command(command) => command.query_async(&mut connection).await,
                },
                Err(wrong) => Err(wrong),
            };
            match &reply {
                Err(wrong) if redirects < REDIRECTS && self.servers.sends_elsewhere(wrong) => {
                    redirects += 1;
                    self.connection = None;
                }
                _ => return self.answered(reply),
            }
        }
    }

    fn answered<T>(&mut self, reply: RedisResult<T>) -> Result<T, PushError> {
        reply.map_err(|wrong| {
            // What the server says itself leaves the connection as it was.
            if wrong.code().is_none() {
                self.connection = None;
            }
            let message = match wrong.redirect_node() {
                Some((server, slot)) => format!(
                    "Redis is a cluster, and the rules' slot {slot} is on {server}; write the address as redis-cluster://{server}"
                ),
                None => format!("Redis: {wrong}"),
            };
            PushError::new(PushErrorKind::Unavailable, message)
        })
    }
}

/// Publications of a channel.
pub(crate) struct Subscription(PubSub);

impl Subscription {
    /// `None`: Redis does not let us, or does not answer. Looking is enough then.
    pub(crate) async fn new(servers: &Servers, channel: &str) -> Option<Self> {
        let subscribing = async {
            let mut pubsub = servers.listen().await.ok()?;
            pubsub.subscribe(channel).await.ok()?;
            Some(Self(pubsub))
        };
        timeout(PATIENCE, subscribing).await.ok().flatten()
    }

    /// Waits for a publication. `None`: the connection is broken.
    pub(crate) async fn next(&mut self) -> Option<()> {
        let mut messages = self.0.on_message();
        poll_fn(|cx| Pin::new(&mut messages).poll_next(cx))
            .await
            .map(drop)
    }
}
