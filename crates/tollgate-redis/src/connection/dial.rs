//! From a host to a TCP connection.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};

use crate::connection::connect_error::{ConnectError, ConnectErrorKind};

/// How long each of several addresses may take to accept before the next one is tried.
const FIRST_TRY: Duration = Duration::from_millis(250);

/// Connects to the first address of a host that accepts. It begins with the one that has the number `first`, in the order in which
/// the system names them.
pub(super) async fn dial(
    host: &str,
    port: u16,
    first: usize,
    within: Duration,
) -> Result<TcpStream, ConnectError> {
    let found = lookup_host((host, port)).await.map_err(|error| {
        let message = format!("{host} is not found: {error}");
        ConnectError::new(ConnectErrorKind::Dns, message)
    })?;
    let mut addresses: Vec<_> = found.collect();
    let first = first % addresses.len().max(1);
    addresses.rotate_left(first);
    let connected = first_to_accept(addresses, within, TcpStream::connect).await;
    connected.map_err(|why| ConnectError::new(ConnectErrorKind::Tcp, why))
}

/// Several addresses are tried one after the other, for a short time each. So one that is dead does not cost the connection; and
/// those that were silent are tried once more for the time that is left, because a server may be far away.
async fn first_to_accept<T, F: Future<Output = io::Result<T>>>(
    addresses: Vec<SocketAddr>,
    within: Duration,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, String> {
    let ends = Instant::now() + within;
    let mut why = "the host has no address".to_owned();
    let mut silent = Vec::new();
    if addresses.len() == 1 {
        silent = addresses;
    } else {
        for address in addresses {
            match timeout(FIRST_TRY, connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => why = format!("{address}: {error}"),
                Err(_) => silent.push(address),
            }
        }
    }
    for (left, address) in (1..=silent.len() as u32).rev().zip(&silent) {
        let share = ends.saturating_duration_since(Instant::now()) / left;
        match timeout(share, connect(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: {}", io::Error::from(io::ErrorKind::TimedOut)),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(2);

    /// What becomes of addresses that answer after so many milliseconds, by accepting or by refusing, and after how many.
    async fn tried(addresses: &[(u64, bool)]) -> (Result<u16, String>, u128) {
        let began = Instant::now();
        let ports = (0..addresses.len() as u16).map(|port| ([10, 0, 0, 1], port).into());
        let connect = |address: SocketAddr| {
            let (after, accepts) = addresses[usize::from(address.port())];
            async move {
                sleep(Duration::from_millis(after)).await;
                match accepts {
                    true => Ok(address.port()),
                    false => Err(io::ErrorKind::ConnectionRefused.into()),
                }
            }
        };
        let connected = first_to_accept(ports.collect(), WITHIN, connect);
        (connected.await, began.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_address_is_passed_over_and_a_far_one_has_its_time() {
        const NEVER: u64 = 3_600_000;
        assert_eq!(tried(&[(NEVER, true), (3, true)]).await, (Ok(1), 253));
        assert_eq!(
            tried(&[(1, false), (1, false), (1, true)]).await,
            (Ok(2), 3)
        );
        // One alone is far away.
        assert_eq!(tried(&[(1_900, true)]).await, (Ok(0), 1_900));
        // So are all that live.
        let (far, after) = tried(&[(NEVER, true), (260, true)]).await;
        assert_eq!((far, after), (Ok(1), 500 + 750 + 260));
        let (none, after) = tried(&[(NEVER, true), (NEVER, true)]).await;
        let why = none.expect_err("nobody accepts");
        assert!(why.starts_with("10.0.0.1:1: "), "{why}");
        assert_eq!(after, 2_000);
        let (none, _) = tried(&[]).await;
        assert_eq!(none, Err("the host has no address".to_owned()));
    }

    #[tokio::test]
    async fn a_host_without_an_address_is_a_failure_of_dns() {
        let error = dial("no-such-host.invalid", 1, 0, WITHIN).await;
        let error = error.expect_err("there is none");
        assert_eq!(error.kind(), ConnectErrorKind::Dns);
        assert!(error.message().contains("no-such-host.invalid"), "{error}");
    }
}
