//! What three instances ask Redis under each consistency, and what they let through: `cargo run --example leased`.
//!
//! Four clients with a limit each. One of them sends nearly twice what it may, the others stay below. The program starts a
//! `redis-server` of its own, and takes about half a minute.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, io, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tollgate::{
    Check, Consistency, Decision, Key, Limiter, Quota, Rule, SECOND, decision::Source,
    store::LeaseShare,
};
use tollgate_redis::{Keys, RedisStore};

type Failure = Box<dyn Error + Send + Sync>;

/// Processes, as far as Redis can tell.
const INSTANCES: usize = 3;

/// For how long each consistency is tried.
const TIME: Duration = Duration::from_secs(10);

/// Each instance sends a request in this time.
const PACE: Duration = Duration::from_millis(2);

/// An instance that ends waits for Redis for so long at most.
const END: Duration = Duration::from_secs(5);

/// What each client may have in a second, and at once.
const RATE: u64 = 400;

/// Who sends the requests: every other one is from the first client.
const CLIENTS: [&str; 6] = ["busy", "two", "busy", "three", "busy", "four"];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // Free now. Should another process be faster, the server ends, and there is no connection.
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let _redis = redis_server(port)?;
    let ways = [
        ("exact", Consistency::Exact),
        (
            "leased",
            Consistency::Leased {
                share: LeaseShare::percent(10),
            },
        ),
        (
            "eventual",
            Consistency::Eventual {
                interval: Duration::from_millis(100),
                max_unreported: 20,
            },
        ),
    ];
    println!(
        "{INSTANCES} instances, {} s for each consistency; clients may have {RATE} a second and {RATE} at once.\n",
        TIME.as_secs()
    );
    println!("consistency  requests  calls to Redis  answered alone  let through of the busy one");
    for (name, consistency) in ways {
        let stores = stores(port, name).await?;
        reset_calls(port).await?;
        let began = Instant::now();
        let counted = run(&stores, consistency).await?;
        let allowed = RATE + (began.elapsed().as_secs_f64() * RATE as f64) as u64;
        // Redis hears of what was counted alone, and gets its leases back, before anything is made of its figures.
        let unreported = flush(&stores).await;
        let calls = calls(port).await?;
        println!(
            "{name:11}  {:8}  {calls:7} ({:4.1} %)  {:12.1} %  {:5} of {allowed} ({:.1} %)",
            counted.requests,
            percent(calls, counted.requests),
            percent(counted.alone, counted.requests),
            counted.busy,
            percent(counted.busy, allowed),
        );
        if unreported > 0 {
            println!("Redis does not know of {unreported} units that were let through");
        }
    }
    println!(
        "
Exact sends about every request that is let through; what was denied teaches a process when to send again. Leased never lets
through more than the limit: it sends seldom about the clients that stay below theirs, and at the limit of the one that does
not instances take turns.
Eventual tells what it has let through every 100 ms; all {INSTANCES} instances together may be above the limit by {INSTANCES}
times 20 units."
    );
    Ok(())
}

/// What instances have sent, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    requests: u64,
    /// Decided without Redis.
    alone: u64,
    /// Let through of the busy client.
    busy: u64,
}

impl Counted {
    fn count(&mut self, client: &str, decision: &Decision) {
        let verdicts = decision.verdicts();
        let sent = verdicts.iter().any(|it| it.source() == Source::Store);
        self.requests += 1;
        self.alone += u64::from(!sent);
        self.busy += u64::from(client == "busy" && decision.is_allowed());
    }

    fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            alone: self.alone + other.alone,
            busy: self.busy + other.busy,
        }
    }
}

/// A `redis-server` on this port of the loopback interface, which writes nothing to disk and ends with this program.
fn redis_server(port: u16) -> io::Result<Child> {
    Command::new("redis-server")
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ])
        .current_dir(env::temp_dir())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            let message = format!("redis-server cannot be started ({error}); install it first");
            io::Error::new(error.kind(), message)
        })
}

/// A store for each instance, in a namespace of their own.
async fn stores(port: u16, namespace: &str) -> Result<Vec<RedisStore>, Failure> {
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        let address = format!("redis://127.0.0.1:{port}");
        let store = RedisStore::builder(address, namespace, Keys::plain()).connect()?;
        timeout(Duration::from_secs(5), store.connected()).await?;
        stores.push(store);
    }
    Ok(stores)
}

async fn run(stores: &[RedisStore], consistency: Consistency) -> Result<Counted, Failure> {
    let mut instances = JoinSet::new();
    for (place, store) in stores.iter().enumerate() {
        let quota = Quota::token_bucket(RATE).refill(RATE, SECOND);
        let rule = Rule::new("per-client", quota).consistency(consistency);
        let limiter = Limiter::new(store.clone(), [rule])?;
        let checks = CLIENTS.map(|client| limiter.check("per-client", &Key::of(client)));
        let mut clients = Vec::new();
        for (client, check) in CLIENTS.into_iter().zip(checks) {
            clients.push((client, check?));
        }
        // They do not send in step.
        clients.rotate_left(place);
        instances.spawn(instance(limiter, clients));
    }
    let counted = instances.join_all().await.into_iter();
    Ok(counted.fold(Counted::default(), Counted::and))
}

/// Ends all instances in order. Gives the units that Redis may not know of.
async fn flush(stores: &[RedisStore]) -> u64 {
    let mut unreported = 0;
    for store in stores {
        unreported += store.flush(END).await;
    }
    unreported
}

/// Sends requests at a steady pace.
async fn instance(limiter: Limiter, clients: Vec<(&'static str, Check)>) -> Counted {
    let mut beat = interval(PACE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = Instant::now() + TIME;
    let mut counted = Counted::default();
    for (client, check) in clients.iter().cycle() {
        if beat.tick().await >= end {
            break;
        }
        counted.count(client, &limiter.acquire(&[*check]).await);
    }
    counted
}

/// How often Redis has run the script.
async fn calls(port: u16) -> io::Result<u64> {
    let stats = send(port, "INFO commandstats").await?;
    let line = |text: &'static str| stats.lines().find_map(move |line| line.strip_prefix(text));
    let calls = line("cmdstat_evalsha:calls=").and_then(|rest| rest.split(',').next());
    Ok(calls.and_then(|calls| calls.parse().ok()).unwrap_or(0))
}

async fn reset_calls(port: u16) -> io::Result<()> {
    send(port, "CONFIG RESETSTAT").await.map(drop)
}

/// The answer to a command, as Redis writes it.
async fn send(port: u16, command: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream
        .write_all(format!("{command}\r\n").as_bytes())
        .await?;
    // With nothing more to come, Redis closes the connection once it has answered.
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
