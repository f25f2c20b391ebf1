//! What a check costs `tollgate-server`: processor time, next to a service of tonic that answers OK at once, by turns. And its memory with
//! a million clients, and how long an answer takes at 5 000 checks a second. See `benches/README.md`.
//!
//! ```text
//! cargo run --release -p tollgate-benches --bin edge --features edge
//! ```
//!
//! Servers are processes with one worker; the load comes from this one, as from an Envoy: 64 calls at a time on one connection.

#![expect(clippy::print_stdout, reason = "it prints its table")]

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    runtime,
    task::JoinSet,
    time::{Instant, interval},
};
use tollgate_server::{
    Server, Settings,
    proto::{
        RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
        rate_limit_descriptor::Entry,
        rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
        rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    },
};
use tonic::transport::{Channel, Endpoint};

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);
const AT_ONCE: u64 = 64;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [role, file] if role == "serve" => serve(file),
        [role] if role == "constant" => constant(),
        _ => runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(measure()),
    }
}

/// A process that serves until this is dropped.
struct Served {
    process: Child,
    _end: ChildStdin,
    addresses: Vec<String>,
    _folder: TempDir,
}

impl Served {
    fn start(settings: Option<&str>, rules: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("server.toml");
        fs::write(&file, settings.unwrap_or_default()).expect("it is written");
        fs::write(folder.path().join("limits.toml"), rules).expect("it is written");
        let mut command = Command::new(env::current_exe().expect("this program"));
        match settings {
            Some(_) => command.arg("serve").arg(&file),
            None => command.arg("constant"),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("TOLLGATE_SECRET", "0123456789abcdef".repeat(4));
        let mut process = command.spawn().expect("it runs again");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it listens");
        Self {
            _end: process.stdin.take().expect("piped"),
            addresses: line.trim().split(", ").map(str::to_owned).collect(),
            process,
            _folder: folder,
        }
    }

    /// Its processor time so far.
    fn busy(&self) -> Duration {
        let stat =
            fs::read_to_string(format!("/proc/{}/schedstat", self.process.id())).expect("Linux");
        Duration::from_nanos(
            stat.split(' ')
                .next()
                .and_then(|it| it.parse().ok())
                .expect("a number"),
        )
    }

    /// Its memory, in MiB.
    fn resident(&self) -> f64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("Linux");
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS"))
            .expect("it has some");
        line.split_whitespace()
            .nth(1)
            .and_then(|it| it.parse::<f64>().ok())
            .expect("kB")
            / 1_024.0
    }

    async fn client(&self) -> RateLimitServiceClient<Channel> {
        let endpoint =
            Endpoint::from_shared(format!("http://{}", self.addresses[0])).expect("an address");
        RateLimitServiceClient::new(endpoint.connect().await.expect("it listens"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves as the program does, with one worker.
fn serve(file: &str) {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let settings = Settings::read(file).expect("right settings");
        let server = Server::start(settings, tollgate_server::install_metrics().ok())
            .await
            .expect("it starts");
        println!("{}", server.addresses().join(", "));
        server.run(std::future::pending()).await;
    });
}

/// A service that answers OK at once.
fn constant() {
    struct Constant;

    #[tonic::async_trait]
    impl RateLimitService for Constant {
        async fn should_rate_limit(
            &self,
            _: tonic::Request<RateLimitRequest>,
        ) -> Result<tonic::Response<RateLimitResponse>, tonic::Status> {
            let mut answer = RateLimitResponse::default();
            answer.set_overall_code(Code::Ok);
            Ok(tonic::Response::new(answer))
        }
    }

    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("it has one"));
        let incoming =
            tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
        let service = RateLimitServiceServer::new(Constant);
        let server = tonic::transport::Server::builder().add_service(service);
        server
            .serve_with_incoming(incoming)
            .await
            .expect("it serves");
    });
}

/// What Envoy sends of a request with the key of an API.
fn request(key: u64) -> RateLimitRequest {
    let key = format!("key-{key}");
    asked(&[
        ("path", "/search/things?q=a"),
        ("method", "GET"),
        ("remote_address", "192.0.2.7"),
        ("header:x-api-key", &key),
    ])
}

/// The same by a descriptor of a configuration that exists.
fn descriptor(key: u64) -> RateLimitRequest {
    let kind = format!("kind-{key}");
    asked(&[("kind", &kind), ("to", "+441234")])
}

fn asked(entries: &[(&str, &str)]) -> RateLimitRequest {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned(),
        value: (*value).to_owned().into(),
    });
    let descriptor = RateLimitDescriptor {
        entries: entries.collect(),
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    }
}

/// Calls for a while, and returns how much processor time each took the server, in µs.
async fn round(served: &Served, code: Code, request: fn(u64) -> RateLimitRequest) -> f64 {
    let client = served.client().await;
    let calls = Arc::new(AtomicU64::new(0));
    let (began, busy) = (Instant::now(), served.busy());
    let mut callers = JoinSet::new();
    for caller in 0..AT_ONCE {
        let (mut client, calls) = (client.clone(), Arc::clone(&calls));
        callers.spawn(async move {
            while began.elapsed() < ROUND {
                let key = (calls.fetch_add(1, Ordering::Relaxed) + caller) % 8;
                let answer = client
                    .should_rate_limit(request(key))
                    .await
                    .expect("it answers");
                assert_eq!(answer.into_inner().overall_code(), code);
            }
        });
    }
    while callers.join_next().await.is_some() {}
    (served.busy() - busy).as_secs_f64() * 1e6 / calls.load(Ordering::Relaxed) as f64
}

