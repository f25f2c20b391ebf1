//! Whom encrypted connections trust.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use redis::TlsCertificates;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tollgate_redis::Address;

use crate::failure::Failure;

/// Whom encrypted connections trust.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TrustArgs {
    /// For rediss://: the authorities that certificates may come from, in a PEM file. Default: those of the system.
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CA")]
    ca: Option<PathBuf>,
}

impl TrustArgs {
    /// For an address that asks for encryption.
    pub(crate) fn config(&self, address: &Address) -> Result<Option<Arc<ClientConfig>>, Failure> {
        if !address.parts().is_encrypted {
            return match &self.ca {
                Some(_) => Err(Failure::usage(
                    "--ca is for encrypted connections; write the address as rediss://host",
                )),
                None => Ok(None),
            };
        }
        let provider = Arc::new(default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Failure::failed)?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        Ok(Some(Arc::new(config)))
    }

    /// The same for the clients of redis-rs.
    pub(crate) fn certificates(
        &self,
        address: &Address,
    ) -> Result<Option<TlsCertificates>, Failure> {
        if self.config(address)?.is_none() {
            return Ok(None);
        }
        // It may have been done before.
        let _ = default_provider().install_default();
        // It was read a moment ago.
        let file = self.ca.as_ref().map(std::fs::read).transpose();
        Ok(Some(TlsCertificates {
            client_tls: None,
            root_cert: file.map_err(Failure::failed)?,
        }))
    }

    fn roots(&self) -> Result<RootCertStore, Failure> {
        let Some(file) = &self.ca else {
            let mut roots = RootCertStore::empty();
            // A system may have certificates that cannot be read; the others are used.
            let (known, _) =
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            return match known {
                0 => Err(Failure::usage(
                    "this system has no certificates of authorities; name a file of them with --ca",
                )),
                _ => Ok(roots),
            };
        };
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::usage(format!(
                "--ca {}: {why}; it takes certificates in PEM, from -----BEGIN CERTIFICATE----- on",
                file.display()
            ))
        };
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(file).map_err(|why| wrong(&why))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|why| wrong(&why))?;
            roots.add(certificate).map_err(|why| wrong(&why))?;
        }
        match roots.is_empty() {
            true => Err(wrong(&"there is no certificate in it")),
            false => Ok(roots),
        }
    }
}
