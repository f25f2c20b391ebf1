//! Slots with clients that go away at any point, in memory and on Redis: nothing is leaked, and never do more run than may.

use std::{
    collections::HashMap,
    env,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::body::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::Empty;
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};
use tollgate::{
    MemoryStore, OnStoreError, Quota, RateLimitLayer, Rule, SECOND, Store, clock::Clock,
    key::header, service::ResponseBody,
};
use tollgate_redis::{Keys, RedisStore};
use tollgate_test_servers::{numbers::Numbers, redis_server::RedisServer};
use tower::{Layer, Service, ServiceExt, service_fn};

/// At once, for each client.
const SLOTS: u64 = 3;
const CLIENTS: u64 = 3;
/// What the service does.
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

fn number(variable: &str, default: u64) -> u64 {
    let text = env::var(variable);
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// The free slots of the first clients.
async fn free(limits: &RateLimitLayer, clients: u64) -> Vec<u64> {
    let mut free = Vec::new();
    for client in 0..clients {
        let request = Request::get("/").header("x-client", format!("client-{client}"));
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let key = limits.key_of("at-once", &head).expect("it has a key");
        let check = limits
            .limiter()
            .check("at-once", &key)
            .expect("it is there");
        let looked = limits.limiter().peek(&[check.with_cost(0)]).await;
        free.push(looked.verdicts()[0].remaining());
    }
    free
}

/// Waits until all slots are free.
async fn all_come_back(limits: &RateLimitLayer, within: Duration) {
    let seed = number("TOLLGATE_ABORTS_SEED", 1);
    let deadline = Instant::now() + within;
    loop {
        let free = free(limits, CLIENTS).await;
        if free == [SLOTS; CLIENTS as usize] {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "leaked with seed {seed}: {free:?}"
        );
        sleep(Duration::from_millis(5)).await;
    }
}

/// Nothing runs, and of a client all slots were in use at a time, and of none one more. (Of each client, on a machine that stands
/// still now and then, is too much to ask.)
fn check_runs(running: &Running) {
    let mut most_of_all = 0;
    for (client, [now, most]) in &*running.0 {
        assert_eq!(now.load(Ordering::SeqCst), 0, "{client}");
        let most = most.load(Ordering::SeqCst);
        assert!(most <= SLOTS, "{client}: {most}");
        most_of_all = most_of_all.max(most);
    }
    assert_eq!(most_of_all, SLOTS);
}

async fn on_redis(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder(server.url(), "aborts", Keys::plain())
        .deadline(20 * SECOND)
        .connect()
        .expect("a valid address");
    store.connected().await;
    store
}

/// The term of slots in Redis: what is lost is back by then.
const TERM: Duration = Duration::from_secs(15);

/// A body of some lines, and how it ends.
struct Lines {
    run: Option<Run>,
    left: usize,
    work: &'static str,
}

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.left > 0 {
            self.left -= 1;
            if self.is_end_stream() {
                // A server does not poll it again.
                drop(self.run.take());
            }
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"a line")))));
        }
        if self.work == "endless" {
            return Poll::Pending;
        }
        drop(self.run.take());
        match self.work {
            "panic-in-body" => resume_unwind(Box::new("in the body")),
            "error-in-body" => Poll::Ready(Some(Err("in the body"))),
            "trailers" => {
                self.work = "lines";
                Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new()))))
            }
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.work == "full"
    }
}

/// A service that does what its path says.
async fn work_in_memory(
    running: Running,
    request: Request<Empty<Bytes>>,
) -> Result<http::Response<Lines>, &'static str> {
    let client = request.headers()["x-client"].to_str().expect("text");
    let run = running.start(client);
    let work = WORK.into_iter().chain(["error", "trailers"]);
    let work = work
        .into_iter()
        .find(|work| request.uri().path()[1..] == **work)
        .expect("it is one of them");
    for _ in 0..request.uri().query().map_or(0, str::len) {
        yield_now().await;
    }
    match work {
        "never" => std::future::pending().await,
        "panic" => resume_unwind(Box::new("in the handler")),
        "error" => return Err("in the handler"),
        _ => {}
    }
    let mut response = http::Response::new(Lines {
        run: Some(run),
        left: 2,
        work,
    });
    match work {
        "upgrade" => {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            // The slot goes back with the response.
            response.body_mut().run = None;
            response.body_mut().left = 0;
        }
        "not-modified" => *response.status_mut() = StatusCode::NOT_MODIFIED,
        "nothing" => {
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.body_mut().left = 0;
        }
        _ => {}
    }
    Ok(response)
}

/// What a client holds of a request.
enum Held<F> {
    Nothing,
    Request(Pin<Box<F>>),
    Body(Pin<Box<ResponseBody<Lines>>>),
}

/// Polls once. A panic ends the request, as a server does.
fn poll_once<F>(held: &mut Held<F>)
where
    F: Future<Output = Result<http::Response<ResponseBody<Lines>>, &'static str>>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| match held {
        Held::Nothing => None,
        Held::Request(future) => match future.as_mut().poll(&mut cx) {
            Poll::Pending => None,
            Poll::Ready(Ok(response)) => Some(Held::Body(Box::pin(response.into_body()))),
            Poll::Ready(Err(_)) => Some(Held::Nothing),
        },
        Held::Body(body) => match body.as_mut().poll_frame(&mut cx) {
            Poll::Pending | Poll::Ready(Some(Ok(_))) => None,
            Poll::Ready(_) => Some(Held::Nothing),
        },
    }));
    if let Some(next) = polled.unwrap_or(Some(Held::Nothing)) {
        *held = next;
    }
}

