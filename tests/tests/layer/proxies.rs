//! Proxies that are not configured.

use http::{Request, request::Parts};
use tollgate::key::{ClientIp, PeerAddr, client_ip};
use tollgate_tests::{
    app::{behind, layer, per_minute},
    events::Events,
};
use tracing::Level;

fn from(peer: &str, field: Option<&'static str>) -> Parts {
    let peer = format!("{peer}:40000").parse().expect("an address");
    let mut request = Request::get("/").extension(PeerAddr(peer));
    if let Some(name) = field {
        request = request.header(name, "203.0.113.9");
    }
    request.body(()).expect("a request").into_parts().0
}

fn resolved(client: &ClientIp, head: &Parts) -> String {
    client.address(head).expect("there is a peer").to_string()
}

fn behind_ten() -> ClientIp {
    client_ip().trusted_proxies(["10.0.0.0/8"])
}

#[test]
fn an_untrusted_peer_with_the_header_is_reported_once() {
    for (client, field) in [
        (behind_ten().x_forwarded_for(), "x-forwarded-for"),
        (behind_ten().forwarded(), "forwarded"),
        (behind_ten().single_header("x-real-ip"), "x-real-ip"),
    ] {
        let events = Events::listen();
        // Clones count together: a layer has one of them for each service.
        for client in [client.clone(), client] {
            for peer in ["172.17.0.1", "172.17.0.2"] {
                assert_eq!(resolved(&client, &from(peer, Some(field))), peer);
            }
        }
        let warnings = events.at(Level::WARN);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let text = format!("172.17.0.1 sends {field} and is not trusted");
        assert!(warnings[0].contains(&text), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_proxy_on_a_unix_socket_says_who_the_client_is() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let socket = tokio::net::UnixListener::bind(&path).expect("a socket");
    let client = client_ip().trusted_proxies(["unix:"]).x_forwarded_for();
    let app = behind(layer([per_minute("one", 1).by(client)]));
    let served = tokio::spawn(axum::serve(socket, app).into_future());
    // As nginx does.
    let ask = async |client: &str| {
        let mut connection = tokio::net::UnixStream::connect(&path)
            .await
            .expect("it listens");
        let request = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {client}\r\nconnection: close\r\n\r\n"
        );
        connection
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
        let mut answer = String::new();
        connection
            .read_to_string(&mut answer)
            .await
            .expect("it answers");
        answer[9..12].to_owned()
    };
    assert_eq!(ask("6.6.6.6, 203.0.113.9").await, "200");
    assert_eq!(ask("7.7.7.7, 203.0.113.9").await, "429");
    assert_eq!(ask("203.0.113.10").await, "200");
    served.abort();
}

#[test]
fn trusted_peers_and_peers_without_the_header_are_not_reported() {
    let events = Events::listen();
    let client = behind_ten().x_forwarded_for();
    resolved(&client, &from("172.17.0.1", None));
    resolved(&client, &from("172.17.0.1", Some("x-real-ip")));
    resolved(&client, &from("10.0.0.1", Some("x-forwarded-for")));
    let hops = client_ip().hops(1).x_forwarded_for();
    resolved(&hops, &from("172.17.0.1", Some("x-forwarded-for")));
    resolved(&client_ip(), &from("172.17.0.1", Some("x-forwarded-for")));
    events.none();
}
