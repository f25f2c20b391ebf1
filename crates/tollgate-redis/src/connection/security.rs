//! Whether and how connections are encrypted.

#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

#[cfg(feature = "tls")]
use crate::connection::{
    connect_error::{ConnectError, ConnectErrorKind},
    stream::Stream,
};
use crate::{address::Address, error::SetupError};

/// What an application says about encryption: a configuration of rustls, with whom to trust, by which cryptography, and with which
/// certificate of one's own. Nothing by default.
#[derive(Clone, Default)]
pub(crate) struct Security {
    #[cfg(feature = "tls")]
    pub(crate) config: Option<Arc<ClientConfig>>,
}

impl Security {
    /// Refuses an address that asks for encryption, unless it is said here whom to trust.
    pub(super) fn check(&self, address: &Address) -> Result<(), SetupError> {
        #[cfg(feature = "tls")]
        let is_there = self.config.is_some();
        #[cfg(not(feature = "tls"))]
        let is_there = false;
        if address.encrypted && !is_there {
            return Err(SetupError::address(
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
        let failed = |what: String| ConnectError::new(ConnectErrorKind::Tls, what);
        let Some(config) = &self.config else {
            return Err(failed("there is no TLS configuration".to_owned()));
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| failed("the host is no name that a certificate could have".to_owned()))?;
        let connector = TlsConnector::from(Arc::clone(config));
        match connector.connect(name, stream).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(failed(format!("TLS: {error}"))),
        }
    }
}
