//! Whether and how connections are encrypted.

use std::fmt;

use tokio::net::TcpStream;

use crate::{
    address::{AddressError, ForeignTls},
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
    pub(super) fn is_there(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.config.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Refuses the encryption settings of another client, unless there is a configuration that takes their place.
    pub(crate) fn takes_over(&self, foreign: ForeignTls) -> Result<(), AddressError> {
        const REMEDY: &str =
            "give `RedisStoreBuilder::tls` a configuration of rustls that says whom to trust";
        if self.is_there() {
            return Ok(());
        }
        Err(AddressError::new(match foreign {
            ForeignTls::Insecure => format!(
                "it asks redis-rs to encrypt without looking at certificates (`insecure`), which is not taken over; {REMEDY}"
            ),
            ForeignTls::Parameters => format!(
                "it has roots or certificates of its own, which only redis-rs can read; {REMEDY}, with the same ones"
            ),
        }))
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
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_taken_over_is_refused_and_named() {
        for (foreign, words) in [
            (ForeignTls::Insecure, "`insecure`"),
            (ForeignTls::Parameters, "certificates of its own"),
        ] {
            let error = Security::default().takes_over(foreign).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains(words) && error.contains("RedisStoreBuilder::tls"),
                "{error}"
            );
        }
    }
}
