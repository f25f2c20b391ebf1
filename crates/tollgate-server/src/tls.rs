//! Encrypted connections, with certificates that change while the server runs.

use std::{
    io, mem,
    path::Path,
    sync::Arc,
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
use tollgate_core::sync::{Mutex, lock};
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
    current: Arc<Mutex<Current>>,
}

/// What is in force.
struct Current {
    acceptor: TlsAcceptor,
    validity: Option<Validity>,
}

impl Current {
    fn has_begun(&self) -> bool {
        let begins = self.validity.as_ref().map(|it| it.not_before);
        begins.is_none_or(|it| it <= ASN1Time::now())
    }

    fn has_ended(&self) -> bool {
        let ends = self.validity.as_ref().map(|it| it.not_after);
        ends.is_some_and(|it| it < ASN1Time::now())
    }
}

impl Tls {
    pub(crate) fn read(settings: &TlsSettings) -> Result<Self, Mistakes> {
        Ok(Self {
            current: Arc::new(Mutex::new(current(settings)?)),
            settings: settings.clone(),
        })
    }

    /// Greets a client. One that is not among those of `san` is refused.
    pub(crate) async fn accept<I: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: I,
    ) -> io::Result<TlsStream<I>> {
        let acceptor = lock(&self.current).acceptor.clone();
        let stream = acceptor.accept(io).await?;
        match self.settings.san.is_empty() || is_named(stream.get_ref().1, &self.settings.san) {
            true => Ok(stream),
            false => Err(io::Error::other(
                "its certificate has none of the names in `san`",
            )),
        }
    }

    /// What is to be said of the certificate in force: another text each day, and when it has ended.
    pub(crate) fn warning(&self) -> Option<String> {
        let current = lock(&self.current);
        let text = warning(current.validity.as_ref()?, ASN1Time::now().timestamp())?;
        Some(format!("{}: {text}", self.settings.cert.display()))
    }

    /// Takes the files anew whenever they change. What is wrong then leaves the certificates as they are.
    pub(crate) async fn follow(self) {
        let (mut known, mut said, mut waits) = (self.changed(), None, false);
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
            let next = current(&self.settings);
            // Clients that verify would refuse it, while the one in force holds: it is looked at again until then.
            if next.as_ref().is_ok_and(|it| !it.has_begun()) && !lock(&self.current).has_ended() {
                if !mem::replace(&mut waits, true) {
                    tracing::warn!(target: "tollgate", "the certificate in {} is not valid yet; the last one stays in force until then", self.settings.cert.display());
                }
                continue;
            }
            (known, waits) = (now, false);
            match next {
                Ok(current) => {
                    *lock(&self.current) = current;
                    tracing::info!(target: "tollgate", "the certificate in {} is in force", self.settings.cert.display());
                }
                Err(wrong) => {
                    tracing::error!(target: "tollgate", "the last certificate stays in force: {wrong}")
                }
            }
        }
    }

    fn changed(&self) -> [Option<SystemTime>; 3] {
        let it = &self.settings;
        let files = [Some(&it.cert), Some(&it.key), it.client_ca.as_ref()];
        files.map(|file| file?.metadata().ok()?.modified().ok())
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

fn current(settings: &TlsSettings) -> Result<Current, Mistakes> {
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
    let validity = validity(&chain);
    // The clock of an authority may be ahead of ours: what is valid soon is taken.
    if let Some(Validity { not_after, .. }) = validity
        .as_ref()
        .filter(|it| it.not_after < ASN1Time::now())
    {
        let wrong = format!("the certificate has ended, at {not_after}; renew it");
        return Err(Mistakes::of(&settings.cert, wrong));
    }
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|why| Mistakes::of(&settings.cert, why))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Current {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        validity,
    })
}

/// What is to be said of a certificate at this time.
fn warning(validity: &Validity, now: i64) -> Option<String> {
    let (not_before, not_after) = (validity.not_before, validity.not_after);
    let (from, to) = (not_before.timestamp(), not_after.timestamp());
    let left = to - now;
    if left < 0 {
        Some(format!(
            "the certificate in force has ended, at {not_after}; renew it"
        ))
    } else if now < from {
        Some(format!(
            "the certificate is valid from {not_before}, and is in force already"
        ))
    } else {
        let days = left / DAY;
        // Some are made for an hour.
        (left < ((to - from) / 4).min(14 * DAY))
            .then(|| format!("the certificate ends in {days} days; renew it"))
    }
}

/// Whether the client's certificate has one of these names: of a host, or a URI as SPIFFE's.
fn is_named(connection: &ServerConnection, names: &[String]) -> bool {
    let has_name = || {
        let first = connection.peer_certificates()?.first()?;
        let (_, certificate) = X509Certificate::from_der(first).ok()?;
        let alternatives = certificate.subject_alternative_name().ok()??;
        let mut all = alternatives.value.general_names.iter();
        Some(all.any(|name| match name {
            GeneralName::DNSName(name) => names.iter().any(|it| it.eq_ignore_ascii_case(name)),
            GeneralName::URI(name) => names.iter().any(|it| it == name),
            _ => false,
        }))
    };
    has_name() == Some(true)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rcgen::{CertificateParams, KeyPair};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_certificate_of_later_does_not_take_the_place_of_one_that_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let [cert, key] = ["c.pem", "k.pem"].map(|name| folder.path().join(name));
        let settings = TlsSettings {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: None,
            san: Vec::new(),
        };
        let mut written = SystemTime::UNIX_EPOCH;
        let mut write = |begins: i64| {
            let pair = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new([]).expect("no names");
            let now = ASN1Time::now().timestamp() as u64;
            let at = |days: i64| {
                let at = Duration::from_secs(now.saturating_add_signed(days * DAY));
                (SystemTime::UNIX_EPOCH + at).into()
            };
            (params.not_before, params.not_after) = (at(begins), at(40));
            let certificate = params.self_signed(&pair).expect("it signs");
            fs::write(&cert, certificate.pem()).expect("it is written");
            fs::write(&key, pair.serialize_pem()).expect("it is written");
            written += INTERVAL;
            let file = File::options().append(true).open(&cert).expect("a file");
            file.set_modified(written).expect("it is ours");
        };
        write(-3);
        let tls = Tls::read(&settings).unwrap_or_else(|wrong| panic!("{wrong}"));
        let begun = || {
            let current = lock(&tls.current);
            let validity = current.validity.as_ref().expect("it is read");
            (ASN1Time::now().timestamp() - validity.not_before.timestamp()) / DAY
        };
        tokio::spawn(tls.clone().follow());
        for (begins, in_force) in [(10, 3), (-2, 2)] {
            sleep(INTERVAL * 2).await;
            write(begins);
            sleep(INTERVAL * 3).await;
            assert_eq!(begun(), in_force);
        }
    }

    #[test]
    fn a_certificate_is_spoken_of_before_it_begins_in_its_last_days_and_after_its_end() {
        let at = |day: i64| ASN1Time::from_timestamp(day * DAY).expect("a time");
        let (not_before, not_after) = (at(100), at(190));
        let validity = Validity {
            not_before,
            not_after,
        };
        for (day, says) in [
            (99, Some("is valid from")),
            (100, None),
            (175, None),
            (177, Some("ends in 13 days")),
            (191, Some("has ended")),
        ] {
            let said = warning(&validity, day * DAY);
            let is_said = says.map(|it| said.as_ref().is_some_and(|said| said.contains(it)));
            assert!(is_said.unwrap_or(said.is_none()), "{day}: {said:?}");
        }
    }
}
