//! Encrypted connections, with certificates that change while the server runs.

use std::{
    io,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::interval,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::{ServerConnection, WebPkiClientVerifier},
    },
    server::TlsStream,
};
use x509_parser::prelude::{ASN1Time, FromDer as _, GeneralName, Validity, X509Certificate};

use crate::{mistakes::Mistakes, settings::TlsSettings};

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// In seconds.
const DAY: i64 = 86_400;

/// The certificates of a door.
#[derive(Clone)]
pub(crate) struct Tls {
    settings: TlsSettings,
    current: Arc<RwLock<TlsAcceptor>>,
}

impl Tls {
    pub(crate) fn read(settings: &TlsSettings) -> Result<Self, Mistakes> {
        Ok(Self {
            current: Arc::new(RwLock::new(acceptor(settings)?)),
            settings: settings.clone(),
        })
    }

    /// Greets a client. One that is not among those of `san` is refused.
    pub(crate) async fn accept<I: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: I,
    ) -> io::Result<TlsStream<I>> {
        let acceptor = self
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let stream = acceptor.accept(io).await?;
        match self.settings.san.is_empty() || is_named(stream.get_ref().1, &self.settings.san) {
            true => Ok(stream),
            false => Err(io::Error::other(
                "its certificate has none of the names in `san`",
            )),
        }
    }

    /// What is to be said of a certificate that should have been renewed: another text each day.
    pub(crate) fn warning(&self) -> Option<String> {
        let file = &self.settings.cert;
        let Validity {
            not_before,
            not_after,
        } = validity(&certificates(file).ok()?)?;
        let [from, now, to] = [not_before, ASN1Time::now(), not_after].map(|it| it.timestamp());
        let left = (to - now).max(0);
        let days = left / DAY;
        let text = || {
            format!(
                "{}: the certificate ends in {days} days; renew it",
                file.display()
            )
        };
        // Some are made for an hour.
        (left < ((to - from) / 4).min(14 * DAY)).then(text)
    }

    /// Takes the files anew whenever they change. What is wrong then leaves the certificates as they are.
    pub(crate) async fn follow(self) {
        let (mut known, mut said) = (self.changed(), None);
        let mut ticks = interval(INTERVAL);
        loop {
            ticks.tick().await;
            let warning = self.warning();
            if let Some(warning) = warning.as_ref().filter(|_| warning != said) {
                tracing::warn!(target: "tollgate", "{warning}");
            }
            said = warning;
            let now = self.changed();
            if now == known {
                continue;
            }
            known = now;
            match acceptor(&self.settings) {
                Ok(acceptor) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
                    tracing::info!(target: "tollgate", "the certificate in {} is in force", self.settings.cert.display());
                }
                Err(wrong) => {
                    tracing::error!(target: "tollgate", "the last certificate stays in force: {wrong}")
                }
            }
        }
    }

    fn changed(&self) -> [Option<SystemTime>; 3] {
        let TlsSettings {
            cert,
            key,
            client_ca,
            ..
        } = &self.settings;
        [Some(cert), Some(key), client_ca.as_ref()]
            .map(|file| file?.metadata().ok()?.modified().ok())
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Mistakes> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = all.map_err(|why| Mistakes::of(file, why))?;
    let none = "there is no certificate in it; it is PEM, from -----BEGIN CERTIFICATE----- on";
    match all.is_empty() {
        true => Err(Mistakes::of(file, none)),
        false => Ok(all),
    }
}

/// When the first certificate of a file holds. What the others are for, and whether it is needed, depends on the client.
fn validity(chain: &[CertificateDer<'_>]) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    Some(certificate.validity().clone())
}

fn acceptor(settings: &TlsSettings) -> Result<TlsAcceptor, Mistakes> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Mistakes::one)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(file)? {
                let added = roots.add(authority);
                added.map_err(|why| Mistakes::of(file, why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .map_err(|why| Mistakes::of(file, why))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&settings.key)
        .map_err(|why| Mistakes::of(&settings.key, format!("no key can be read: {why}")));
    let (chain, key) = match (certificates(&settings.cert), key) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => {
            let mut mistakes = Mistakes::default();
            mistakes.add_of(chain);
            mistakes.add_of(key);
            return Err(mistakes);
        }
    };
    if let Some(Validity {
        not_before,
        not_after,
    }) = validity(&chain).filter(|it| !it.is_valid())
    {
        let wrong = format!("the certificate is valid from {not_before} to {not_after}; renew it");
        return Err(Mistakes::of(&settings.cert, wrong));
    }
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|why| Mistakes::of(&settings.cert, why))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Whether the client's certificate has one of these names: of a host, or a URI as SPIFFE's.
fn is_named(connection: &ServerConnection, names: &[String]) -> bool {
    let Some(certificate) = connection.peer_certificates().and_then(<[_]>::first) else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return false;
    };
    let Ok(Some(alternatives)) = certificate.subject_alternative_name() else {
        return false;
    };
    alternatives
        .value
        .general_names
        .iter()
        .any(|name| match name {
            GeneralName::DNSName(name) => names.iter().any(|it| it.eq_ignore_ascii_case(name)),
            GeneralName::URI(name) => names.iter().any(|it| it == name),
            _ => false,
        })
}
