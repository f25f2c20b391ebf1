//! What a denied upload costs: nothing is read, and where the client asks first, nothing is sent.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use axum::{Router, body::Body, extract::DefaultBodyLimit, routing};
use bytes::Bytes;
use http::Request;
use http_body::{Frame, SizeHint};
use tollgate_tests::server::Server;
use tower::util::MapRequestLayer;

use crate::{
    curl::{Version, curl},
    per_minute,
};
use tollgate_tests::app::layer;

const TEN_MEGABYTES: usize = 10_000_000;
/// Little enough to be on its way before the answer is. The connection is closed with bytes unread, and a client that
/// still sends may find it reset before it has read the answer: that is why larger uploads should ask.
const SMALL: usize = 60_000;

/// A file of zeros, until it is dropped.
struct Upload(PathBuf);

impl Upload {
    fn of(name: &str, bytes: usize) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, vec![0; bytes]).expect("a file");
        Self(path)
    }

    /// For curl: the body, read from the file.
    fn argument(&self) -> String {
        format!("@{}", self.0.display())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server that takes one upload a minute, and counts what it does for it.
struct Uploads {
    server: Server,
    calls: Arc<AtomicU64>,
    polls: Arc<AtomicU64>,
}

impl Uploads {
    async fn start() -> Self {
        let calls = Arc::<AtomicU64>::default();
        let polls = Arc::<AtomicU64>::default();
        let called = Arc::clone(&calls);
        let receive = routing::post(move |body: Bytes| async move {
            called.fetch_add(1, Ordering::SeqCst);
            body.len().to_string()
        });
        let polled = Arc::clone(&polls);
        let count = MapRequestLayer::new(move |request: Request<Body>| {
            let polls = Arc::clone(&polled);
            request.map(|inner| Body::new(Counted { inner, polls }))
        });
        let app = Router::new()
            .route("/", receive)
            .layer(DefaultBodyLimit::disable())
            .layer(layer([per_minute("one", 1)]))
            .layer(count);
        Self {
            server: Server::start(app).await,
            calls,
            polls,
        }
    }

    /// Uses the quota up, and forgets that.
    async fn exhaust(&self) {
        let used = ["--data", "x"];
        let used = curl(Version::Http1, self.server.address(), "/", &used).await;
        assert_eq!((used.status(), &used.body[..]), (200, &b"1"[..]));
        self.forget();
    }

    fn forget(&self) {
        assert_eq!(self.calls.swap(0, Ordering::SeqCst), 1);
        assert!(self.polls.swap(0, Ordering::SeqCst) > 0);
    }

    fn did_nothing(&self) -> bool {
        self.calls.load(Ordering::SeqCst) == 0 && self.polls.load(Ordering::SeqCst) == 0
    }
}

/// Counts how often a body is polled.
struct Counted {
    inner: Body,
    polls: Arc<AtomicU64>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[tokio::test]
async fn an_upload_with_expect_continue_is_denied_before_it_is_sent() {
    let file = Upload::of("asked", TEN_MEGABYTES);
    // curl would not wait for long by itself.
    let patient = [
        "--header",
        "Expect: 100-continue",
        "--expect100-timeout",
        "60",
        "--data-binary",
        &file.argument(),
    ];
    let uploads = Uploads::start().await;
    let taken = curl(Version::Http1, uploads.server.address(), "/", &patient).await;
    assert_eq!(taken.statuses(), ["100", "200"]);
    assert_eq!(taken.transfer["size_upload"], TEN_MEGABYTES);
    uploads.forget();

    let denied = curl(Version::Http1, uploads.server.address(), "/", &patient).await;
    assert_eq!(denied.statuses(), ["429"]);
    assert_eq!(denied.field("retry-after"), Some("60"));
    assert_eq!(denied.transfer["size_upload"], 0);
    assert!(uploads.did_nothing());
}

#[tokio::test]
async fn an_upload_without_expect_continue_is_denied_without_being_read() {
    let file = Upload::of("unasked", SMALL);
    // Over HTTP/2 Debian's curl 7.88 takes a stream that is closed before it has sent all for broken, which is allowed
    // (RFC 9113 §8.1). There, clients of gRPC are tested.
    let hasty = ["--header", "Expect:", "--data-binary", &file.argument()];
    let uploads = Uploads::start().await;
    uploads.exhaust().await;
    let denied = curl(Version::Http1, uploads.server.address(), "/", &hasty).await;
    assert_eq!(denied.statuses(), ["429"]);
    assert_eq!(denied.field("retry-after"), Some("60"));
    assert!(uploads.did_nothing());
}
