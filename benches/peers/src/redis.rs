//! Checks through one Redis, by turns on one server.

use std::{
    convert::Infallible,
    error::Error,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use redis_1::{AsyncConnectionConfig, aio::MultiplexedConnection};
use tollgate_benches::redis::{
    load::{Clients, Measured, run},
    server::Server,
    store::{PATIENCE, Shared, quotas},
};
use tower::{Layer, Service, service_fn};
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};
use tower_rate_limiter::{RedisStore, Store};

use crate::{harness::Compared, table::Row};

/// How long one side runs in one round.
const SPAN: Duration = Duration::from_millis(200);

const CALLERS: [usize; 3] = [1, 64, 512];

/// References: a script for each check, which keeps no promise.
const ARRIVAL_TIME: &str = "bare script";
const COUNTER: &str = "bare counter";

const ARRIVAL_TIME_SCRIPT: &str = "\
    local time = redis.call('TIME')\n\
    local now = time[1] * 1000000 + time[2]\n\
    local at = math.max(tonumber(redis.call('GET', KEYS[1])) or 0, now) + 1000\n\
    if at > now + 1000000 then return 0 end\n\
    redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', 1000)\n\
    return 1";

const COUNTER_SCRIPT: &str = "\
    local count = redis.call('INCR', KEYS[1])\n\
    if count == 1 then redis.call('PEXPIRE', KEYS[1], 1000) end\n\
    return count";

type Answer = Pin<Box<dyn Future<Output = ()>>>;

/// Somebody who is asked to take a unit of a client.
type Send = Arc<dyn Fn(u64) -> Answer>;

/// An algorithm of ours, and a peer.
struct Duel {
    algorithm: &'static str,
    ours: Send,
    peer: &'static str,
    theirs: Send,
}

/// The rows.
pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> Result<(), Box<dyn Error>> {
    let server = Server::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        for (algorithm, quota) in quotas() {
            let peers: &[&'static str] = match algorithm {
                "gcra" => &["rate-limit-redis", ARRIVAL_TIME, "INCR"],
                "fixed window" | "sliding window" => &["rate-limiter", COUNTER, "INCR"],
                _ => &["INCR"],
            };
            for peer in peers {
                let ours = Shared::connect(&server, quota, None).await?;
                let duel = Duel {
                    algorithm,
                    ours: Arc::new(move |client| Box::pin(ours.clone().take(client))),
                    peer,
                    theirs: connect(&server, peer).await?,
                };
                for callers in CALLERS {
                    duel.fight(&server, callers, rounds, print).await?;
                }
            }
        }
        Ok(())
    })
}

impl Duel {
    async fn fight(
        &self,
        server: &Server,
        callers: usize,
        rounds: usize,
        print: &mut dyn FnMut(Row),
    ) -> Result<(), Box<dyn Error>> {
        server.forget()?;
        let mut measured = Vec::new();
        // The first round warms up.
        for round in 0..=rounds {
            let ours = turn(server, callers, &self.ours).await;
            let theirs = turn(server, callers, &self.theirs).await;
            if round > 0 {
                measured.push((ours, theirs));
            }
        }
        let row = |what: &str, unit, figure: fn(&Measured) -> f64| {
            let rounds: Vec<_> = measured
                .iter()
                .map(|(ours, theirs)| (figure(ours), figure(theirs)))
                .collect();
            let what = format!("{}, {callers} callers, {what}", self.algorithm);
            Row::compared(what, unit, self.peer, Compared::of(&rounds))
        };
        // Times, so that less is better here as elsewhere.
        let mut each = row("each", "µs", |side| 1e6 / side.per_second);
        let mut median = row("median wait", "µs", |side| side.median);
        let mut server = row("server CPU", "µs", |side| side.server);
        match (self.algorithm, self.peer, callers) {
            ("gcra", "rate-limit-redis", 512) => {
                each = each.gate(1.0).gate_on_ours(1e6 / 330_000.0).direction(0.6);
                server = server.gate_on_ours(3.0);
            }
            ("fixed window" | "sliding window", "rate-limiter", 512) => {
                each = each.gate(1.0).gate_on_ours(1e6 / 500_000.0);
                server = server.gate_on_ours(1.8);
            }
            ("gcra", "rate-limit-redis", 64) => median = median.gate(1.0).direction(0.6),
            _ => {}
        }
        print(each);
        print(median);
        print(row("p99", "µs", |side| side.p99));
        print(server);
        Ok(())
    }
}

