//! Rules from a source of your own, here a flag service that is asked over HTTP: `cargo run --example flag_source`.
//!
//! | variable | is |
//! | --- | --- |
//! | `FLAG_URL` | where the flag is: YAML, with its revision in the header field `x-revision`. Without it the program has a flag of its own, which halves the limit after ten seconds |
//! | `PORT` | where to listen; default: 3000 |

#![expect(clippy::print_stdout, reason = "examples print to the terminal")]

use std::{env, error::Error, mem, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    routing::get,
};
use http::Uri;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};
use tollgate::MemoryStore;
use tollgate_rules::{Bindings, Format, LiveRules, RuleText, Source, SourceError};

/// Rules that a flag service has under an address.
struct FlagSource {
    flag: Uri,
    /// Until the service is asked next; nothing for the first time.
    pause: Duration,
}

impl Source for FlagSource {
    async fn next(&mut self) -> Result<RuleText, SourceError> {
        sleep(mem::replace(&mut self.pause, Duration::from_millis(500))).await;
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let response = client.get(self.flag.clone()).await?;
        if !response.status().is_success() {
            return Err(format!("{} answers {}", self.flag, response.status()).into());
        }
        let revision = response
            .headers()
            .get("x-revision")
            .ok_or("no x-revision")?
            .to_str()?
            .parse()?;
        let text = to_bytes(Body::new(response.into_body()), 1 << 20).await?;
        let text = String::from_utf8(text.into())?;
        Ok(RuleText::named(self.flag.to_string(), text, Format::Yaml).with_revision(revision))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let flag = match env::var("FLAG_URL") {
        Ok(url) => url.parse()?,
        Err(_) => own_flag().await?,
    };
    let pause = Duration::ZERO;
    // Without its rules the service does not start; later it keeps the last good ones.
    let rules = LiveRules::follow(FlagSource { flag, pause }, Bindings::new()).await?;
    let limits = rules.layer(MemoryStore::new())?;
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .layer(limits)
        .route(
            "/rules",
            get(move || async move { format!("{}\n", rules.status()) }),
        );
    let port = env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let address = listener.local_addr()?;
    println!(
        "listening on http://{address}

Try:
  curl -i http://{address}/
  curl http://{address}/rules      # which rules are in force, and what was rejected
"
    );
    // Client IP addresses come from the socket, so the server has to hand them to the requests.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}

/// A flag service of this program.
async fn own_flag() -> Result<Uri, Box<dyn Error>> {
    let start = Instant::now();
    let flag = move || async move {
        let (revision, limit) = match start.elapsed().as_secs() {
            0..10 => ("1", 60),
            _ => ("2", 30),
        };
        let rule = format!("{{ name: per-ip, limit: {limit}/min, by: client_ip }}");
        (
            [("x-revision", revision)],
            format!("version: 1\nrules: [{rule}]\n"),
        )
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let flags = format!("http://{}/flags/limits", listener.local_addr()?);
    let app = Router::new().route("/flags/limits", get(flag));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(flags.parse()?)
}
