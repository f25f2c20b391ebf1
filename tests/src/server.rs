//! An axum service on a socket, and a client that writes what it sends by hand.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, middleware};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

/// A wait that no test comes near: it turns a hang into a failure.
const HANGS: Duration = Duration::from_secs(60);

/// An axum service on a port of its own, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// A response as it came over the wire.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// What came after the head.
    pub body: String,
}

impl Server {
    /// Serves `app` with the addresses of its clients.
    pub async fn start(app: Router) -> Self {
        let listener = listener().await;
        let address = listener.local_addr().expect("a bound socket");
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        let serve = async move { axum::serve(listener, service).await.expect("it serves") };
        Self {
            address,
            task: tokio::spawn(serve),
        }
    }

    /// Serves `app` without the addresses of its clients.
    pub async fn start_without_addresses(app: Router) -> Self {
        let listener = listener().await;
        let address = listener.local_addr().expect("a bound socket");
        let serve = async move { axum::serve(listener, app).await.expect("it serves") };
        Self {
            address,
            task: tokio::spawn(serve),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// GET on a connection of its own.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[]).await
    }

    /// A request without a body, on a connection of its own.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut connection = self.connect().await;
        let mut headers = headers.to_vec();
        headers.push(("connection", "close"));
        connection.write(&head(method, path, &headers)).await;
        if method == "HEAD" {
            // The length is that of GET; a body would come all the same.
            let mut answer = connection.answer_head().await;
            answer.body = connection.rest().await;
            return answer;
        }
        connection.answer().await
    }

    /// A connection.
    pub async fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address)
            .await
            .expect("the server listens");
        Connection { stream }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A client's end of a connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
}

impl Connection {
    /// Sends bytes as they are.
    pub async fn write(&mut self, bytes: &str) {
        self.stream
            .write_all(bytes.as_bytes())
            .await
            .expect("the server reads");
    }

    /// Reads one response: its body as long as `content-length` says, or to the end of the connection.
    pub async fn answer(&mut self) -> Answer {
        timeout(HANGS, self.read(true))
            .await
            .expect("the server answers")
    }

    /// Reads the head of a response that has no body: to HEAD, or 100 and the like.
    pub async fn answer_head(&mut self) -> Answer {
        timeout(HANGS, self.read(false))
            .await
            .expect("the server answers")
    }

    async fn read(&mut self, with_body: bool) -> Answer {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(self.stream.read_u8().await.expect("a whole head"));
        }
        let (status, headers) = parse(&String::from_utf8(bytes).expect("a head in UTF-8"));
        let length = headers.get("content-length");
        let length = length.map(|value| value.to_str().unwrap().parse().unwrap());
        let mut body = Vec::new();
        match length {
            _ if !with_body => {}
            Some(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body).await.expect("a body");
            }
            None => {
                self.stream.read_to_end(&mut body).await.expect("a body");
            }
        }
        Answer {
            status,
            headers,
            body: String::from_utf8(body).expect("a body in UTF-8"),
        }
    }

    /// What comes next, as long as `like`.
    pub async fn text_like(&mut self, like: &str) -> String {
        let mut bytes = vec![0; like.len()];
        timeout(HANGS, self.stream.read_exact(&mut bytes))
            .await
            .expect("the server sends")
            .expect("so many bytes");
        String::from_utf8(bytes).expect("text")
    }

    /// What comes until the server closes the connection.
    pub async fn rest(&mut self) -> String {
        let mut rest = String::new();
        timeout(HANGS, self.stream.read_to_string(&mut rest))
            .await
            .expect("the server closes")
            .expect("text");
        rest
    }
}

impl Answer {
    /// The value of a header field that is there once.
    ///
    /// # Panics
    ///
    /// If it is there more than once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value.to_str().ok()
    }

    /// All values of a header field, as one list.
    #[must_use]
    pub fn list(&self, name: &str) -> String {
        let values = self.headers.get_all(name).iter();
        let values: Vec<_> = values.map(|value| value.to_str().unwrap_or("?")).collect();
        values.join(", ")
    }

    /// Whether a response shows the client's budget.
    #[must_use]
    pub fn tells_budget(&self) -> bool {
        self.headers
            .keys()
            .any(|name| name.as_str().contains("ratelimit"))
    }
}

/// Counts the responses of a router that are a 429.
pub fn counting_denials(app: Router) -> (Router, Arc<AtomicU64>) {
    let denied = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&denied);
    let count = move |response: Response<Body>| {
        counted.fetch_add(u64::from(response.status() == 429), Ordering::SeqCst);
        std::future::ready(response)
    };
    (app.layer(middleware::map_response(count)), denied)
}

/// The head of a request.
#[must_use]
pub fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a free port")
}

fn parse(head: &str) -> (u16, HeaderMap) {
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.expect("a status").parse().expect("a number");
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| {
            (
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            )
        });
    (status, headers.collect())
}
