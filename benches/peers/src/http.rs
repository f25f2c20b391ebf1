//! Requests over HTTP: what a denial costs the server's processor.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use crate::{
    harness::{Compared, median},
    server::{App, Limiter, Server},
    table::Row,
};

/// Connections that are kept open. Each has one request on its way at a time.
const CONNECTIONS: usize = 8;
const REQUESTS: usize = 8_000;
const ROUNDS: usize = 5;

/// The rows.
pub(crate) fn rows(print: &mut dyn FnMut(Row)) -> io::Result<()> {
    let [ours, theirs] = [Limiter::Tollgate, Limiter::TowerGovernor]
        .map(|limiter| Server::start(limiter, App::Rest).and_then(Measured::connect));
    let (mut ours, mut theirs) = (ours?, theirs?);
    let mut unlimited = Measured::connect(Server::start(Limiter::Bare, App::Rest)?)?;
    let (mut passed, mut denied, mut parts, mut bare) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        let bare_200 = unlimited.processor_time("/wide", 200)?;
        let mine = (
            ours.processor_time("/wide", 200)?,
            ours.processor_time("/tight", 429)?,
        );
        let other = (
            theirs.processor_time("/wide", 200)?,
            theirs.processor_time("/tight", 429)?,
        );
        // The first round warms up.
        if round > 0 {
            bare.push(bare_200);
            passed.push((mine.0, other.0));
            denied.push((mine.1, other.1));
            parts.push((mine.1 / mine.0, other.1 / other.0));
        }
    }
    let peer = "tower_governor";
    let row = |what, unit, rounds: &[_]| Row::compared(what, unit, peer, Compared::of(rounds));
    print(Row::alone(
        "server CPU of a 200 over HTTP, no limiter",
        "µs",
        median(bare.into_iter()),
    ));
    print(row("server CPU of a 200 over HTTP", "µs", &passed));
    print(row("server CPU of a 429 over HTTP", "µs", &denied));
    print(row("CPU of a 429 / CPU of a 200", "x", &parts).gate_on_ours(0.95));
    Ok(())
}

/// A server with its clients.
struct Measured {
    server: Server,
    connections: Vec<TcpStream>,
}

impl Measured {
    fn connect(server: Server) -> io::Result<Self> {
        let connections = (0..CONNECTIONS)
            .map(|_| {
                let stream = TcpStream::connect(server.address)?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .collect::<io::Result<_>>()?;
        let mut measured = Self {
            server,
            connections,
        };
        // The one request that the tight limit lets pass.
        measured.requests("/tight", 1)?;
        Ok(measured)
    }

    /// Microseconds of the server for each request, which all have this status.
    fn processor_time(&mut self, path: &str, status: u16) -> io::Result<f64> {
        let before = self.server.processor_time()?;
        let statuses = self.requests(path, REQUESTS / CONNECTIONS)?;
        let after = self.server.processor_time()?;
        assert!(
            statuses.iter().all(|other| *other == status),
            "{path} did not answer {status}"
        );
        Ok((after - before) as f64 / statuses.len() as f64 / 1_000.0)
    }

    /// Sends `each` requests on each connection.
    fn requests(&mut self, path: &str, each: usize) -> io::Result<Vec<u16>> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\nx-api-key: customer-000000000000007\r\n\r\n"
        );
        let mut statuses = Vec::with_capacity(each * CONNECTIONS);
        for _ in 0..each {
            for connection in &mut self.connections {
                connection.write_all(request.as_bytes())?;
            }
            for connection in &mut self.connections {
                statuses.push(read_response(connection)?);
            }
        }
        Ok(statuses)
    }
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
