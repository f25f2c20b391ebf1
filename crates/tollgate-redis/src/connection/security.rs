//! Whether and how connections are encrypted.

use std::fmt;

use tokio::net::TcpStream;

use crate::{
    address::{Address, AddressError},
    connection::{
        connect_error::{ConnectError, ConnectErrorKind},
        stream::Stream,
    },
};

/// What an application says about encryption. Nothing by default.
#[derive(Clone, Default)]
pub(crate) struct Security {
    #[cfg(feature = "tls")]
    config: Option<std::sync::Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Security {
    /// Encrypts by a configuration of rustls: whom to trust, by which cryptography, with which certificate of one's own.
    #[cfg(feature = "tls")]
    pub(crate) fn rustls(
        config: impl Into<std::sync::Arc<tokio_rustls::rustls::ClientConfig>>,
    ) -> Self {
        Self {
            config: Some(config.into()),
        }
    }

    /// Whether it can encrypt.
    fn is_there(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.config.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Refuses an address that asks for encryption, unless it is said here whom to trust.
    pub(super) fn check(&self, address: &Address) -> Result<(), AddressError> {
        if address.is_encrypted() && !self.is_there() {
            return Err(AddressError::new(
                "an encrypted connection needs to know whom to trust; give `RedisStoreBuilder::tls` a configuration of rustls, \
                 with the roots and the certificates that it says (those of a client of redis-rs cannot be read, and its \
                 `insecure` is not taken over)",
            ));
        }
        Ok(())
    }

    /// Encrypts a connection to `host`, whose certificate has to be for that name or number.
    #[cfg(feature = "tls")]
    pub(super) async fn encrypt(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<Stream, ConnectError> {
        use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

        let Some(config) = &self.config else {
            return Err(ConnectError::new(
                ConnectErrorKind::Tls,
                "there is no TLS configuration",
            ));
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            ConnectError::new(
                ConnectErrorKind::Tls,
                "the host is no name that a certificate could have",
            )
        })?;
        let connector = TlsConnector::from(std::sync::Arc::clone(config));
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(ConnectError::new(
                ConnectErrorKind::Tls,
                format!("TLS: {error}"),
            )),
        }
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "as with the feature `tls`")]
    pub(super) async fn encrypt(&self, _: TcpStream, _: &str) -> Result<Stream, ConnectError> {
        Err(ConnectError::new(
            ConnectErrorKind::Tls,
            "TLS needs the feature `tls`",
        ))
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_there() {
            "Security(rustls)"
        } else {
            "Security(none)"
        })
    }
}
