//! An axum server in a process of its own, so that its processor time can be told from that of its clients.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};

use axum::{Router, routing::get};
use tollgate::{Quota, header::HeaderStyle};
use tollgate_benches::{
    check::{TIGHT, WIDE},
    layer::layer,
};
use tonic::service::Routes;
use tower::layer::layer_fn;
use tower_governor::GovernorLayer;

use crate::{
    layers::configuration,
    numbers::{Numbers, TIGHT_NUMBERS, WIDE_NUMBERS},
    reference::{BareLimit, LossyTable, by_header},
    weather::{Mild, v1::weather_server::WeatherServer},
};

/// The argument that makes this program a server.
pub(crate) const SERVE: &str = "serve";

/// Who limits the server's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    Bare,
    Tollgate,
    TowerGovernor,
    /// A layer that keeps no promise.
    Reference,
}

impl Limiter {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Bare, "nobody"),
        (Self::Tollgate, "tollgate"),
        (Self::TowerGovernor, "tower_governor"),
        (Self::Reference, "reference"),
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find_map(|(limiter, known)| (known == name).then_some(limiter))
    }

    fn name(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find_map(|(limiter, name)| (limiter == self).then_some(name))
            .unwrap_or_default()
    }

    /// The application behind this limiter.
    pub(crate) fn app(self, app: App) -> Router {
        match app {
            App::Rest => self.rest(),
            App::Wide => self.limit(weather(), WIDE, WIDE_NUMBERS),
            App::Tight => self.limit(weather(), TIGHT, TIGHT_NUMBERS),
        }
    }

    /// `/wide` answers 200, and `/tight` 429 from the second request on. All with headers.
    fn rest(self) -> Router {
        let route = |path| Router::new().route(path, get(|| async { "hello" }));
        self.limit(route("/wide"), WIDE, WIDE_NUMBERS)
            .merge(self.limit(route("/tight"), TIGHT, TIGHT_NUMBERS))
    }

    fn limit(self, router: Router, quota: Quota, numbers: Numbers) -> Router {
        match self {
            Self::Bare => router,
            Self::Tollgate => {
                router.layer(layer(quota, 1, HeaderStyle::DRAFT_11).expect("a valid rule"))
            }
            Self::TowerGovernor => {
                let configuration = configuration(numbers).use_headers().finish();
                let configuration = configuration.expect("neither number is zero");
                router.layer(GovernorLayer::new(configuration))
            }
            Self::Reference => {
                let table = Arc::new(LossyTable::new(numbers));
                router.layer(layer_fn(move |inner| {
                    BareLimit::new(inner, Arc::clone(&table), by_header, true)
                }))
            }
        }
    }
}

/// A gRPC service.
fn weather() -> Router {
    Routes::new(WeatherServer::new(Mild)).into_axum_router()
}

/// What is served. All with header fields.
#[derive(Clone, Copy, Debug)]
pub(crate) enum App {
    /// Routes of HTTP, one wide and one tight.
    Rest,
    /// gRPC, with a wide limit.
    Wide,
    /// gRPC, with a limit that lets one call pass.
    Tight,
}

impl App {
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Rest, Self::Wide, Self::Tight]
            .into_iter()
            .find(|app| app.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Wide => "wide",
            Self::Tight => "tight",
        }
    }
}

/// Serves on one thread, until the process is ended. Says on which port.
pub(crate) fn serve(limiter: Limiter, app: App) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        io::stdout().flush()?;
        axum::serve(listener, limiter.app(app)).await
    })
}

/// A server that ends with this value.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    /// Open for as long as the server may write.
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(limiter: Limiter, app: App) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([SERVE, limiter.name(), app.name()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let port: u16 = line.trim().parse().map_err(io::Error::other)?;
        Ok(Self {
            process,
            _stdout: stdout,
            address: (Ipv4Addr::LOCALHOST, port).into(),
        })
    }

    /// The processor time that the server's one thread has used, in nanoseconds, the kernel's part included.
    pub(crate) fn processor_time(&self) -> io::Result<u64> {
        let path = format!("/proc/{}/schedstat", self.process.id());
        let text = std::fs::read_to_string(path)?;
        let first = text.split_whitespace().next().unwrap_or_default();
        first.parse().map_err(io::Error::other)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
