//! Encrypted connections.

use std::sync::Arc;

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, crypto::ring::default_provider, pki_types::CertificateDer,
};
use tollgate_test_servers::{
    certificate::Certificate,
    redis_server::{RedisServer, free_port},
};

use crate::{
    connection::{
        options::{NodeEvent, NodeOptions},
        stream::Security,
    },
    internal_tests::connection::{
        bench::{Bench, answers, eventually},
        cluster_bench::{ClusterBench, keys},
    },
};

struct Encrypted {
    server: RedisServer,
    port: u16,
    certificate: CertificateDer<'static>,
    _files: Certificate,
}

impl Encrypted {
    /// A server with a certificate for 127.0.0.1.
    async fn start() -> Self {
        Self::named(&["127.0.0.1"], &[]).await
    }

    /// A cluster of one server with a certificate for these names and numbers.
    async fn cluster(names: &[&str], args: &[&str]) -> Self {
        let bus_port = free_port().to_string();
        // Without `--tls-cluster` servers announce the port that is not encrypted.
        let usual = "--cluster-enabled yes --tls-cluster yes --cluster-port";
        let usual = usual.split(' ').chain([&*bus_port]);
        let args: Vec<_> = usual.chain(args.iter().copied()).collect();
        let encrypted = Self::named(names, &args).await;
        let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
        assert_eq!(encrypted.server.command(&all).await, "+OK\r\n");
        encrypted
    }

    /// A server with a certificate for these names and numbers.
    async fn named(names: &[&str], args: &[&str]) -> Self {
        let certificate = Certificate::of(names);
        let port = free_port();
        let own = certificate.args(port);
        let all: Vec<_> = own.split(' ').chain(args.iter().copied()).collect();
        Self {
            server: RedisServer::start(&all).await,
            port,
            certificate: CertificateDer::from(certificate.der.clone()),
            _files: certificate,
        }
    }

    fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}", self.port)
    }

    fn trusting(&self, certificates: &[&CertificateDer<'static>]) -> Security {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add((*certificate).clone()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }
}

#[tokio::test]
async fn calls_travel_encrypted_and_a_restart_is_survived() {
    let mut encrypted = Encrypted::start().await;
    let security = encrypted.trusting(&[&encrypted.certificate]);
    let bench = Bench::start_with(&encrypted.url("127.0.0.1"), |options| {
        options.connect_timeout = Some(std::time::Duration::from_secs(5));
        options.security = Some(security);
    });
    bench.recovers("k").await;
    bench.is_well().await;
    let calls = bench.call("many", 500);
    let answers = answers(calls).await;
    assert!(answers.iter().any(Result::is_ok));
    encrypted.server.restart().await;
    bench.is_well().await;
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_or_for_another_name_is_refused() {
    let encrypted = Encrypted::start().await;
    let other = CertificateDer::from(Certificate::of(&["127.0.0.1"]).der);
    for (host, trusted) in [("127.0.0.1", &other), ("localhost", &encrypted.certificate)] {
        let security = encrypted.trusting(&[trusted]);
        let bench = Bench::start_with(&encrypted.url(host), |options| {
            options.connect_timeout = Some(std::time::Duration::from_secs(5));
            options.security = Some(security);
        });
        bench
            .happens("the certificate is refused", |event| {
                matches!(event, NodeEvent::NotConnected(_, why) if why.contains("TLS: invalid peer certificate"))
            })
            .await;
    }
}

#[tokio::test]
async fn a_cluster_is_encrypted_and_logged_in_to_on_every_connection() {
    // Alone, it does not know its own address, and gives none.
    let encrypted = Encrypted::cluster(&["127.0.0.1"], &[]).await;
    let user = ["ACL", "SETUSER", "rl", "on", ">pass", "~*", "+@all"];
    assert_eq!(encrypted.server.command(&user).await, "+OK\r\n");
    let url = format!("rediss-cluster://rl:pass@127.0.0.1:{}", encrypted.port);
    let security = encrypted.trusting(&[&encrypted.certificate]);
    let bench = ClusterBench::start_with(&url, |options| {
        options.connect_timeout = Some(std::time::Duration::from_secs(5));
        options.security = Some(security);
    });
    bench.is_well(&keys()).await;
    assert_eq!(bench.places(), [format!("127.0.0.1:{}", encrypted.port)]);
    let clients = encrypted.server.command(&["CLIENT", "LIST"]).await;
    assert!(clients.contains("user=rl"), "{clients}");
    let address = url.parse().unwrap();
    let error = NodeOptions::default().check(&address).unwrap_err();
    assert!(error.to_string().contains("rustls"), "{error}");
}

/// A cluster of one server, which announces a number at which it is not reached, and has a certificate for `name`.
async fn behind_a_nat(name: &str) -> (Encrypted, ClusterBench) {
    let announces = ["--cluster-announce-ip", ANNOUNCED];
    let encrypted = Encrypted::cluster(&["localhost", name], &announces).await;
    let security = encrypted.trusting(&[&encrypted.certificate]);
    // The server that the address names has a certificate for that name in any case.
    let url = format!("rediss-cluster://localhost:{}", encrypted.port);
    let bench = ClusterBench::start_with(&url, |options| {
        options.connect_timeout = Some(std::time::Duration::from_secs(5));
        options.security = Some(security);
        options.address_map = Some(Arc::new(|host, port| {
            (host == ANNOUNCED).then(|| ("127.0.0.1".to_owned(), port))
        }));
    });
    (encrypted, bench)
}

const ANNOUNCED: &str = "10.1.0.11";

#[tokio::test]
async fn a_certificate_has_to_be_for_the_host_that_the_address_map_gives() {
    let (encrypted, bench) = behind_a_nat("127.0.0.1").await;
    bench.is_well(&keys()).await;
    assert_eq!(bench.places(), [format!("127.0.0.1:{}", encrypted.port)]);
}

#[tokio::test]
async fn a_certificate_for_the_host_that_a_server_announces_is_not_enough() {
    let (_encrypted, bench) = behind_a_nat(ANNOUNCED).await;
    let is_refused = |event: &NodeEvent| matches!(event, NodeEvent::NotConnected(_, why) if why.contains("TLS: invalid peer certificate"));
    eventually("the certificate is refused", || async {
        (bench.count_events(is_refused) > 0).then_some(())
    })
    .await;
}
