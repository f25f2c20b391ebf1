//! Two services behind the gateway. A real one has its own processes.

use std::{
    convert::Infallible,
    ffi::OsString,
    fs::OpenOptions,
    io::{self, Write as _},
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    response::IntoResponse,
    routing::{get, post},
};
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc, time::sleep};
use tokio_stream::wrappers::ReceiverStream;

/// Serves it on a free port, until the process ends; returns its address.
pub(crate) async fn start(service: Router) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(axum::serve(listener, service).into_future());
    Ok(address)
}

/// `GET /items`.
pub(crate) fn items() -> Router {
    Router::new().route("/items", get(|| async { Json(["anvil", "rope"]) }))
}

/// A model that repeats the prompt, a word each `token`, and appends what each answer has cost to the log.
pub(crate) fn model(token: Duration, log: Option<OsString>) -> Router {
    Router::new()
        .route("/v1/completions", post(complete))
        .with_state((token, log))
}

#[derive(Deserialize)]
struct Completion {
    prompt: String,
    max_tokens: usize,
    reasoning: bool,
}

async fn complete(
    State((token, log)): State<(Duration, Option<OsString>)>,
    headers: HeaderMap,
    Json(completion): Json<Completion>,
) -> impl IntoResponse {
    let tenant = headers.get("x-tenant").and_then(|it| it.to_str().ok());
    let tenant = tenant.unwrap_or("nobody").to_owned();
    let (events, body) = mpsc::channel(1);
    tokio::spawn(async move {
        let words: Vec<_> = completion.prompt.split_whitespace().collect();
        let answer = &words[..words.len().min(completion.max_tokens)];
        for word in answer {
            sleep(token).await;
            let event = json!({ "choices": [{ "text": format!("{word} ") }] });
            // Whoever asked has gone: the model stops.
            if events.send(line(&event.to_string())).await.is_err() {
                return Ok(());
            }
        }
        // Three thoughts for each word.
        let thoughts = if completion.reasoning {
            3 * answer.len()
        } else {
            0
        };
        let total = words.len() + answer.len() + thoughts;
        if let Some(log) = log {
            let mut log = OpenOptions::new().append(true).create(true).open(log)?;
            log.write_all(format!("{tenant} {total}\n").as_bytes())?;
        }
        let usage = json!({
            "choices": [],
            "usage": {
                "prompt_tokens": words.len(),
                "completion_tokens": answer.len() + thoughts,
                "total_tokens": total,
            },
        });
        for last in [&*usage.to_string(), "[DONE]"] {
            let _gone = events.send(line(last)).await;
        }
        Ok::<_, io::Error>(())
    });
    let fields = [(header::CONTENT_TYPE, "text/event-stream")];
    (fields, Body::from_stream(ReceiverStream::new(body)))
}

fn line(data: &str) -> Result<String, Infallible> {
    Ok(format!("data: {data}\n\n"))
}
