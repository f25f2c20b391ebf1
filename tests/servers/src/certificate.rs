//! A certificate, and a Redis server that shows it.

use std::{fs, path::PathBuf};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

/// A certificate that nobody vouches for, with its key, in files that go with it.
#[derive(Debug)]
pub struct Certificate {
    /// As text.
    pub pem: String,
    /// As bytes.
    pub der: Vec<u8>,
    files: TempDir,
}

impl Certificate {
    /// For these names and addresses.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let certified = generate_simple_self_signed(names).expect("a certificate");
        let CertifiedKey { cert, signing_key } = certified;
        let it = Self {
            pem: cert.pem(),
            der: cert.der().to_vec(),
            files: TempDir::new().expect("a folder"),
        };
        fs::write(it.path(), &it.pem).expect("a file");
        fs::write(it.key(), signing_key.serialize_pem()).expect("a file");
        it
    }

    /// The file that has it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.files.path().join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.files.path().join("key.pem")
    }

    /// The arguments of a server that shows it at this port.
    #[must_use]
    pub fn args(&self, port: u16) -> String {
        let (certificate, key) = (self.path(), self.key());
        let (certificate, key) = (certificate.display(), key.display());
        format!(
            "--tls-port {port} --tls-auth-clients no --tls-cert-file {certificate} --tls-key-file {key} \
             --tls-ca-cert-file {certificate}"
        )
    }
}
