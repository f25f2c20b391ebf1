//! The pictures of the guide, taken while a service is busy.

use std::{env, fs, net::SocketAddr, path::Path, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::Request;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tollgate::observe::{BUCKETS, flush_metrics};
use tollgate_console::Access;
use tollgate_rules::{Author, OperatorEntry};
use tower::util::ServiceExt;

use crate::{
    browser::Browser,
    service::{App, Service},
};

const LIMITS: &str = r#"
version = 1

[[rules]]
name = "search-per-key"
limit = "20/s burst 50"
by = "header:x-api-key"
label = "key"
when = { path = "/items", methods = ["GET"] }

[[rules]]
name = "writes-per-key"
limit = "60/min burst 10"
by = "header:x-api-key"
label = "key"
when = { path = "/items", methods = ["POST"] }

[[rules]]
name = "per-address"
limit = "sliding_window 3000/min"
by = "client_ip"

[[rules]]
name = "per-address-stricter"
limit = "sliding_window 1000/min"
mode = "shadow"
by = "client_ip"

[[rules]]
name = "everybody"
limit = "1000/s burst 2000"
by = "constant"
"#;

/// Requests of customers, of whom one has a loop without a pause.
async fn traffic(app: Router) {
    let customers = ["acme", "globex", "initech", "umbrella", "hooli", "stark"];
    for n in 0_u64.. {
        for (place, customer) in customers.iter().enumerate() {
            let wave = ((n as f64 / 90.0).sin() + 1.2) * 2.0;
            let times = if *customer == "hooli" {
                4
            } else {
                (wave as u64 + place as u64) % 4
            };
            for _ in 0..times {
                let method = if (n + place as u64).is_multiple_of(9) {
                    "POST"
                } else {
                    "GET"
                };
                let request = Request::builder()
                    .method(method)
                    .uri("/items")
                    .header("x-api-key", *customer);
                let peer = SocketAddr::from(([192, 0, 2, place as u8], 1));
                let request = request
                    .extension(ConnectInfo(peer))
                    .body(Body::empty())
                    .expect("a request");
                let _ = app.clone().oneshot(request).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a switch ends by the clock of the machine"
)]
#[tokio::test]
async fn each_page_has_a_picture_in_light_in_dark_and_narrow() {
    let mut recorder = PrometheusBuilder::new();
    for &(metric, buckets) in BUCKETS {
        recorder = recorder
            .set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)
            .expect("buckets");
    }
    let recorder = recorder
        .install_recorder()
        .expect("the only one of this process");
    let app = App::new(LIMITS);
    let console = app.console(Access::loopback()).metrics(move || {
        flush_metrics();
        recorder.run_upkeep();
        recorder.render()
    });
    let router = app.router(console);
    let service = Service::start(router.clone()).await;
    let traffic = tokio::spawn(traffic(router));
    let alice = app.rules.handle(Author::new("alice"));
    let raised =
        OperatorEntry::limit("search-per-key", "acme", "200%").because("launch week, ticket 4711");
    alice.set(raised).expect("valid");
    let until = std::time::SystemTime::now() + Duration::from_secs(7_200);
    let halved = OperatorEntry::switch("writes-per-key", "50%")
        .until(until)
        .because("database is slow");
    alice.set(halved).expect("valid");

    let mut browser = Browser::start().await;
    let folder = env::var_os("TOLLGATE_BLESS")
        .map(|_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures"));
    browser.look(1200, 900, "light").await;
    browser.open(&service.url("/tollgate/overview")).await;
    if folder.is_some() {
        // Until the lines fill their picture.
        tokio::time::sleep(Duration::from_secs(115)).await;
    }
    browser
        .until("document.querySelector('.facts').innerText.includes('ms')")
        .await;
    for (name, page, width, height, scheme) in [
        ("console-overview", "overview", 1_200, 1_020, "light"),
        ("console-overview-dark", "overview", 1_200, 1_020, "dark"),
        ("console-rules", "rules", 1_200, 800, "light"),
        ("console-keys-dark", "keys", 1_200, 900, "dark"),
        ("console-narrow", "overview", 390, 844, "light"),
        ("console-explain", "explain", 1_000, 900, "light"),
    ] {
        browser.look(width, height, scheme).await;
        browser
            .open(&service.url(&format!("/tollgate/{page}")))
            .await;
        browser.shows("Live").await;
        match page {
            "overview" => browser.shows("search-per-key denies").await,
            "rules" => {
                browser
                    .until("document.querySelector('tbody .number').innerText !== ''")
                    .await
            }
            "keys" => {
                browser.fill("textarea[name=client]", "hooli").await;
                browser.click("form .primary").await;
                browser.shows("What each rule has of this client").await;
            }
            _ => {
                browser.fill("[name=path]", "/items").await;
                browser.fill("[name=headers]", "x-api-key: hooli").await;
                browser.click("form .primary").await;
                browser.shows("not counting it").await;
            }
        }
        let picture = browser.picture().await;
        assert!(picture.len() > 10_000, "{name}");
        if let Some(folder) = &folder {
            fs::write(folder.join(format!("{name}.png")), picture)
                .expect("a folder of the repository");
        }
    }
    assert_eq!(browser.complaints, [""; 0]);
    traffic.abort();
}
