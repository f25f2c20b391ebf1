//! Whom encrypted connections trust.

use ::redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};
use tokio_rustls::rustls::crypto::CryptoProvider;

use crate::redis::push_error::{PushError, PushErrorKind};

/// The certificates of encrypted connections, in PEM: those of the authorities that are trusted, and one of one's own.
#[derive(Clone, Debug)]
#[must_use]
pub struct Certificates(TlsCertificates);

impl Certificates {
    /// Trusts the authorities that the system knows.
    pub fn of_system() -> Self {
        Self(TlsCertificates {
            client_tls: None,
            root_cert: None,
        })
    }

    /// Trusts these authorities and no others.
    pub fn of_authorities(pem: impl Into<Vec<u8>>) -> Self {
        Self(TlsCertificates {
            client_tls: None,
            root_cert: Some(pem.into()),
        })
    }

    /// Shows this certificate, with this key, to servers that ask for one.
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.0.client_tls = Some(ClientTlsConfig {
            client_cert: certificate.into(),
            client_key: key.into(),
        });
        self
    }

    /// As redis-rs has them.
    ///
    /// # Errors
    ///
    /// They cannot be read; or there is no cryptography, which redis-rs takes from the process.
    pub(crate) fn checked(self) -> Result<TlsCertificates, PushError> {
        let wrong = |message: String| Err(PushError::new(PushErrorKind::Setting, message));
        if CryptoProvider::get_default().is_none() {
            return wrong(
                "rustls has no cryptography in this process; call rustls::crypto::ring::default_provider().install_default(), \
                 or that of another provider, when the program starts"
                    .to_owned(),
            );
        }
        const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
        if let Some(roots) = &self.0.root_cert
            && !roots.windows(BEGIN.len()).any(|text| text == BEGIN)
        {
            return wrong(
                "there is no authority to trust: certificates in PEM begin with -----BEGIN CERTIFICATE-----"
                    .to_owned(),
            );
        }
        // Nothing is connected yet.
        let anywhere = ConnectionAddr::TcpTls {
            host: "localhost".to_owned(),
            port: 6379,
            insecure: false,
            tls_params: None,
        };
        match Client::build_with_tls(anywhere, self.0.clone()) {
            Ok(_) => Ok(self.0),
            Err(why) => wrong(format!("the certificates cannot be read: {why}")),
        }
    }
}
