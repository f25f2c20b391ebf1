//! Unary calls of gRPC: what the layer adds to one without a network, and what the server's processor does over one.

use std::{
    hint::black_box,
    io,
    task::{Context, Poll, Waker},
};

use axum::{Router, body::Body};
use http::{Request, Response};
use http_body::Body as _;
use tokio::runtime::Runtime;
use tollgate_benches::layer::{API_KEY, send};
use tonic::transport::{Channel, Endpoint};

use crate::{
    harness::Rounds,
    served::{self, Requests, Served},
    server::{App, Limiter, Server},
    table::Row,
    weather::{city, v1::weather_client::WeatherClient},
};

const CUSTOMER: &str = "customer-000000000000007";
/// Connections that are kept open. Each has one call on its way at a time.
const CONNECTIONS: usize = 8;
const CALLS: usize = 4_000;

/// The rows.
pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> io::Result<()> {
    without_network(rounds, print);
    let unary_calls = Requests {
        passed: "an allowed call",
        denied: "a denied call",
        protocol: "gRPC",
        gate: 1.0,
    };
    served::rows::<Both>(&unary_calls, print)
}

fn without_network(rounds: usize, print: &mut dyn FnMut(Row)) {
    let [mut bare, mut ours, mut theirs, mut reference] =
        Limiter::ALL.map(|(limiter, _)| caller(limiter.app(App::Wide)));
    let measured = Rounds::measure(
        rounds,
        &mut [&mut bare, &mut ours, &mut theirs, &mut reference],
    );
    print(Row::alone(
        "tonic, unary call: whole, no limiter",
        "ns",
        measured.median(0),
    ));
    let row = |peer, theirs| {
        let what = "layer around tonic, two headers, allowed: added";
        Row::compared(what, "ns", peer, measured.compare_above(0, 1, theirs))
    };
    print(row("tower_governor", 2).gate(1.0));
    print(row("reference", 3));

    let [_, mut ours, mut theirs, mut reference] =
        Limiter::ALL.map(|(limiter, _)| caller(limiter.app(App::Tight)));
    let measured = Rounds::measure(rounds, &mut [&mut ours, &mut theirs, &mut reference]);
    let row = |peer, theirs| {
        let what = "layer around tonic, denied: whole call";
        Row::compared(what, "ns", peer, measured.compare(0, theirs))
    };
    print(row("tower_governor (HTTP 429)", 1));
    print(row("reference (HTTP 429)", 2));
}

/// So many calls without a network, for a profiler.
pub(crate) fn calls(limiter: Limiter, app: App, count: u64) {
    let mut call = caller(limiter.app(app));
    // What is done once (a first key, a lazy value) is not counted.
    call();
    measured(&mut call, count);
}

/// What a profiler counts: `valgrind --tool=callgrind --toggle-collect='*grpc::measured*'`.
#[inline(never)]
fn measured(call: &mut impl FnMut(), count: u64) {
    for _ in 0..count {
        call();
    }
}

/// One call, its making and the reading of its answer to the end included.
fn caller(mut router: Router) -> impl FnMut() {
    // A report on the city with the empty name, in a message of no bytes.
    let message = http_body_util::Full::from(&[0_u8; 5][..]);
    move || {
        let call = Request::post("/weather.v1.Weather/Current")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header(API_KEY, CUSTOMER)
            .body(Body::new(message.clone()))
            .expect("a request");
        let Ok(answer) = status_of(&mut router, call);
        black_box(answer);
    }
}

fn status_of(router: &mut Router, call: Request<Body>) -> Result<u16, std::convert::Infallible> {
    let response: Response<Body> = send(router, call)?;
    let status = response.status().as_u16();
    let mut body = Box::pin(response.into_body());
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
        let _ = black_box(frame.is_ok());
    }
    Ok(status)
}

/// A server with its clients.
struct Measured {
    server: Server,
    runtime: Runtime,
    clients: Vec<WeatherClient<Channel>>,
}

impl Measured {
    fn start(limiter: Limiter, app: App) -> io::Result<Self> {
        let server = Server::start(limiter, app)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let address = format!("http://{}", server.address);
        let endpoint = Endpoint::from_shared(address).map_err(io::Error::other)?;
        let connect = async || {
            let channel = endpoint.connect().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(WeatherClient::new(channel))
        };
        let clients = runtime.block_on(async {
            let mut clients = Vec::new();
            for _ in 0..CONNECTIONS {
                clients.push(connect().await?);
            }
            Ok::<_, io::Error>(clients)
        })?;
        let mut measured = Self {
            server,
            runtime,
            clients,
        };
        // The one call that a tight limit lets pass.
        let first = &mut measured.clients[0];
        let passed = measured.runtime.block_on(call(first));
        assert!(passed, "the first call passes");
        Ok(measured)
    }

    /// Microseconds of the server for each call, all of which pass or none does.
    fn processor_time(&mut self, pass: bool) -> io::Result<f64> {
        let before = self.server.processor_time()?;
        let clients = &mut self.clients;
        self.runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for client in clients.iter() {
                let mut client = client.clone();
                tasks.spawn(async move {
                    for _ in 0..CALLS / CONNECTIONS {
                        assert_eq!(call(&mut client).await, pass, "a call was decided wrongly");
                    }
                });
            }
            tasks.join_all().await;
        });
        let after = self.server.processor_time()?;
        Ok((after - before) as f64 / CALLS as f64 / 1_000.0)
    }
}

/// The servers of both limits.
struct Both {
    wide: Measured,
    tight: Measured,
}

impl Served for Both {
    fn start(limiter: Limiter) -> io::Result<Self> {
        Ok(Self {
            wide: Measured::start(limiter, App::Wide)?,
            tight: Measured::start(limiter, App::Tight)?,
        })
    }

    fn processor_time(&mut self, tight: bool, pass: bool) -> io::Result<f64> {
        let of = if tight {
            &mut self.tight
        } else {
            &mut self.wide
        };
        of.processor_time(pass)
    }
}

/// Makes a call. Whether it passed.
async fn call(client: &mut WeatherClient<Channel>) -> bool {
    let mut call = tonic::Request::new(city("Oslo"));
    let customer = CUSTOMER.parse().expect("ASCII");
    call.metadata_mut().insert("x-api-key", customer);
    client.current(call).await.is_ok()
}
