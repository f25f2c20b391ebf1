//! What tabs of the console cost, as a share of a core: `cargo run --release -p tollgate-console --example tabs -- 10 30`, the number of tabs
//! and the seconds of each measurement. On Linux, with `curl`, whose processes are the tabs.

#![expect(clippy::print_stdout, reason = "it prints to the terminal")]

use std::{
    env,
    error::Error,
    fs,
    net::SocketAddr,
    process::{Child, Command},
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get};
use http::Request;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::{net::TcpListener, time::sleep};
use tollgate::{
    MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
    key::client_ip,
    observe::{BUCKETS, flush_metrics},
};
use tollgate_console::{Access, Console};
use tower::util::ServiceExt;

/// The time that this process has had on processors.
fn used() -> Result<Duration, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat
        .rsplit_once(") ")
        .ok_or("no such file as proc(5) has it")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    Ok(Duration::from_millis(ticks.sum::<Result<u64, _>>()? * 10))
}

/// The share of a core that is used in this time, in percent.
async fn measured(seconds: u64) -> Result<f64, Box<dyn Error>> {
    let before = used()?;
    sleep(Duration::from_secs(seconds)).await;
    Ok((used()? - before).as_secs_f64() * 100.0 / seconds as f64)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> = env::args()
        .skip(1)
        .map(|it| it.parse())
        .collect::<Result<_, _>>()?;
    let [tabs, seconds] = arguments[..] else {
        return Err("give the number of tabs and of seconds".into());
    };
    let mut recorder = PrometheusBuilder::new();
    for &(metric, buckets) in BUCKETS {
        recorder = recorder.set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)?;
    }
    let recorder = recorder.install_recorder()?;
    for rules in [10_u64, 1_000] {
        let rule = |n| Rule::new(format!("rule-{n}"), Quota::gcra(60 + n, MINUTE)).by(client_ip());
        let limits = RateLimitLayer::new(MemoryStore::new(), (0..rules).map(rule))?;
        let app = Router::new()
            .route("/", get(|| async {}))
            .layer(limits.clone());
        // Each sample has all rules.
        let recorder = recorder.clone();
        let text = move || {
            flush_metrics();
            recorder.run_upkeep();
            recorder.render()
        };
        let console = Console::new(Access::loopback())
            .layer("all", &limits)
            .metrics(text);
        let served = app.clone().nest("/tollgate", console.router());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let service = served.into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { axum::serve(listener, service).await });
        let traffic = tokio::spawn(async move {
            for n in 0_u64.. {
                let peer = SocketAddr::from(([192, 0, 2, (n % 8) as u8], 1));
                let request = Request::get("/")
                    .extension(ConnectInfo(peer))
                    .body(Body::empty());
                if let Ok(request) = request {
                    let _ = app.clone().oneshot(request).await;
                }
                sleep(Duration::from_secs(1)).await;
            }
        });
        let alone = measured(seconds).await?;
        let tab = || {
            let script =
                format!("while :; do curl -sN http://{address}/tollgate/events >/dev/null; done");
            Command::new("sh").args(["-c", &script]).spawn()
        };
        let mut all: Vec<Child> = (0..tabs).map(|_| tab()).collect::<Result<_, _>>()?;
        sleep(Duration::from_secs(2)).await;
        let viewed = measured(seconds).await?;
        println!(
            "{rules:>5} rules: {alone:.2} % of a core without a tab, {viewed:.2} % with {tabs}: {:.2} % for the tabs",
            viewed - alone
        );
        for child in &mut all {
            child.kill()?;
            child.wait()?;
        }
        traffic.abort();
        server.abort();
    }
    Ok(())
}
