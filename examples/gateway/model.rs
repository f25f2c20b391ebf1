//! Answers of a model: streamed to the client, and paid when their last event says what they have cost.

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::BytesMut;
use http::{StatusCode, response::Parts};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{
        mpsc::{self, Sender},
        oneshot,
    },
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
    // The slot is that of the work for the model, which may outlive the client.
    let slot = admission.ticket();
    let (head, answer) = oneshot::channel();
    let (events, body) = mpsc::channel(16);
    // This handler ends wherever it is when the client hangs up. A task goes on, and knows what was taken and what it has cost.
    let stream = async move {
        gateway
            .stream(tenant, &admission, slot, &completion, head, events)
            .await
    };
    tokio::spawn(stream);
    match answer.await {
        Ok(Ok(head)) => Response::from_parts(head, Body::from_stream(ReceiverStream::new(body))),
        Ok(Err(other)) => other,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The head of a stream, or else another answer.
type Head = Result<Parts, Response>;

impl Gateway {
    /// Reads the answer to its end, whether or not the client still listens, and settles what it has cost.
    async fn stream(
        &self,
        tenant: Tenant,
        admission: &Admission,
        slot: Ticket,
        completion: &Completion,
        head: oneshot::Sender<Head>,
        events: Sender<Result<Bytes, axum::Error>>,
    ) {
        // As a tokenizer would count them, a word each.
        let prompt = completion.prompt.split_whitespace().count() as u64;
        let (most, key) = (prompt + completion.max_tokens, Key::of(tenant.name()));
        let tokens = match admission.acquire_cost_ticket("tokens", most, &key).await {
            Ok(tokens) => tokens,
            Err(denied) => {
                let _gone = head.send(Err(IntoResponse::into_response(denied)));
                return;
            }
        };
        let mut usage = Usage::new();
        let body = serde_json::to_vec(completion).unwrap_or_default();
        let read = async {
            match self.ask_model(tenant, body).await {
                Ok(answer) if answer.status() == StatusCode::OK => {
                    let (parts, answer) = answer.into_parts();
                    let _gone = head.send(Ok(parts));
                    let mut chunks = answer.into_data_stream();
                    while let Some(chunk) = chunks.next().await {
                        if let Ok(chunk) = &chunk {
                            usage.read(chunk);
                        }
                        let _gone = events.send(chunk).await;
                    }
                }
                Ok(refused) => {
                    usage.total = Some(0);
                    let _gone = head.send(Err(refused));
                }
                Err(error) => {
                    // What the model has begun may have its cost.
                    usage.total = (!error.was_sent).then_some(0);
                    let _gone = head.send(Err(error.into_response()));
                }
            }
        };
        tokio::select! {
            () = read => {}
            () = async { events.closed().await; sleep(self.read_on()).await } => {}
        }
        match usage.total {
            Some(total) => tokens.settle(total),
            // Cut off, here or there: the estimate stays.
            None => tokens.keep(),
        }
        drop(slot);
        // When its client sees the end, it is paid.
        drop(events);
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