fn rules(limit: &str, more: &str) -> String {
    format!(
        "version = 1\n[[rules]]\nname = 'per-key'\nlimit = '{limit}'\nby = 'header:x-api-key'\nwhen = {{ path = '/search/{{*rest}}' }}\n{more}\n\
         [[rules]]\nname = 'per-ip'\nlimit = '1000000000/s'\nby = 'client_ip'\n{more}\n"
    )
}

/// A file of this many rules for descriptors. Calls ask about the first few.
fn of_descriptors(rules: u64) -> String {
    let rule = |rule| {
        format!(
            "[[rules]]\nname = 'rule-{rule}'\nlimit = '1000000000/s'\nby = 'descriptor:to'\n\
             when = {{ domain = 'edge', descriptor = [{{ kind = 'kind-{rule}' }}, 'to'] }}\n"
        )
    };
    let rules: String = (0..rules).map(rule).collect();
    format!("version = 1\n{rules}")
}

const SETTINGS: &str = "rules = 'limits.toml'\ngrpc = { listen = '127.0.0.1:0' }\n";

async fn measure() {
    let open = rules("1000000/s burst 1000000", "");
    let lease = "consistency = { leased = '10%' }";
    let redis = env::var("REDIS_URL").ok();
    let on_redis = redis
        .map(|url| format!("{SETTINGS}[redis]\naddress = '{url}'\nnamespace = 'bench-edge'\n"));
    type Ask = fn(u64) -> RateLimitRequest;
    let mut rows: Vec<(_, _, Ask, _, _)> = vec![
        (
            "allowed, in memory",
            Code::Ok,
            request,
            1.3,
            Served::start(Some(SETTINGS), &open),
        ),
        (
            "denied, in memory",
            Code::OverLimit,
            request,
            1.5,
            Served::start(Some(SETTINGS), &rules("fixed_window 1/d", "cost = 1")),
        ),
        (
            "a descriptor, ten rules",
            Code::Ok,
            descriptor,
            1.3,
            Served::start(Some(SETTINGS), &of_descriptors(10)),
        ),
        (
            "a descriptor, a thousand rules",
            Code::Ok,
            descriptor,
            1.3,
            Served::start(Some(SETTINGS), &of_descriptors(1_000)),
        ),
    ];
    if let Some(settings) = &on_redis {
        let leased = rules("sliding_window 100000000/min", lease);
        rows.push((
            "allowed by a lease, on Redis",
            Code::Ok,
            request,
            1.3,
            Served::start(Some(settings), &leased),
        ));
    }
    let constant = Served::start(None, "");
    println!(
        "| check | processor time | an answer at once | ratio | goal |\n| --- | --- | --- | --- | --- |"
    );
    for (name, code, asked, goal, served) in &rows {
        // The first of each key is allowed.
        warm(served).await;
        let mut measured = Vec::new();
        for _ in 0..ROUNDS {
            measured.push((
                round(served, *code, *asked).await,
                round(&constant, Code::Ok, *asked).await,
            ));
        }
        measured.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
        let (ours, theirs) = measured[ROUNDS / 2];
        println!(
            "| {name} | {ours:.1} µs | {theirs:.1} µs | {:.2} | {goal} |",
            ours / theirs
        );
    }
    // A state that lasts: of those that are as fresh ones nothing is kept.
    let served = Served::start(Some(SETTINGS), &rules("fixed_window 100/d", ""));
    let before = served.resident();
    fill(&served, 1_000_000).await;
    println!(
        "\nmemory: {before:.0} MiB at the start, {:.0} MiB with 1 000 000 clients",
        served.resident()
    );
    for (name, served) in [("in memory", &served), ("an answer at once", &constant)] {
        let [p50, p99, p999] = paced(served).await.map(|it| it.as_micros());
        println!("5 000 checks a second, {name}: p50 {p50} µs, p99 {p99} µs, p99.9 {p999} µs");
    }
}

async fn warm(served: &Served) {
    let mut client = served.client().await;
    for key in 0..8 {
        client
            .should_rate_limit(request(key))
            .await
            .expect("it answers");
    }
}

/// One check of each of so many clients.
async fn fill(served: &Served, clients: u64) {
    let client = served.client().await;
    let mut callers = JoinSet::new();
    for caller in 0..AT_ONCE {
        let mut client = client.clone();
        callers.spawn(async move {
            for key in (caller..clients).step_by(AT_ONCE as usize) {
                client
                    .should_rate_limit(request(key))
                    .await
                    .expect("it answers");
            }
        });
    }
    while callers.join_next().await.is_some() {}
}

/// How long answers take of five checks in each millisecond, for four seconds: half of them, 99 and 99.9 of 100.
async fn paced(served: &Served) -> [Duration; 3] {
    let client = served.client().await;
    let mut ticks = interval(Duration::from_millis(1));
    let mut callers = JoinSet::new();
    for tick in 0..4_000 {
        ticks.tick().await;
        for key in 0..5 {
            let mut client = client.clone();
            callers.spawn(async move {
                let began = Instant::now();
                client
                    .should_rate_limit(request(tick * 5 + key))
                    .await
                    .expect("it answers");
                began.elapsed()
            });
        }
    }
    let mut took: Vec<Duration> = callers.join_all().await;
    took.sort();
    [0.5, 0.99, 0.999].map(|part| took[(took.len() as f64 * part) as usize])
}
