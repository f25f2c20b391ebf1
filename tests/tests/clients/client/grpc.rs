//! A real client of tonic over the layer.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_client::{
    ClientRateLimit, ClientRateLimitError, ClientRateLimitErrorKind, ClientRateLimitLayer,
    OverChannel,
};
use tollgate_tests::weather::{
    Mild, city,
    v1::{weather_client::WeatherClient, weather_server::WeatherServer},
};
use tonic::{
    Code, Status,
    metadata::AsciiMetadataValue,
    transport::{Channel, Server},
};

/// A server that refuses the first calls with a status, on a port of its own.
struct Refusing {
    channel: Channel,
    sent: Arc<AtomicU64>,
    served: Mild,
    task: JoinHandle<()>,
}

impl Refusing {
    async fn start(times: i64, status: Status) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (served, sent) = (Mild::default(), Arc::new(AtomicU64::new(0)));
        let (left, counted) = (Arc::new(AtomicI64::new(times)), Arc::clone(&sent));
        let service = WeatherServer::with_interceptor(served.clone(), move |request| {
            counted.fetch_add(1, Ordering::SeqCst);
            if left.fetch_sub(1, Ordering::SeqCst) > 0 {
                return Err(status.clone());
            }
            Ok(request)
        });
        let serve = Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { serve.await.expect("it serves") });
        let channel = Channel::from_shared(format!("http://{address}")).unwrap();
        Self {
            channel: channel.connect().await.unwrap(),
            sent,
            served,
            task,
        }
    }

    fn client(
        &self,
        layer: &ClientRateLimitLayer,
    ) -> WeatherClient<ClientRateLimit<OverChannel<Channel>>> {
        WeatherClient::new(layer.over_channel(self.channel.clone()))
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn repeatable() -> ClientRateLimitLayer {
    ClientRateLimitLayer::new().idempotent(|head| head.uri.path() == "/weather.v1.Weather/Current")
}

fn with_pushback(code: Code, millis: &'static str) -> Status {
    let mut status = Status::new(code, "later");
    let value = AsciiMetadataValue::from_static(millis);
    status
        .metadata_mut()
        .insert("grpc-retry-pushback-ms", value);
    status
}

/// A `RESOURCE_EXHAUSTED` with a `RetryInfo` of 20 ms.
fn with_retry_info() -> Status {
    let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8][..], bytes].concat();
    let delay = [&[0x10][..], &[0x80, 0xda, 0xc4, 0x09]].concat();
    let any = [
        field(0x0a, b"type.googleapis.com/google.rpc.RetryInfo"),
        field(0x12, &field(0x0a, &delay)),
    ]
    .concat();
    let status = [vec![0x08, 8], field(0x1a, &any)].concat();
    Status::with_details(Code::ResourceExhausted, "later", status.into())
}

#[tokio::test]
async fn the_limit_of_a_server_stops_its_channel_alone() {
    let status = with_pushback(Code::ResourceExhausted, "60000");
    let (closed, open) = (
        Refusing::start(1, status).await,
        Refusing::start(0, Status::ok("")).await,
    );
    let layer = ClientRateLimitLayer::new();
    let (mut client, mut other) = (closed.client(&layer), open.client(&layer));
    let mut clone = client.clone();
    client.current(city("Ulm")).await.expect_err("it refuses");
    clone.current(city("Ulm")).await.expect_err("it is closed");
    other.current(city("Ulm")).await.expect("it is open");
    assert_eq!((closed.sent(), open.sent()), (1, 1));
}

#[tokio::test]
async fn a_call_rejected_with_a_wait_is_retried() {
    for status in [
        with_retry_info(),
        with_pushback(Code::ResourceExhausted, "20"),
        with_pushback(Code::Unavailable, "20"),
        Status::unavailable("later"),
    ] {
        let server = Refusing::start(2, status).await;
        let report = server.client(&repeatable()).current(city("Ulm")).await;
        assert_eq!(report.unwrap().get_ref().city, "Ulm");
        assert_eq!((server.sent(), server.served.calls()), (3, 1));
    }
}

#[tokio::test]
async fn a_server_can_forbid_retries() {
    for forbids in ["-1", "soon"] {
        let server = Refusing::start(1, with_pushback(Code::Unavailable, forbids)).await;
        let error = server
            .client(&repeatable())
            .current(city("Ulm"))
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert_eq!(server.sent(), 1);
    }
}

#[tokio::test]
async fn a_call_not_marked_idempotent_is_not_retried() {
    let server = Refusing::start(1, with_retry_info()).await;
    let mut client = server.client(&ClientRateLimitLayer::new());
    assert!(client.current(city("Ulm")).await.is_err());
    assert_eq!(server.sent(), 1);
    // The next one waits for its turn.
    client.current(city("Ulm")).await.unwrap();
    // The key as metadata is the same word.
    let server = Refusing::start(1, with_retry_info()).await;
    let mut request = tonic::Request::new(city("Ulm"));
    let key = AsciiMetadataValue::from_static("k-1");
    request.metadata_mut().insert("idempotency-key", key);
    server
        .client(&ClientRateLimitLayer::new())
        .current(request)
        .await
        .unwrap();
    assert_eq!(server.sent(), 2);
}

#[tokio::test]
async fn a_call_beyond_max_wait_fails_with_its_reason_as_the_source() {
    let server = Refusing::start(1, with_pushback(Code::Unavailable, "3600000")).await;
    let mut client = server.client(&repeatable());
    assert_eq!(
        client.current(city("Ulm")).await.unwrap_err().code(),
        Code::Unavailable
    );
    let status = client.current(city("Ulm")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let reason = status
        .source()
        .and_then(|source| source.downcast_ref::<ClientRateLimitError>());
    assert_eq!(
        reason.map(ClientRateLimitError::kind),
        Some(ClientRateLimitErrorKind::ServerLimit)
    );
    assert_eq!(server.sent(), 1);
}
