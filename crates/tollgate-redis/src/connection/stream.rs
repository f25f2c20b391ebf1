//! A socket, encrypted or not.

#[cfg(not(feature = "tls"))]
use std::convert::Infallible;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::{io, path::Path, time::Duration};

use socket2::{SockRef, TcpKeepalive};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
#[cfg(feature = "tls")]
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

#[cfg(feature = "tls")]
use crate::connection::error::{ConnectError, ConnectErrorKind};

#[cfg(test)]
pub(crate) mod memory;

/// What a [`Driver`](crate::connection::driver::Driver) needs of a socket.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// Asks that what the peer has not yet read is thrown away when the socket is dropped, as far as that can be had.
    fn forget_on_drop(&self) {}
}

pub(super) type Stream = Box<dyn Transport>;

/// A socket that is closed.
impl Transport for tokio::io::Empty {}

impl Transport for TcpStream {
    fn forget_on_drop(&self) {
        // A socket that refuses is closed in the usual way.
        let _ = self.set_zero_linger();
    }
}

#[cfg(unix)]
impl Transport for UnixStream {}

#[cfg(feature = "tls")]
impl Transport for tokio_rustls::client::TlsStream<TcpStream> {
    fn forget_on_drop(&self) {
        self.get_ref().0.forget_on_drop();
    }
}

/// A connection through a socket in the file system.
pub(super) async fn unix(path: &Path) -> io::Result<Stream> {
    #[cfg(test)]
    if memory::is_server(path) {
        return Ok(Box::new(memory::connect(path)?));
    }
    #[cfg(unix)]
    return Ok(Box::new(UnixStream::connect(path).await?));
    #[cfg(not(unix))]
    Err(io::ErrorKind::Unsupported.into())
}

/// Answers are awaited for milliseconds: nothing is held back to be sent together, and a peer that is gone is noticed in seconds
/// rather than in the quarter of an hour that systems take.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    const SECOND: Duration = Duration::from_secs(1);
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(5 * SECOND);
    #[cfg(not(any(target_os = "openbsd", target_os = "haiku")))]
    let keepalive = keepalive.with_interval(SECOND);
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
    let keepalive = keepalive.with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(3 * SECOND))?;
    Ok(())
}

// How connections are encrypted.

/// A configuration of rustls: whom to trust, by which cryptography, and with which certificate of one's own.
#[cfg(feature = "tls")]
pub(crate) type Security = Arc<ClientConfig>;
#[cfg(not(feature = "tls"))]
pub(crate) type Security = Infallible;

/// Encrypts a connection to `host`, whose certificate has to be for that name or number.
#[cfg(feature = "tls")]
pub(super) async fn encrypt(
    security: Option<Security>,
    stream: TcpStream,
    host: &str,
) -> Result<Stream, ConnectError> {
    let failed = |what: String| ConnectError::new(ConnectErrorKind::Tls, what);
    let Some(config) = security else {
        return Err(failed("it is not known whom to trust".to_owned()));
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| failed("the host is no name that a certificate could have".to_owned()))?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(failed(format!("TLS: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_sends_at_once_and_notices_in_seconds_that_its_peer_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).await.expect("it listens");
        tune(&stream).expect("a socket of TCP");
        assert!(stream.nodelay().expect("an option of every socket"));
        let socket = SockRef::from(&stream);
        let keepalive = socket.tcp_keepalive_time().expect("it is kept alive");
        assert_eq!(keepalive, Duration::from_secs(5));
        #[cfg(target_os = "linux")]
        assert_eq!(
            socket.tcp_user_timeout().expect("an option of Linux"),
            Some(Duration::from_secs(3))
        );
    }
}
