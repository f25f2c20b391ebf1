//! A connection to Redis that is made anew when it breaks.

use std::{future::poll_fn, pin::Pin, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    ScriptInvocation,
    aio::{MultiplexedConnection, PubSub},
};
use futures_core::Stream;
use tokio::time::timeout;

use crate::redis::push_error::{PushError, PushErrorKind};

/// How long a connection may take, and then each reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection for scripts and commands.
pub(crate) struct Link {
    client: Client,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    pub(crate) fn new(client: Client) -> Self {
        let connection = None;
        Self { client, connection }
    }

    async fn connection(&mut self) -> RedisResult<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let made = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        let made = timeout(2 * PATIENCE, made).await.map_err(|_| late())??;
        self.connection = Some(made.clone());
        Ok(made)
    }

    /// Runs a script.
    pub(crate) async fn run<T: FromRedisValue>(
        &mut self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, PushError> {
        let reply = match self.connection().await {
            Ok(mut connection) => script.invoke_async(&mut connection).await,
            Err(wrong) => Err(wrong),
        };
        self.answered(reply)
    }

    /// Sends a command.
    pub(crate) async fn send<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, PushError> {
        let reply = match self.connection().await {
            Ok(mut connection) => command.query_async(&mut connection).await,
            Err(wrong) => Err(wrong),
        };
        self.answered(reply)
    }

    fn answered<T>(&mut self, reply: RedisResult<T>) -> Result<T, PushError> {
        reply.map_err(|wrong| {
            // What the server says itself leaves the connection as it was.
            if wrong.code().is_none() {
                self.connection = None;
            }
            let message = match wrong.redirect_node() {
                Some((server, slot)) => format!(
                    "Redis is a cluster, and the rules' slot {slot} is on {server}; give that address"
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
    pub(crate) async fn new(client: &Client, channel: &str) -> Option<Self> {
        let subscribing = async {
            let mut pubsub = client.get_async_pubsub().await.ok()?;
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

fn late() -> RedisError {
    RedisError::from((ErrorKind::Io, "there is no connection in time"))
}
