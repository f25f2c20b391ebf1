//! Whom encrypted connections trust.

use std::path::PathBuf;

use clap::Args;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tollgate_redis::Address;
use tollgate_rules::redis::Certificates;

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
    pub(crate) fn certificates(&self, address: &Address) -> Result<Option<Certificates>, Failure> {
        if !address.parts().is_encrypted {
            return match &self.ca {
                Some(_) => Err(Failure::usage(
                    "--ca is for encrypted connections; write the address as rediss://host",
                )),
                None => Ok(None),
            };
        }
        // It may have been done before.
        let _ = default_provider().install_default();
        let Some(file) = &self.ca else {
            return Ok(Some(Certificates::of_system()));
        };
        let wrong = |why: &dyn std::fmt::Display| {
            let file = file.display();
            Failure::usage(format!("--ca {file}: {why}"))
        };
        let pem = std::fs::read(file).map_err(|why| wrong(&why))?;
        let trusted = Certificates::of_authorities(pem);
        trusted.client_config().map_err(|why| wrong(&why))?;
        Ok(Some(trusted))
    }
}