async fn turn(server: &Server, callers: usize, send: &Send) -> Measured {
    let send = Arc::clone(send);
    let who = (callers, Clients::Many);
    run(server, who, SPAN, move |client| send(client)).await
}

async fn connect(server: &Server, peer: &str) -> Result<Send, Box<dyn Error>> {
    Ok(match peer {
        "rate-limit-redis" => {
            let client = redis_032::Client::open(server.address())?;
            let connection = client.get_multiplexed_async_connection().await?;
            let service = RateLimitLayer::builder()
                .conn(connection)
                .key_resolver(ByClient)
                .capacity(1000)
                .emission_interval(Duration::from_millis(1))
                .build()
                .layer(service_fn(answer as Handler));
            Arc::new(move |client| {
                let mut service = service.clone();
                Box::pin(async move {
                    let mut request = Request::new(());
                    request.extensions_mut().insert(client);
                    let Ok(response) = service.call(request).await;
                    assert!(!response.status().is_server_error(), "{response:?}");
                })
            })
        }
        "rate-limiter" => {
            let store = RedisStore::new(connection(server).await?);
            Arc::new(move |client| {
                let usage = store.increment(&format!("{client}"), Duration::from_secs(1));
                Box::pin(async move {
                    // At the turn of a window it takes a wait of nothing for a mistake of Redis. It has counted.
                    let _ = usage.await;
                })
            })
        }
        ARRIVAL_TIME | COUNTER => {
            let mut connection = connection(server).await?;
            let script = match peer {
                COUNTER => COUNTER_SCRIPT,
                _ => ARRIVAL_TIME_SCRIPT,
            };
            let mut load = redis_1::cmd("SCRIPT");
            let load = load.arg("LOAD").arg(script);
            let hash: String = load.query_async(&mut connection).await?;
            let hash: Arc<str> = hash.into();
            let prefix = peer.replace(' ', "-");
            Arc::new(move |client| {
                let (mut connection, hash) = (connection.clone(), Arc::clone(&hash));
                let key = format!("{prefix}:{client}");
                Box::pin(async move {
                    let mut command = redis_1::cmd("EVALSHA");
                    let check = command.arg(&*hash).arg(1).arg(key);
                    let _: u64 = check.query_async(&mut connection).await.expect("a number");
                })
            })
        }
        _ => {
            let connection = connection(server).await?;
            Arc::new(move |client| {
                let mut connection = connection.clone();
                Box::pin(async move {
                    let mut command = redis_1::cmd("INCR");
                    let count = command.arg(format!("incr:{client}"));
                    let count: u64 = count.query_async(&mut connection).await.expect("a count");
                    assert!(count > 0);
                })
            })
        }
    })
}

async fn connection(server: &Server) -> redis_1::RedisResult<MultiplexedConnection> {
    let client = redis_1::Client::open(server.address())?;
    // As long as ours: a busy machine is no reason to give up.
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

#[derive(Clone, Copy, Debug)]
struct ByClient;

impl KeyResolver for ByClient {
    type Key = String;
    type ErrorBody = ();

    fn key<T>(&self, request: &Request<T>) -> Result<String, Response<()>> {
        let client = request.extensions().get::<u64>();
        client
            .map(|client| format!("peer:{client}"))
            .ok_or_else(|| Response::new(()))
    }
}

type Handler = fn(Request<()>) -> Ready<Result<Response<()>, Infallible>>;

/// What is behind the limiter: it answers at once.
fn answer(_: Request<()>) -> Ready<Result<Response<()>, Infallible>> {
    ready(Ok(Response::new(())))
}
