//! An axum server in a process of its own, so that its processor time can be told from that of its clients.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, ChildStdout, Command, Stdio},
};

use axum::{Router, routing::get};
use tollgate::HeaderStyle;
use tollgate_benches::{
    check::{TIGHT, WIDE},
    layer::layer,
};
use tower_governor::GovernorLayer;

use crate::layers::{TIGHT_NUMBERS, WIDE_NUMBERS, configuration};

/// The argument that makes this program a server.
pub(crate) const SERVE: &str = "serve";

/// Who limits the server's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    Tollgate,
    TowerGovernor,
    Nobody,
}

impl Limiter {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Tollgate, "tollgate"),
        (Self::TowerGovernor, "tower_governor"),
        (Self::Nobody, "nobody"),
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

    /// `/wide` answers 200, and `/tight` 429 from the second request on. All with headers.
    fn router(self) -> Router {
        let route = |path| Router::new().route(path, get(|| async { "hello" }));
        match self {
            Self::Nobody => route("/wide").merge(route("/tight")),
            Self::Tollgate => {
                let layer = |quota| layer(quota, 1, HeaderStyle::DRAFT_11).expect("a valid rule");
                route("/wide")
                    .layer(layer(WIDE))
                    .merge(route("/tight").layer(layer(TIGHT)))
            }
            Self::TowerGovernor => {
                let layer = |(interval, burst)| {
                    let configuration = configuration(interval, burst).use_headers().finish();
                    GovernorLayer::new(configuration.expect("neither number is zero"))
                };
                route("/wide")
                    .layer(layer(WIDE_NUMBERS))
                    .merge(route("/tight").layer(layer(TIGHT_NUMBERS)))
            }
        }
    }
}

/// Serves on one thread, until the process is ended. Says on which port.
pub(crate) fn serve(limiter: Limiter) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        io::stdout().flush()?;
        axum::serve(listener, limiter.router()).await
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
    pub(crate) fn start(limiter: Limiter) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([SERVE, limiter.name()])
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