/// Requests that are in flight at the same time.
const AT_ONCE: usize = 24;

#[tokio::test(start_paused = true)]
async fn requests_that_are_cut_off_anywhere_leave_nothing_behind() {
    let requests = number("TOLLGATE_ABORTS_IN_MEMORY", 20_000);
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let (limits, running) = limits(store);
    let service = limits.layer(service_fn({
        let running = running.clone();
        move |request| work_in_memory(running.clone(), request)
    }));
    let call = || service.clone();
    cut_off(requests, call, async |steps| {
        if steps.is_multiple_of(1_000) {
            // Those that wait come to the end of their time.
            tokio::time::advance(Duration::from_millis(100)).await;
        }
    })
    .await;
    all_come_back(&limits, Duration::ZERO).await;
    check_runs(&running);
    // All places of the layer are free too: as many wait as may, and one more does not.
    let mut waiting = Vec::new();
    for number in 0..=SLOTS + WAITING {
        let request = Request::get("/never").header("x-client", "client-0");
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        let mut call = Held::Request(Box::pin(service.clone().oneshot(request)));
        poll_once(&mut call);
        let is_denied = matches!(call, Held::Body(_));
        assert_eq!(is_denied, number == SLOTS + WAITING, "{number}");
        waiting.push(call);
    }
}

/// The same in front of Redis, where requests are also cut off before they are sent, in flight, and when they wait.
#[tokio::test]
async fn requests_that_are_cut_off_anywhere_leave_nothing_behind_in_redis() {
    let server = RedisServer::start(&[]).await;
    let requests = number("TOLLGATE_ABORTS_ON_REDIS", 4_000);
    let (limits, running) = limits(on_redis(&server).await);
    let service = limits.layer(service_fn({
        let running = running.clone();
        move |request| work_in_memory(running.clone(), request)
    }));
    let call = || service.clone();
    // What was sent before this look was answered then. In between requests are cut off in flight.
    cut_off(requests, call, async |steps| match steps % 16 {
        0 => drop(free(&limits, 1).await),
        _ => yield_now().await,
    })
    .await;
    all_come_back(&limits, TERM).await;
    check_runs(&running);
}

/// How many may wait.
const WAITING: u64 = 8;

fn limits(store: impl Store) -> (RateLimitLayer, Running) {
    let quota = Quota::gcra(100_000, SECOND).burst(100_000);
    let rules = [
        Rule::new("at-once", Quota::concurrent(SLOTS)).wait(SECOND),
        Rule::new("rate", quota),
    ];
    let rules = rules.map(|rule| {
        rule.on_store_error(OnStoreError::Deny)
            .by(header("x-client"))
    });
    let limits = RateLimitLayer::new(store, rules).expect("valid rules");
    let limits = limits.max_waiting(WAITING as usize, 1 << 20);
    let clients = (0..CLIENTS).map(|client| (format!("client-{client}"), Default::default()));
    (limits, Running(Arc::new(clients.collect())))
}

/// Begins that many requests, polls one of them at a time, and drops one in six of those that are polled.
async fn cut_off<S>(requests: u64, service: impl Fn() -> S, mut meanwhile: impl AsyncFnMut(u64))
where
    S: Service<
            Request<Empty<Bytes>>,
            Response = http::Response<ResponseBody<Lines>>,
            Error = &'static str,
        >,
{
    let mut random = Numbers(number("TOLLGATE_ABORTS_SEED", 1));
    let begin = |random: &mut Numbers, work: &str| {
        let uri = format!("/{work}?{}", "y".repeat(random.below(3) as usize));
        let client = format!("client-{}", random.below(CLIENTS));
        let request = Request::builder().uri(uri).header("x-client", client);
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        Held::Request(Box::pin(service().oneshot(request)))
    };
    let mut held: Vec<_> = (0..AT_ONCE).map(|_| Held::Nothing).collect();
    let (mut begun, mut bodies, mut steps) = (0, 0_u64, 0_u64);
    while begun < requests {
        let at = random.below(AT_ONCE as u64) as usize;
        if matches!(held[at], Held::Nothing) {
            let work = random.below(WORK.len() as u64 + 2) as usize;
            let work = WORK.get(work).unwrap_or(&["error", "trailers"][work % 2]);
            held[at] = begin(&mut random, work);
            begun += 1;
        }
        // One in six goes away, wherever its request is.
        match random.below(6) {
            0 => held[at] = Held::Nothing,
            _ => {
                let was_request = matches!(held[at], Held::Request(_));
                poll_once(&mut held[at]);
                bodies += u64::from(was_request && matches!(held[at], Held::Body(_)));
            }
        }
        steps += 1;
        meanwhile(steps).await;
    }
    assert!(
        bodies > requests / 8,
        "the test has to get to bodies: {bodies}"
    );
}
