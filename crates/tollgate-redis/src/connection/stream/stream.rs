//! A socket, encrypted or not.

use std::{
    io,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use crate::address::TcpOptions;
#[cfg(test)]
use crate::connection::stream::memory;

/// What a [`Driver`](crate::connection::driver::Driver) needs of a stream.
pub(in crate::connection) trait Transport:
    AsyncRead + AsyncWrite + Unpin + Send
{
    /// Asks that what the peer has not yet read is thrown away when the stream is dropped, as far as that can be had.
    fn forget_on_drop(&self) {}
}

/// A socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<TcpStream>>),
    /// To a server that a test plays.
    #[cfg(test)]
    Memory(tokio::io::DuplexStream),
}

impl Stream {
    /// A connection through a socket in the file system.
    pub(in crate::connection) async fn unix(path: &Path) -> io::Result<Self> {
        #[cfg(test)]
        if memory::is_server(path) {
            return memory::connect(path).map(Self::Memory);
        }
        #[cfg(unix)]
        return UnixStream::connect(path).await.map(Self::Unix);
        #[cfg(not(unix))]
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Answers are awaited for milliseconds: nothing is held back to be sent together, and a peer that is gone is noticed in
    /// seconds rather than in the quarter of an hour that systems take.
    pub(crate) fn tune(stream: &TcpStream, options: &TcpOptions) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let socket = SockRef::from(stream);
        let second = Duration::from_secs(1);
        let keepalive = TcpKeepalive::new().with_time(5 * second);
        #[cfg(not(any(target_os = "openbsd", target_os = "haiku")))]
        let keepalive = keepalive.with_interval(second);
        #[cfg(any(target_os = "linux", target_os = "macos", target_os = "windows"))]
        let keepalive = keepalive.with_retries(3);
        socket.set_tcp_keepalive(options.keepalive.as_ref().unwrap_or(&keepalive))?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(options.user_timeout.unwrap_or(3 * second)))?;
        Ok(())
    }
}

impl Transport for Stream {
    fn forget_on_drop(&self) {
        match self {
            // A socket that refuses is closed in the usual way.
            Self::Tcp(stream) => drop(stream.set_zero_linger()),
            #[cfg(unix)]
            Self::Unix(_) => {}
            #[cfg(feature = "tls")]
            Self::Tls(stream) => drop(stream.get_ref().0.set_zero_linger()),
            #[cfg(test)]
            Self::Memory(_) => {}
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(test)]
            Self::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
