//! Slots over sockets, with clients that go away at any point: nothing is leaked, and never do more run than may.

use std::{
    collections::HashMap,
    env,
    net::SocketAddr,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::Path,
    response::{IntoResponse, Response},
    routing,
};
use http::{HeaderMap, Method, Request, StatusCode, header::CONNECTION};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};
use tokio_stream::{StreamExt, iter};
use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, Rule, key::header};
use tollgate_tests::server::Server;

/// At once, for each client.
const SLOTS: u64 = 3;
const CLIENTS: u64 = 3;
const TASKS: u64 = 12;

/// What the service does. The first ones never end by themselves.
const WORK: [&str; 11] = [
    "never",
    "endless",
    "panic",
    "panic-in-body",
    "error-in-body",
    "full",
    "lines",
    "slow",
    "nothing",
    "not-modified",
    "upgrade",
];
const ENDLESS: usize = 2;

/// How many run, by client, and the most that did.
#[derive(Clone, Debug, Default)]
struct Running(Arc<HashMap<String, [AtomicU64; 2]>>);

/// A request that runs.
struct Run(Running, String);

impl Running {
    fn start(&self, client: &str) -> Run {
        let [now, most] = &self.0[client];
        let running = now.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(running, Ordering::SeqCst);
        Run(self.clone(), client.to_owned())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.0[&self.1][0].fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body of these lines, during which the request runs.
fn lines(run: Run, count: usize, end: fn() -> Option<Result<Bytes, &'static str>>) -> Response {
    let lines = iter(0..count).then(|_| async {
        yield_now().await;
        Ok(Bytes::from_static(
            b"a line of some length, so that the client can stop within it\n",
        ))
    });
    let mut run = Some(run);
    let ends = iter(0..1).filter_map(move |_| {
        drop(run.take());
        end()
    });
    Body::from_stream(lines.chain(ends)).into_response()
}

async fn work(
    Path(work): Path<String>,
    Extension(running): Extension<Running>,
    headers: HeaderMap,
    mut request: Request<Body>,
) -> Response {
    let run = running.start(headers["x-client"].to_str().expect("text"));
    match work.as_str() {
        "never" => std::future::pending().await,
        "endless" => lines(run, usize::MAX, || None),
        "panic" => resume_unwind(Box::new("in the handler")),
        "panic-in-body" => lines(run, 2, || resume_unwind(Box::new("in the body"))),
        "error-in-body" => lines(run, 2, || Some(Err("in the body"))),
        "full" => "all of it".into_response(),
        "lines" => lines(run, 5, || None),
        "slow" => {
            sleep(Duration::from_millis(1)).await;
            "at last".into_response()
        }
        "not-modified" => StatusCode::NOT_MODIFIED.into_response(),
        "upgrade" => {
            // The slot goes back with the response.
            drop(run);
            tokio::spawn(async move {
                let upgraded = hyper::upgrade::on(&mut request).await;
                drop(upgraded);
            });
            let fields = [(CONNECTION, "upgrade"), (http::header::UPGRADE, "lines")];
            (StatusCode::SWITCHING_PROTOCOLS, fields).into_response()
        }
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

/// Numbers that look random, the same for each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

/// A request, and after how much of the response its client goes away; 0 is before its head.
struct Plan {
    client: String,
    work: &'static str,
    method: Method,
    patience: u64,
}

impl Plan {
    fn of(random: &mut Random) -> Self {
        let work = random.below(WORK.len() as u64) as usize;
        // Some stay to the end, of what has one.
        let stays = work >= ENDLESS && random.below(3) == 0;
        Self {
            client: format!("client-{}", random.below(CLIENTS)),
            work: WORK[work],
            method: if random.below(8) == 0 {
                Method::HEAD
            } else {
                Method::GET
            },
            patience: if stays { u64::MAX } else { random.below(9) },
        }
    }

    /// By hand over HTTP/1.1. It goes away after some bytes: in the head, in the body.
    async fn over_http1(&self, server: SocketAddr) -> bool {
        let mut stream = TcpStream::connect(server).await.expect("it listens");
        let Self {
            client,
            work,
            method,
            ..
        } = self;
        let head = format!(
            "{method} /{work} HTTP/1.1\r\nhost: localhost\r\nx-client: {client}\r\nconnection: close\r\n\r\n"
        );
        // Sometimes not even the head is sent as a whole.
        let sent = if self.patience == 0 {
            head.len() / 2
        } else {
            head.len()
        };
        stream
            .write_all(&head.as_bytes()[..sent])
            .await
            .expect("it reads");
        let mut received = Vec::new();
        if self.patience == u64::MAX {
            let _ = stream.read_to_end(&mut received).await;
        } else {
            let patience = (self.patience * 40).saturating_sub(40);
            let mut some = (&mut stream).take(patience);
            // What never answers is not waited for.
            let _ = timeout(Duration::from_millis(5), some.read_to_end(&mut received)).await;
        }
        received.starts_with(b"HTTP/1.1 2")
    }

    /// It resets its stream after some frames.
    async fn over_http2(
        &self,
        connection: &mut SendRequest<Empty<Bytes>>,
    ) -> Result<bool, hyper::Error> {
        connection.ready().await?;
        let request = Request::builder()
            .method(self.method.clone())
            .uri(format!("http://localhost/{}", self.work))
            .header("x-client", &self.client)
            .body(Empty::new())
            .expect("a request");
        let mut response = Box::pin(connection.send_request(request));
        if self.patience <= 2 {
            for _ in 0..self.patience * 3 {
                tokio::select! {
                    biased;
                    _ = &mut response => return Ok(false),
                    () = yield_now() => {}
                }
            }
            return Ok(false);
        }
        // What never answers is not waited for.
        let Ok(response) = timeout(Duration::from_millis(5), response).await else {
            return Ok(false);
        };
        // A panic in the handler ends the stream.
        let Ok(response) = response else {
            return Ok(false);
        };
        let is_served = response.status().is_success();
        let mut body = response.into_body();
        let mut frames = self.patience;
        while frames > 0 && body.frame().await.is_some_and(|frame| frame.is_ok()) {
            frames -= 1;
        }
        Ok(is_served)
    }
}

async fn http2(server: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server).await.expect("it listens");
    let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

fn number(variable: &str, default: u64) -> u64 {
    let text = env::var(variable);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// The free slots of each client.
fn free(limits: &RateLimitLayer) -> Vec<u64> {
    let of_client = |client: u64| {
        let request = Request::get("/").header("x-client", format!("client-{client}"));
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let key = limits.key_of("at-once", &head).expect("it has a key");
        let check = limits
            .limiter()
            .check("at-once", &key)
            .expect("it is there");
        let looked = limits.limiter().peek(&[check.with_cost(0)]).ready();
        looked.expect("memory answers at once").verdicts()[0].remaining()
    };
    (0..CLIENTS).map(of_client).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_slot_is_leaked_by_clients_that_go_away() {
    let requests = number("TOLLGATE_ABORTS", 1_500);
    let seed = number("TOLLGATE_ABORTS_SEED", 1);
    let limits = RateLimitLayer::new(
        MemoryStore::new(),
        [
            Rule::new("at-once", Quota::concurrent(SLOTS)).by(header("x-client")),
            Rule::new("rate", Quota::fixed_window(1_000_000_000, HOUR)).by(header("x-client")),
        ],
    )
    .expect("valid rules");
    let clients = (0..CLIENTS).map(|client| (format!("client-{client}"), Default::default()));
    let running = Running(Arc::new(clients.collect()));
    let app = Router::new()
        .route("/{work}", routing::any(work).layer(limits.clone()))
        .layer(Extension(running.clone()));
    let server = Server::start(app).await;
    let address = server.address();

    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mut random = Random(seed * 1_000 + task + 1);
        tasks.spawn(async move {
            let mut served = 0;
            let mut connection = http2(address).await;
            for _ in 0..requests / TASKS {
                let plan = Plan::of(&mut random);
                let is_served = if task % 2 == 0 {
                    plan.over_http1(address).await
                } else {
                    if connection.is_closed() {
                        connection = http2(address).await;
                    }
                    plan.over_http2(&mut connection).await.unwrap_or(false)
                };
                served += u64::from(is_served);
            }
            served
        });
    }
    let served: u64 = tasks.join_all().await.into_iter().sum();
    assert!(
        served > requests / 100,
        "the test has to reach the service: {served}"
    );

    // A server sees that its client has gone a moment later.
    let deadline = Instant::now() + Duration::from_secs(20);
    while free(&limits) != [SLOTS; CLIENTS as usize] {
        assert!(
            Instant::now() < deadline,
            "leaked with seed {seed}: {:?}",
            free(&limits)
        );
        sleep(Duration::from_millis(5)).await;
    }
    for (client, [now, most]) in &*running.0 {
        assert_eq!(now.load(Ordering::SeqCst), 0, "{client}");
        // All were in use at a time, and not one more.
        assert_eq!(most.load(Ordering::SeqCst), SLOTS, "{client}");
    }
}
