//! Requests over HTTP: what a denial costs the server's processor.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::runtime::Runtime;
use tollgate_benches::layer::API_KEY;

use crate::{
    served::{self, Requests, Served},
    server::{App, Limiter, Server},
    table::Row,
};

/// Connections that are kept open. Each has one request on its way at a time.
const CONNECTIONS: usize = 8;
const REQUESTS: usize = 8_000;
const CUSTOMER: &str = "customer-000000000000007";

/// The rows.
pub(crate) fn rows(print: &mut dyn FnMut(Row)) -> io::Result<()> {
    let over_http1 = Requests {
        passed: "a 200",
        denied: "a 429",
        protocol: "HTTP/1.1",
        gate: 0.95,
    };
    served::rows::<Measured<Http1>>(&over_http1, print)?;
    let over_http2 = Requests {
        passed: "a 200",
        denied: "a 429",
        protocol: "HTTP/2",
        gate: 1.0,
    };
    served::rows::<Measured<Http2>>(&over_http2, print)
}

/// A server with its clients.
struct Measured<C> {
    server: Server,
    clients: C,
}

/// Clients on connections of their own.
trait Clients: Sized {
    fn connect(address: SocketAddr) -> io::Result<Self>;

    /// Sends `each` requests on each connection. Their statuses.
    fn requests(&mut self, path: &str, each: usize) -> io::Result<Vec<u16>>;
}

impl<C: Clients> Served for Measured<C> {
    fn start(limiter: Limiter) -> io::Result<Self> {
        let server = Server::start(limiter, App::Rest)?;
        let mut clients = C::connect(server.address)?;
        // The one request that the tight limit lets pass.
        clients.requests("/tight", 1)?;
        Ok(Self { server, clients })
    }

    fn processor_time(&mut self, tight: bool, pass: bool) -> io::Result<f64> {
        let path = if tight { "/tight" } else { "/wide" };
        let before = self.server.processor_time()?;
        let statuses = self.clients.requests(path, REQUESTS / CONNECTIONS)?;
        let after = self.server.processor_time()?;
        let status = if pass { 200 } else { 429 };
        assert!(
            statuses.iter().all(|other| *other == status),
            "{path} did not answer {status}"
        );
        Ok((after - before) as f64 / statuses.len() as f64 / 1_000.0)
    }
}

struct Http1(Vec<TcpStream>);

impl Clients for Http1 {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let connections = (0..CONNECTIONS).map(connect);
        Ok(Self(connections.collect::<io::Result<_>>()?))
    }

    fn requests(&mut self, path: &str, each: usize) -> io::Result<Vec<u16>> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n{API_KEY}: {CUSTOMER}\r\n\r\n"
        );
        let mut statuses = Vec::with_capacity(each * CONNECTIONS);
        for _ in 0..each {
            for connection in &mut self.0 {
                connection.write_all(request.as_bytes())?;
            }
            for connection in &mut self.0 {
                statuses.push(read_response(connection)?);
            }
        }
        Ok(statuses)
    }
}

struct Http2 {
    runtime: Runtime,
    connections: Vec<SendRequest<Bytes>>,
}

impl Clients for Http2 {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let connect = async || {
            let stream = tokio::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let shaken = h2::client::handshake(stream).await;
            let (requests, connection) = shaken.map_err(io::Error::other)?;
            // It ends with the server.
            tokio::spawn(connection);
            Ok::<_, io::Error>(requests)
        };
        let connections = runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in 0..CONNECTIONS {
                connections.push(connect().await?);
            }
            Ok::<_, io::Error>(connections)
        })?;
        Ok(Self {
            runtime,
            connections,
        })
    }

    fn requests(&mut self, path: &str, each: usize) -> io::Result<Vec<u16>> {
        self.runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for connection in &self.connections {
                let (connection, path) = (connection.clone(), path.to_owned());
                tasks.spawn(async move {
                    let mut statuses = Vec::with_capacity(each);
                    for _ in 0..each {
                        statuses.push(ask(connection.clone(), &path).await?);
                    }
                    Ok::<_, h2::Error>(statuses)
                });
            }
            let all: Result<Vec<_>, _> = tasks.join_all().await.into_iter().collect();
            Ok(all.map_err(io::Error::other)?.concat())
        })
    }
}

/// Sends a request, and reads its response to the end. Its status.
async fn ask(connection: SendRequest<Bytes>, path: &str) -> Result<u16, h2::Error> {
    let mut connection = connection.ready().await?;
    let request = Request::get(format!("http://localhost{path}"))
        .header("accept", "*/*")
        .header(API_KEY, CUSTOMER)
        .body(())
        .expect("a request");
    let (response, _) = connection.send_request(request, true)?;
    let (head, mut body) = response.await?.into_parts();
    while let Some(data) = body.data().await {
        let length = data?.len();
        body.flow_control().release_capacity(length)?;
    }
    Ok(head.status.as_u16())
}

/// Reads a whole response. Its status.
fn read_response(stream: &mut impl Read) -> io::Result<u16> {
    let mut buffer = [0; 4096];
    let mut length = 0;
    loop {
        let read = stream.read(&mut buffer[length..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        length += read;
        let text = std::str::from_utf8(&buffer[..length]).map_err(io::Error::other)?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let whole: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .and_then(|length| length.parse().ok())
            .ok_or_else(|| io::Error::other("a response without a length"))?;
        if body.len() >= whole {
            let status = head.get(9..12).and_then(|status| status.parse().ok());
            return status.ok_or_else(|| io::Error::other("a response without a status"));
        }
    }
}
