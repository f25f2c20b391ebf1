//! A connection to Redis that is made anew when it breaks.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use ::redis::{
    Cmd, FromRedisValue, RedisResult, ScriptInvocation,
    aio::{MultiplexedConnection, PubSub},
    cmd,
};
use futures_core::Stream;
use tokio::time::{Instant, sleep, timeout};
use tollgate_redis::Place;

use crate::redis::{
    dial::PATIENCE,
    push_error::{PushError, PushErrorKind},
    servers::{Redirect, Servers, is_moving},
};

/// How often a call follows servers that send it elsewhere.
const REDIRECTS: usize = 5;

/// For how long a call is tried anew whose keys are on two servers, because their slot moves, and how often.
const MOVES_FOR: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_millis(50);

/// For how long a master is taken for the one that the sentinels name. A process looks about as often.
const NAMED_FOR: Duration = Duration::from_secs(4);

/// What is asked of a server.
#[derive(Clone, Copy)]
enum Call<'a> {
    Script(&'a ScriptInvocation<'a>),
    Command(&'a Cmd),
}

impl Call<'_> {
    async fn on<T: FromRedisValue>(self, connection: &mut MultiplexedConnection) -> RedisResult<T> {
        match self {
            Self::Script(script) => script.invoke_async(connection).await,
            Self::Command(command) => command.query_async(connection).await,
        }
    }
}

/// A connection for scripts and commands.
pub(crate) struct Link {
    servers: Arc<Servers>,
    connection: Option<(MultiplexedConnection, Place)>,
    /// When it was last known that this is the server.
    known_at: Instant,
}

impl Link {
    pub(crate) fn new(servers: Arc<Servers>) -> Self {
        let connection = None;
        Self {
            servers,
            connection,
            known_at: Instant::now(),
        }
    }

    async fn connection(&mut self) -> RedisResult<MultiplexedConnection> {
        if let Some((connection, place)) = &self.connection {
            if self.known_at.elapsed() < NAMED_FOR {
                return Ok(connection.clone());
            }
            if !self.servers.have_another_master(place).await {
                self.known_at = Instant::now();
                return Ok(connection.clone());
            }
            self.connection = None;
        }
        let made = self.servers.connect().await?;
        self.known_at = Instant::now();
        let (connection, _) = self.connection.insert(made);
        Ok(connection.clone())
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
        let moves_until = Instant::now() + MOVES_FOR;
        let mut redirects = 0;
        let mut once = None;
        loop {
            let reply = self.reply(call, once.take()).await;
            let redirect = reply
                .as_ref()
                .err()
                .and_then(|it| self.servers.redirect(it));
            match redirect {
                Some(Redirect::Later) if Instant::now() < moves_until => {
                    sleep(TRY_EVERY).await;
                    // From the server that has the slot on: it knows by then where the keys are.
                    redirects = 0;
                }
                Some(Redirect::Always) if redirects < REDIRECTS => {
                    self.connection = None;
                    redirects += 1;
                }
                Some(Redirect::Once(place)) if redirects < REDIRECTS => {
                    once = Some(place);
                    redirects += 1;
                }
                _ => return self.answered(reply),
            }
        }
    }

    async fn reply<T: FromRedisValue>(
        &mut self,
        call: Call<'_>,
        once: Option<Place>,
    ) -> RedisResult<T> {
        let Some(place) = once else {
            let mut connection = self.connection().await?;
            return call.on(&mut connection).await;
        };
        // `ASKING` is for the next command alone: the script must not be unknown there.
        let mut connection = self.servers.connect_to(&place).await?;
        if let Call::Script(script) = call {
            script.load_async(&mut connection).await?;
        }
        cmd("ASKING").query_async::<()>(&mut connection).await?;
        call.on(&mut connection).await
    }

    fn answered<T>(&mut self, reply: RedisResult<T>) -> Result<T, PushError> {
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
                _ => format!("Redis: {wrong}"),
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
