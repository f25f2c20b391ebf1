//! From a host to a TCP connection: its addresses are tried one after the other, and none keeps the next one waiting.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    select,
    task::JoinSet,
    time::{sleep, timeout},
};

#[cfg(test)]
use crate::connection::test_hosts;
use crate::connection::{
    connect_error::{ConnectError, ConnectErrorKind},
    host_resolver::HostResolver,
};

/// How long an address is tried alone (the "Connection Attempt Delay" of RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The least time that an address may take, as long as the connection may.
const LEAST_TIMEOUT: Duration = Duration::from_millis(500);

/// More are not remembered.
const MOST_DOUBTFUL: usize = 64;

/// Connects to a host, and knows which of its addresses was of no use the last time.
#[derive(Debug)]
pub(super) struct Dialer {
    /// How long each address may take.
    timeout: Duration,
    resolver: HostResolver,
    /// Connected to, and not of use since.
    doubtful: Mutex<Vec<SocketAddr>>,
}

impl Dialer {
    /// For connections that have to be ready within `connect_timeout`.
    pub(super) fn new(connect_timeout: Duration, resolver: HostResolver) -> Self {
        Self {
            resolver,
            timeout: (connect_timeout / 4)
                .max(LEAST_TIMEOUT)
                .min(connect_timeout),
            doubtful: Mutex::default(),
        }
    }

    /// The first address of the host that accepts a connection.
    pub(super) async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let found = self.resolver.look_up(host, port).await.map_err(|error| {
            ConnectError::new(
                ConnectErrorKind::Dns,
                format!("{host} is not found: {error}"),
            )
        })?;
        let stream = race(self.in_order(&found), self.timeout).await?;
        if let Ok(address) = stream.peer_addr() {
            let mut doubtful = self.doubtful();
            if doubtful.len() >= MOST_DOUBTFUL {
                doubtful.clear();
            }
            if !doubtful.contains(&address) {
                doubtful.push(address);
            }
        }
        Ok(stream)
    }

    /// A connection to this address is of use: it is logged in.
    pub(super) fn worked(&self, address: SocketAddr) {
        self.doubtful().retain(|doubtful| *doubtful != address);
    }

    /// Both families, alternating, as RFC 8305 has it; that which was of no use comes last.
    fn in_order(&self, found: &[SocketAddr]) -> Vec<SocketAddr> {
        let is_first_family = |address: &SocketAddr| {
            found
                .first()
                .is_some_and(|first| first.is_ipv6() == address.is_ipv6())
        };
        let (first, other): (Vec<_>, Vec<_>) = found.iter().copied().partition(is_first_family);
        let mut ordered = Vec::with_capacity(found.len());
        let (mut first, mut other) = (first.into_iter(), other.into_iter());
        loop {
            let pair = [first.next(), other.next()];
            if pair == [None, None] {
                break;
            }
            ordered.extend(pair.into_iter().flatten());
        }
        let doubtful = self.doubtful();
        ordered.sort_by_key(|address| doubtful.contains(address));
        ordered
    }

    /// Each change under the lock is one step, so that a poisoned lock guards whole data.
    fn doubtful(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.doubtful.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    #[cfg(test)]
    test_hosts::handshake(address).await;
    TcpStream::connect(address).await
}

async fn race(addresses: Vec<SocketAddr>, limit: Duration) -> Result<TcpStream, ConnectError> {
    let mut addresses = addresses.into_iter();
    let failed = |what: String| ConnectError::new(ConnectErrorKind::Tcp, what);
    let mut last = failed("the host has no address".to_owned());
    // Dropped with this future, and all attempts with it.
    let mut attempts = JoinSet::new();
    loop {
        if let Some(address) = addresses.next() {
            attempts.spawn(async move {
                let connected = timeout(limit, connect(address)).await;
                let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                connected.map_err(|error| (address, error))
            });
        }
        select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err((address, error)))) => last = failed(format!("{address}: {error}")),
                Some(Err(_)) => {}
                None => return Err(last),
            },
            () = sleep(ATTEMPT_DELAY), if addresses.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        net::{TcpListener, TcpSocket},
        time::Instant,
    };
    use tollgate_test_servers::full_backlog::FullBacklog;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn families_take_turns_and_an_address_that_was_of_no_use_comes_last() {
        let found = [
            "[::1]:1",
            "[::2]:1",
            "[::3]:1",
            "127.0.0.1:1",
            "127.0.0.2:1",
        ];
        let found: Vec<_> = found.into_iter().map(address).collect();
        let dialer = Dialer::new(Duration::from_secs(2), HostResolver::default());
        let ordered = [
            "[::1]:1",
            "127.0.0.1:1",
            "[::2]:1",
            "127.0.0.2:1",
            "[::3]:1",
        ];
        assert_eq!(dialer.in_order(&found), ordered.map(address));
        dialer.doubtful().push(address("[::1]:1"));
        let ordered = [
            "127.0.0.1:1",
            "[::2]:1",
            "127.0.0.2:1",
            "[::3]:1",
            "[::1]:1",
        ];
        assert_eq!(dialer.in_order(&found), ordered.map(address));
        dialer.worked(address("[::1]:1"));
        assert_eq!(dialer.in_order(&found)[0], address("[::1]:1"));
    }

    #[tokio::test]
    async fn an_address_with_a_full_backlog_does_not_keep_the_next_one_waiting() {
        let full = FullBacklog::start().await;
        let live = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (dead, live) = (full.address(), live.local_addr().expect("its address"));
        // However long the first one may take.
        let limit = Duration::from_secs(600);
        let stream = timeout(Duration::from_secs(30), race(vec![dead, live], limit)).await;
        let stream = stream.expect("in time").expect("a connection");
        assert_eq!(stream.peer_addr().expect("an address"), live);
        // Alone, it is given up.
        let error = race(vec![dead], Duration::from_millis(50)).await;
        let error = error.expect_err("nobody is let in");
        assert_eq!(error.kind(), ConnectErrorKind::Tcp);
        assert!(error.message().contains("timed out"), "{error}");
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_passed_over_at_once() {
        let live = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(address("127.0.0.1:0")).expect("a port");
        let refuses = socket.local_addr().expect("its address");
        let live = live.local_addr().expect("its address");
        let addresses = [vec![refuses; 100], vec![live]].concat();
        let began = Instant::now();
        let stream = race(addresses, Duration::from_secs(600))
            .await
            .expect("one accepts");
        assert_eq!(stream.peer_addr().expect("an address"), live);
        // One after the other they would take 25 s.
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_a_failure_of_dns() {
        let dialer = Dialer::new(Duration::from_secs(2), HostResolver::default());
        let error = dialer.tcp("no-such-host.invalid", 1).await;
        let error = error.expect_err("there is none");
        assert_eq!(error.kind(), ConnectErrorKind::Dns);
        assert!(error.message().contains("no-such-host.invalid"), "{error}");
    }
}
