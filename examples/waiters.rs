//! What requests cost that wait: `cargo run --release --example waiters`.
//!
//! Ten thousand requests with the heads of a browser wait in a layer for their turn. Printed is by how much the process has grown.

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{convert::Infallible, fs, future::Future, task::Poll};

use axum::body::Body;
use http::{Request, Response};
use tollgate::{DAY, MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::constant};
use tower::{Layer, ServiceExt, service_fn};

const WAITERS: usize = 10_000;

fn request() -> Request<Body> {
    let agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";
    let request = Request::get("https://example.com/reports/2026-11?format=html&page=2")
        .header("user-agent", agent)
        .header(
            "accept",
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        )
        .header("accept-language", "en-GB,en;q=0.9")
        .header("accept-encoding", "gzip, deflate, br, zstd")
        .header(
            "cookie",
            "session=0123456789abcdef0123456789abcdef; theme=dark",
        )
        .header("referer", "https://example.com/reports")
        .header("sec-fetch-mode", "navigate")
        .header("sec-fetch-site", "same-origin");
    request.body(Body::empty()).expect("a request")
}

/// The memory of this process in bytes, on Linux.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rule = Rule::new("reports", Quota::gcra(1, SECOND).burst(1))
        .wait(DAY)
        .max_waiting(WAITERS, WAITERS)
        .by(constant("all"));
    let limits = RateLimitLayer::new(MemoryStore::new(), [rule])?;
    let limits = limits.max_waiting(WAITERS, WAITERS * 2_000);
    let service = limits.layer(service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    // The first one does not wait.
    let _ = service.clone().oneshot(request()).await?;

    let requests: Vec<_> = (0..WAITERS).map(|_| request()).collect();
    let before = resident();
    let mut waiting = Vec::with_capacity(WAITERS);
    for request in requests {
        let mut call = Box::pin(service.clone().oneshot(request));
        let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(polled.is_pending(), "it waits");
        waiting.push(call);
    }
    let grown = resident().saturating_sub(before);
    println!("{} requests wait: {} KiB", waiting.len(), grown / 1024);
    println!("{} bytes for each, besides its head", grown / WAITERS);
    Ok(())
}
