//! From a server's address to a stream of bytes, encrypted where the address asks for it.

use std::time::Duration;

use ::redis::{ErrorKind, RedisError, RedisResult};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tollgate_redis::Place;

/// How long a connection may take, and then each reply.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// What the protocol of Redis is spoken over.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects to servers.
#[derive(Clone, Default)]
pub(crate) struct Dialer {
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    /// One whose connections are encrypted.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(config: std::sync::Arc<tokio_rustls::rustls::ClientConfig>) -> Self {
        Self {
            tls: Some(config.into()),
        }
    }

    pub(crate) async fn dial(&self, place: &Place) -> RedisResult<Box<dyn ByteStream>> {
        timeout(PATIENCE, self.stream(place))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn stream(&self, place: &Place) -> RedisResult<Box<dyn ByteStream>> {
        match place {
            Place::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                self.secured(host, stream).await
            }
            #[cfg(unix)]
            Place::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            Place::Unix(_) => Err(RedisError::from((
                ErrorKind::InvalidClientConfig,
                "this system has no Unix sockets",
            ))),
        }
    }

    #[cfg(feature = "tls")]
    async fn secured(&self, host: &str, stream: TcpStream) -> RedisResult<Box<dyn ByteStream>> {
        use tokio_rustls::rustls::pki_types::ServerName;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            RedisError::from((
                ErrorKind::InvalidClientConfig,
                "no certificate can be for this host",
                host.to_owned(),
            ))
        })?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with the feature `tls` it waits")]
    async fn secured(&self, _: &str, stream: TcpStream) -> RedisResult<Box<dyn ByteStream>> {
        Ok(Box::new(stream))
    }
}

pub(crate) fn late() -> RedisError {
    RedisError::from((ErrorKind::Io, "there is no connection in time"))
}
