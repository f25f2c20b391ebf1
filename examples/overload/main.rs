//! Four permits under one to ten times the requests that they can serve, with and without shedding: `cargo run --release --example
//! overload`. Prints a table and writes `target/overload.svg`. `SECONDS` is how long each row takes.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

mod load;
mod plot;
mod svg;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use tokio::{net::TcpListener, sync::Semaphore};
use tollgate::shed::{Capacity, Priority, ShedLayer};

use tollgate::Head;

/// How many requests are worked on at once, and for how long.
const PERMITS: usize = 4;
const WORK: Duration = Duration::from_millis(50);

/// The class of a request is its path: `/p0` to `/p3`.
fn class(head: &Head<'_>) -> Priority {
    match head.uri.path() {
        "/p0" => Priority::P0,
        "/p1" => Priority::P1,
        "/p2" => Priority::P2,
        _ => Priority::P3,
    }
}

/// The service: four requests are worked on, the others wait for them.
fn app(shed: Option<ShedLayer>) -> Router {
    let permits = Arc::new(Semaphore::new(PERMITS));
    let work = get(async move || {
        let _permit = permits.acquire().await;
        tokio::time::sleep(WORK).await;
    });
    let app = Router::new().route("/{class}", work);
    match shed {
        Some(shed) => app.layer(shed),
        None => app,
    }
}

async fn serve(shed: Option<ShedLayer>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app(shed)).await });
    Ok(address)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::var("SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4.0);
    // A little more than the permits: they are busy, and a request waits for one other at most.
    let in_flight = ShedLayer::new(Capacity::in_flight(6)?).priority(class);
    let adaptive = ShedLayer::new(Capacity::adaptive()).priority(class);
    let stacks = [
        ("nothing", None),
        ("in_flight(6)", Some(in_flight)),
        ("adaptive", Some(adaptive)),
    ];

    println!(
        "| load | in front | useful work | P0 served | P0, p99 | P1 shed | P2 shed | P3 shed |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut useful = Vec::new();
    for (name, shed) in stacks {
        let address = serve(shed).await?;
        let mut line = Vec::new();
        for multiple in [1.0, 2.0, 4.0, 10.0] {
            let rate = multiple * PERMITS as f64 / WORK.as_secs_f64();
            let outcome = load::send(address, rate, (0.4 / multiple).min(0.4), seconds).await;
            let could = PERMITS as f64 / WORK.as_secs_f64() * seconds;
            let part = outcome.served.iter().sum::<u32>() as f64 / could;
            println!(
                "| {multiple} × | {name} | {:.0} % | {:.1} % | {:.0} ms | {:.0} % | {:.0} % | {:.0} % |",
                part * 100.0,
                outcome.part(&outcome.served, 0),
                outcome.p99_of_p0(),
                outcome.part(&outcome.shed, 1),
                outcome.part(&outcome.shed, 2),
                outcome.part(&outcome.shed, 3),
            );
            line.push((multiple, part));
        }
        useful.push((name, line));
    }
    let file = std::path::Path::new("target/overload.svg");
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, plot::useful_work(&useful))?;
    println!("\n{}", file.display());
    Ok(())
}
