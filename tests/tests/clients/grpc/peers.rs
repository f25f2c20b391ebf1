//! The peer's address from tonic's extensions.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tollgate::key::client_ip;
use tollgate_tests::{
    app::{layer, per_minute},
    grpc::GrpcServer,
    weather::{
        Mild, city,
        v1::{weather_client::WeatherClient, weather_server::WeatherServer},
    },
};
use tonic::{
    Code,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig},
};

use crate::grpc::serve;

fn per_address() -> tollgate::RequestRule {
    per_minute("per-ip", 1).by(client_ip())
}

fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

async fn one_call_passes_for_each_address(endpoint: &Endpoint) {
    let client = async |last| {
        let channel = endpoint
            .clone()
            .local_address(Some(from(last)))
            .connect()
            .await;
        WeatherClient::new(channel.expect("the server listens"))
    };
    for last in [1, 2] {
        client(last)
            .await
            .current(city("Oslo"))
            .await
            .expect("the first of its address");
    }
    // On another connection, with another port.
    let again = client(2).await.current(city("Oslo")).await;
    assert_eq!(
        again.expect_err("the second").code(),
        Code::ResourceExhausted
    );
}

#[tokio::test]
async fn each_address_has_a_budget() {
    let server = serve(layer([per_address()]), &Mild::default()).await;
    let endpoint =
        Endpoint::from_shared(format!("http://{}", server.address())).expect("an address");
    one_call_passes_for_each_address(&endpoint).await;
}

#[tokio::test]
async fn each_address_has_a_budget_under_tls() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let identity = Identity::from_pem(cert.pem(), signing_key.serialize_pem());
    let tls = ServerTlsConfig::new().identity(identity);
    let mut server = Server::builder()
        .tls_config(tls)
        .expect("a valid configuration")
        .layer(layer([per_address()]));
    let server = GrpcServer::start(server.add_service(WeatherServer::new(Mild::default()))).await;

    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(cert.pem()))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address()))
        .and_then(|endpoint| endpoint.tls_config(tls))
        .expect("an address");
    one_call_passes_for_each_address(&endpoint).await;
}
