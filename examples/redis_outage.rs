//! What clients see while Redis is gone and when it comes back, second by second: `cargo run --example redis_outage`.
//!
//! Three rules of ten units a second, which differ in what they do when their store fails. Three clients send twenty
//! requests a second each. The program starts a `redis-server` of its own, and takes about fifteen seconds.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, fmt, io, num::NonZeroU32, process::Stdio, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::Request;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    time::{Interval, MissedTickBehavior, interval, timeout},
};
use tollgate::{OnStoreError, Quota, RateLimitLayer, Rule, SECOND, Store, key::constant};
use tollgate_redis::{BreakerState, Keys, RedisStore};
use tower::ServiceExt;

/// After so many seconds Redis is killed..
const KILLED: u32 = 3;
/// ..started again..
const BACK: u32 = 7;
/// ..and the program ends.
const END: u32 = 15;

/// Requests of each client in a second.
const RATE: u32 = 20;

/// Where each answer to a store failure is at work.
const PATHS: [&str; 3] = ["/deny", "/share", "/allow"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // Free now. Should another process be faster, the server ends, and there is no connection.
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let mut redis = redis_server(port)?;
    let address = format!("redis://127.0.0.1:{port}");
    let store = RedisStore::builder(address, "outage", Keys::plain()).connect()?;
    timeout(Duration::from_secs(30), store.connected()).await?;
    let app = app(&store)?;

    println!(
        "Ten a second for each client. This is one of two instances. Twenty requests in each second:\n"
    );
    println!(
        "second  Deny                 LocalShare           Allow                breaker    Redis"
    );
    let mut beat = interval(SECOND / RATE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for second in 1..=END {
        let mut event = "";
        if second == KILLED {
            redis.kill().await?;
            event = "is killed";
        } else if second == BACK {
            redis = redis_server(port)?;
            event = "is started again, with nothing in it";
        }
        let [deny, share, allow] = a_second(&app, &mut beat).await?;
        let breaker = breaker(store.breaker());
        println!("{second:6}  {deny}  {share}  {allow}  {breaker:9}  {event}");
    }
    println!(
        "
200: let through. 429: over the limit. 503: not let through because Redis failed.
Deny lets nothing through while Redis is gone. LocalShare counts in this process, here for half of the quota, because
there are two instances. Allow counts nothing. Redis is asked again by probes first, then by a share of the requests,
and as it had nothing on disk, everybody has a burst once more."
    );
    Ok(())
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

fn app(store: &(impl Store + Clone)) -> Result<Router, Box<dyn Error + Send + Sync>> {
    // In a service the store tells how many there are; this is the least.
    let instances = NonZeroU32::MIN.saturating_add(1);
    let answers = [
        OnStoreError::Deny,
        OnStoreError::LocalShare,
        OnStoreError::Allow,
    ];
    let mut app = Router::new();
    for (path, answer) in PATHS.into_iter().zip(answers) {
        let rule = Rule::new(&path[1..], Quota::gcra(10, SECOND))
            .on_store_error(answer)
            .by(constant("the client"));
        let limits = RateLimitLayer::new(store.clone(), [rule])?.instances(instances)?;
        app = app.route(path, get(|| async { "hello\n" }).route_layer(limits));
    }
    Ok(app)
}

/// What the clients see in a second.
async fn a_second(
    app: &Router,
    beat: &mut Interval,
) -> Result<[Seen; 3], Box<dyn Error + Send + Sync>> {
    let mut seen = [Seen::default(); 3];
    for _ in 0..RATE {
        beat.tick().await;
        for (path, seen) in PATHS.into_iter().zip(&mut seen) {
            let request = Request::get(path).body(Body::empty())?;
            match app.clone().oneshot(request).await?.status().as_u16() {
                200 => seen.passed += 1,
                429 => seen.over += 1,
                _ => seen.failed += 1,
            }
        }
    }
    Ok(seen)
}

/// The answers to one client.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    passed: u32,
    over: u32,
    failed: u32,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (count, status) in [(self.passed, 200), (self.over, 429), (self.failed, 503)] {
            if count > 0 {
                text += &format!("{count:2}×{status} ");
            }
        }
        write!(f, "{text:19}")
    }
}

fn breaker(state: BreakerState) -> String {
    match state {
        BreakerState::Closed => "closed".to_owned(),
        BreakerState::Open => "open".to_owned(),
        BreakerState::Probing => "probing".to_owned(),
        ramping => format!("at {} %", ramping.share()),
    }
}
