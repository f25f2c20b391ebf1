//! Proxies that are not configured.

use http::{Request, request::Parts};
use tollgate::key::{ClientIp, PeerAddr, client_ip};
use tollgate_tests::events::Events;
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
    client.resolve(head).expect("there is a peer").to_string()
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
