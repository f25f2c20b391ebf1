//! Whom encrypted connections trust.

use std::{fmt::Display, path::Path, sync::Arc};

use ::redis::{ClientTlsConfig, TlsCertificates};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tollgate_redis::Address;

use crate::redis::push_error::{PushError, PushErrorKind};

/// The certificates of encrypted connections, in PEM: those of the authorities that are trusted, and one of one's own.
#[derive(Clone, Debug)]
#[must_use]
pub struct Certificates(pub(super) TlsCertificates);

impl Certificates {
    /// Whom a connection to this address trusts: the authorities of a file or, without one, of the system. `None`: it is not encrypted.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or has no authority, or one for a connection that is not encrypted; as
    /// [`client_config`](Self::client_config).
    pub fn of_address(address: &Address, file: Option<&Path>) -> Result<Option<Self>, PushError> {
        let Some(file) = file else {
            return Ok(address.is_encrypted.then(Self::of_system));
        };
        let wrong = |why: &dyn Display| {
            PushError::new(PushErrorKind::Setting, format!("{}: {why}", file.display()))
        };
        if !address.is_encrypted {
            return Err(wrong(
                &"it is for encrypted connections; write the address as rediss://host",
            ));
        }
        let pem = std::fs::read(file).map_err(|why| wrong(&why))?;
        let trusted = Self::of_authorities(pem);
        trusted.client_config().map_err(|why| wrong(&why))?;
        Ok(Some(trusted))
    }

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

    /// The same for a store, by [`RedisStoreBuilder::tls`](tollgate_redis::RedisStoreBuilder::tls).
    ///
    /// # Errors
    ///
    /// They cannot be read, or no authority is among them; or there is no cryptography, which is taken from the process.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, PushError> {
        let wrong = |message: &str| PushError::new(PushErrorKind::Setting, message);
        let unreadable =
            |why: &dyn Display| wrong(&format!("the certificates cannot be read: {why}"));
        if CryptoProvider::get_default().is_none() {
            return Err(wrong(
                "rustls has no cryptography in this process; call rustls::crypto::ring::default_provider().install_default(), \
                 or that of another provider, when the program starts",
            ));
        }
        let mut roots = RootCertStore::empty();
        if let Some(authorities) = &self.0.root_cert {
            for authority in CertificateDer::pem_slice_iter(authorities) {
                let authority = authority.map_err(|why| unreadable(&why))?;
                roots.add(authority).map_err(|why| unreadable(&why))?;
            }
        } else {
            // A system may have certificates that cannot be read; the others are used.
            let known = rustls_native_certs::load_native_certs().certs;
            let _ = roots.add_parsable_certificates(known);
        }
        if roots.is_empty() {
            return Err(wrong(
                "there is no authority to trust: certificates in PEM begin with -----BEGIN CERTIFICATE-----",
            ));
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let Some(identity) = &self.0.client_tls else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&identity.client_cert).collect();
        let key = PrivateKeyDer::from_pem_slice(&identity.client_key);
        let (chain, key) = chain
            .and_then(|chain| Ok((chain, key?)))
            .map_err(|why| unreadable(&why))?;
        let config = builder.with_client_auth_cert(chain, key);
        config.map(Arc::new).map_err(|why| unreadable(&why))
    }
}
