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
use tollgate::HeaderStyle;
use tollgate_benches::{
    check::{TIGHT, WIDE},
    layer::{API_KEY, layer, send},
};
use tonic::transport::{Channel, Endpoint};
use tower_governor::GovernorLayer;

use crate::{
    harness::{Compared, median, repeat},
    layers::{TIGHT_NUMBERS, WIDE_NUMBERS, configuration},
    server::{App, Limiter, Server, weather},
    table::Row,
    weather::{city, v1::weather_client::WeatherClient},
};

const CUSTOMER: &str = "customer-000000000000007";
/// Connections that are kept open. Each has one call on its way at a time.
const CONNECTIONS: usize = 8;
const CALLS: usize = 4_000;
const ROUNDS: usize = 5;

/// The rows.
pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) -> io::Result<()> {
    without_network(rounds, print);
    over_network(print)
}

fn without_network(rounds: usize, print: &mut dyn FnMut(Row)) {
    let ours = |quota| {
        let layer = layer(quota, 1, HeaderStyle::DRAFT_11).expect("a valid rule");
        caller(weather().layer(layer))
    };
    let theirs = |(interval, burst)| {
        let configuration = configuration(interval, burst).use_headers().finish();
        let layer = GovernorLayer::new(configuration.expect("neither number is zero"));
        caller(weather().layer(layer))
    };
    let mut bare = caller(weather());
    let (mut mine, mut other) = (ours(WIDE), theirs(WIDE_NUMBERS));
    let (mut added, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..=rounds {
        let before = repeat(&mut bare);
        let (ours, theirs) = (repeat(&mut mine), repeat(&mut other));
        let bare = f64::midpoint(before, repeat(&mut bare));
        added.push((ours - bare, theirs - bare));
        whole.push(bare);
    }
    // The first round warms up.
    let bare = median(whole[1..].iter().copied());
    print(Row::alone(
        "tonic, unary call: whole, no limiter",
        "ns",
        bare,
    ));
    let what = "layer around tonic, two headers, allowed: added";
    let added = Compared::of(&added[1..]);
    print(Row::compared(what, "ns", "tower_governor", added).gate(1.0));

    let (mut mine, mut other) = (ours(TIGHT), theirs(TIGHT_NUMBERS));
    let denied: Vec<_> = (0..=rounds)
        .map(|_| (repeat(&mut mine), repeat(&mut other)))
        .collect();
    let what = "layer around tonic, denied: whole call";
    let denied = Compared::of(&denied[1..]);
    print(Row::compared(
        what,
        "ns",
        "tower_governor (HTTP 429)",
        denied,
    ));
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

fn over_network(print: &mut dyn FnMut(Row)) -> io::Result<()> {
    let mut bare = Measured::start(Limiter::Bare, App::Wide)?;
    let mut wide = Measured::both(App::Wide)?;
    let mut tight = Measured::both(App::Tight)?;
    let (mut alone, mut passed, mut denied, mut parts) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        let bare = bare.processor_time(true)?;
        let allowed = (wide.0.processor_time(true)?, wide.1.processor_time(true)?);
        let refused = (
            tight.0.processor_time(false)?,
            tight.1.processor_time(false)?,
        );
        // The first round warms up.
        if round > 0 {
            alone.push(bare);
            passed.push(allowed);
            denied.push(refused);
            parts.push((refused.0 / allowed.0, refused.1 / allowed.1));
        }
    }
    let row = |what, unit, rounds: &[_]| {
        Row::compared(what, unit, "tower_governor", Compared::of(rounds))
    };
    let what = "server CPU of a unary call, no limiter";
    print(Row::alone(what, "µs", median(alone.into_iter())));
    print(row("server CPU of an allowed unary call", "µs", &passed));
    print(row("server CPU of a denied unary call", "µs", &denied));
    let what = "CPU of a denied / CPU of an allowed call";
    print(row(what, "x", &parts).gate_on_ours(1.0));
    Ok(())
}

/// A server with its clients.
struct Measured {
    server: Server,
    runtime: Runtime,
    clients: Vec<WeatherClient<Channel>>,
}

impl Measured {
    /// Ours and theirs.
    fn both(app: App) -> io::Result<(Self, Self)> {
        let ours = Self::start(Limiter::Tollgate, app)?;
        Ok((ours, Self::start(Limiter::TowerGovernor, app)?))
    }

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

/// Makes a call. Whether it passed.
async fn call(client: &mut WeatherClient<Channel>) -> bool {
    let mut call = tonic::Request::new(city("Oslo"));
    let customer = CUSTOMER.parse().expect("ASCII");
    call.metadata_mut().insert("x-api-key", customer);
    client.current(call).await.is_ok()
}
