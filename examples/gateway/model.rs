//! Answers of a model: streamed to the client, and paid when their last event says what they have cost.

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use http::{Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc::{self, Sender},
    time::sleep,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tokio_util::codec::{Decoder as _, LinesCodec};
use tollgate::{Admission, Key, decision::Ticket};

use crate::{
    limits::LONGEST_ANSWER,
    proxy::{Gateway, Tenant},
};

/// The longest line of an event that is read for the usage, in bytes.
const LONGEST_LINE: usize = 64 << 10;

#[derive(Deserialize, Serialize)]
pub(crate) struct Completion {
    prompt: String,
    max_tokens: u64,
    /// The model thinks before it answers, which nobody can foresee and the tenant pays.
    #[serde(default)]
    reasoning: bool,
}

/// `POST /v1/completions`. The tokens that an answer may have are taken before the model is asked.
pub(crate) async fn complete(
    State(gateway): State<Gateway>,
    Extension(tenant): Extension<Tenant>,
    admission: Admission,
    Json(completion): Json<Completion>,
) -> Response {
    if completion.max_tokens > LONGEST_ANSWER {
        let error = format!(
            "max_tokens is {}; at most {LONGEST_ANSWER}\n",
            completion.max_tokens
        );
        return (StatusCode::UNPROCESSABLE_ENTITY, error).into_response();
    }
    // As a tokenizer would count them, a word each.
    let prompt = completion.prompt.split_whitespace().count() as u64;
    let estimate = prompt + completion.max_tokens;
    let tokens = match admission
        .acquire_cost_ticket("tokens", estimate, &Key::of(tenant.name()))
        .await
    {
        Ok(tokens) => tokens,
        Err(denied) => return IntoResponse::into_response(denied),
    };
    // The slot is that of the work for the model, which may outlive the client.
    let slot = admission.ticket();
    let request = Request::builder()
        .method(Method::POST)
        .uri("/v1/completions")
        .header(header::CONTENT_TYPE, "application/json");
    let body = serde_json::to_vec(&completion).unwrap_or_default();
    let Ok(request) = request.body(Body::from(body)) else {
        tokens.cancel();
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match gateway.ask_model(tenant, request).await {
        Ok(answer) if answer.status() == StatusCode::OK => {
            let (head, answer) = answer.into_parts();
            let (events, body) = mpsc::channel(16);
            tokio::spawn(async move {
                let mut usage = Usage::new();
                tokio::select! {
                    () = relay(answer, &events, &mut usage) => {}
                    // Cut off: the estimate stays.
                    () = async { events.closed().await; sleep(gateway.read_on()).await } => {}
                }
                settle(tokens, &usage);
                drop(slot);
            });
            Response::from_parts(head, Body::from_stream(ReceiverStream::new(body)))
        }
        Ok(refused) => {
            tokens.cancel();
            refused
        }
        Err(error) => {
            // What the model has begun may have its cost.
            if !error.was_sent {
                tokens.cancel();
            }
            error.into_response()
        }
    }
}

/// Reads the answer to its end, whether or not the client still listens.
async fn relay(answer: Body, events: &Sender<Result<Bytes, axum::Error>>, usage: &mut Usage) {
    let mut chunks = answer.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        if let Ok(chunk) = &chunk {
            usage.read(chunk);
        }
        // It has gone: nobody to tell.
        let _gone = events.send(chunk).await;
    }
}

/// An answer without usage was cut off, here or there.
fn settle(tokens: Ticket, usage: &Usage) {
    match usage.total {
        Some(total) => tokens.settle(total),
        None => tokens.keep(),
    }
}

/// The usage that the last event of an answer states.
struct Usage {
    lines: LinesCodec,
    unread: BytesMut,
    total: Option<u64>,
}

#[derive(Deserialize)]
struct Event {
    usage: Option<EventUsage>,
}

#[derive(Deserialize)]
struct EventUsage {
    total_tokens: u64,
}

impl Usage {
    fn new() -> Self {
        Self {
            lines: LinesCodec::new_with_max_length(LONGEST_LINE),
            unread: BytesMut::new(),
            total: None,
        }
    }

    fn read(&mut self, chunk: &[u8]) {
        self.unread.extend_from_slice(chunk);
        loop {
            match self.lines.decode(&mut self.unread) {
                Ok(Some(line)) => {
                    let data = line.strip_prefix("data:");
                    let event = data.and_then(|data| serde_json::from_str::<Event>(data).ok());
                    if let Some(usage) = event.and_then(|event| event.usage) {
                        self.total = Some(usage.total_tokens);
                    }
                }
                Ok(None) => return,
                // Too long, or no UTF-8: it is left out, and the next line is read.
                Err(_) => {}
            }
        }
    }
}
