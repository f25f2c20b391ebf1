//! What is refused when a rule is built, and what the refusal says.

use std::sync::Arc;

use ipnet::IpNet;
use tollgate::key::{KeyExtractor, client_ip, constant, cookie, header, query};

use crate::support::{from, resolved, with_lines};

fn refused(extractor: &impl KeyExtractor) -> String {
    extractor.validate().expect_err("the settings are wrong")
}

#[test]
fn a_header_without_trusted_proxies_is_rejected() {
    for client in [client_ip().x_forwarded_for(), client_ip().forwarded()] {
        let text = refused(&client);
        assert!(
            text.contains("trusted_proxies(..)") && text.contains("hops(..)"),
            "{text}"
        );
    }
    for client in [
        client_ip().single_header("x-real-ip"),
        client_ip().single_header("x-real-ip").hops(1),
    ] {
        assert!(refused(&client).contains("add trusted_proxies(..)"));
    }
    let none: [&str; 0] = [];
    assert!(
        refused(&client_ip().x_forwarded_for().trusted_proxies(none))
            .contains("trusted_proxies(..)")
    );
}

#[test]
fn one_header_and_either_proxies_or_hops_are_wanted() {
    let xff = || client_ip().x_forwarded_for();
    for (wrong, word) in [
        (
            client_ip().trusted_proxies(["10.0.0.0/8"]),
            "x_forwarded_for()",
        ),
        (client_ip().hops(1), "x_forwarded_for()"),
        (xff().hops(1).forwarded(), "one header"),
        (xff().hops(1).trusted_proxies(["::1"]), "not both"),
        (xff().hops(2).trusted_proxies(["0.0.0.0/0"]), "not both"),
        (xff().trusted_proxies(["::1"]).hops(1), "not both"),
    ] {
        assert!(refused(&wrong).contains(word), "{wrong:?}");
    }
}

#[test]
fn an_invalid_network_is_repeated_in_the_error() {
    for wrong in [
        "10.0.0.0/33",
        "10.0.0",
        "proxy.local",
        "",
        "::1/129",
        "10.0.0.0/8 ",
    ] {
        let text = refused(
            &client_ip()
                .x_forwarded_for()
                .trusted_proxies(["::1", wrong]),
        );
        assert!(
            text.contains(&format!("{wrong:?}")) && text.contains("\"10.0.0.0/8\""),
            "{text}"
        );
    }
}

#[test]
fn proxies_are_texts_networks_or_addresses() {
    let network: IpNet = "10.0.0.0/8".parse().expect("a network");
    let address: std::net::IpAddr = "10.0.0.1".parse().expect("an address");
    let head = from("10.0.0.1", with_lines("x-forwarded-for", &["203.0.113.9"]));
    for client in [
        client_ip().trusted_proxies([network]),
        client_ip().trusted_proxies([address]),
        client_ip().trusted_proxies(vec![String::from("10.0.0.1")]),
        client_ip()
            .trusted_proxies(["::1"])
            .trusted_proxies(["10.0.0.1/32"]),
    ] {
        assert_eq!(resolved(&client.x_forwarded_for(), &head), "203.0.113.9");
    }
}

#[test]
fn networks_that_cover_all_addresses_are_rejected() {
    for everybody in [
        &["0.0.0.0/0"][..],
        &["::/0"],
        &["::ffff:0.0.0.0/96"],
        &["10.0.0.0/8", "1.2.3.4/0"],
        // Two halves are a whole.
        &["0.0.0.0/1", "::1", "128.0.0.0/1"],
        &["::/1", "8000::/1"],
    ] {
        for client in [
            client_ip().x_forwarded_for(),
            client_ip().forwarded(),
            client_ip().single_header("x-real-ip"),
        ] {
            let text = refused(&client.trusted_proxies(everybody));
            assert!(
                text.contains("/0") && text.contains("choose its own address"),
                "{text}"
            );
        }
    }
    let half = client_ip().x_forwarded_for();
    assert!(
        half.trusted_proxies(["0.0.0.0/1", "::/1"])
            .validate()
            .is_ok()
    );
}

#[test]
fn a_cidr_with_host_bits_is_rejected_with_the_right_network() {
    for (wrong, network, address) in [
        ("10.0.0.5/8", "10.0.0.0/8", "10.0.0.5"),
        ("192.168.1.1/24", "192.168.1.0/24", "192.168.1.1"),
        ("2001:db8::1/32", "2001:db8::/32", "2001:db8::1"),
        ("::ffff:10.0.0.5/104", "10.0.0.0/8", "10.0.0.5"),
    ] {
        let text = refused(&client_ip().x_forwarded_for().trusted_proxies([wrong]));
        for word in [wrong, network, address] {
            assert!(text.contains(&format!("\"{word}\"")), "{text} lacks {word}");
        }
    }
    for right in ["10.0.0.0/8", "10.0.0.5/32", "10.0.0.5", "::1/128", "::1"] {
        let client = client_ip().x_forwarded_for().trusted_proxies([right]);
        assert!(client.validate().is_ok(), "{right}");
    }
}

#[test]
fn hops_are_1_to_64() {
    assert!(refused(&client_ip().x_forwarded_for().hops(0)).contains("hops(0)"));
    assert!(refused(&client_ip().x_forwarded_for().hops(65)).contains("hops(65)"));
    assert!(client_ip().x_forwarded_for().hops(64).validate().is_ok());
}

#[test]
fn prefixes_are_within_the_address() {
    assert!(refused(&client_ip().ipv4_prefix(0)).contains("not 0"));
    assert!(refused(&client_ip().ipv4_prefix(33)).contains("not 33"));
    assert!(refused(&client_ip().ipv6_prefix(0)).contains("not 0"));
    assert!(refused(&client_ip().ipv6_prefix(129)).contains("not 129"));
    assert!(
        client_ip()
            .ipv4_prefix(1)
            .ipv6_prefix(128)
            .validate()
            .is_ok()
    );
}

#[test]
fn invalid_names_are_rejected_and_repeated() {
    for text in [
        refused(&header("x api key")),
        refused(
            &client_ip()
                .trusted_proxies(["::1"])
                .single_header("x api key"),
        ),
        refused(&cookie("x api key")),
    ] {
        assert!(text.contains("\"x api key\""), "{text}");
    }
    assert!(header("").validate().is_err());
    assert!(cookie("").validate().is_err());
    assert!(cookie("a=b").validate().is_err());
    assert!(query("").validate().is_err());
}

#[test]
fn a_mistake_is_found_wherever_the_extractor_is() {
    let wrong = || header("x api key");
    assert!((constant("a"), wrong()).validate().is_err());
    assert!(
        (constant("a"), (constant("b"), wrong()))
            .validate()
            .is_err()
    );
    assert!(wrong().or(constant("a")).validate().is_err());
    assert!(constant("a").or(wrong()).validate().is_err());
    let shared: Arc<dyn KeyExtractor> = Arc::new(wrong());
    assert!(shared.validate().is_err());
    assert!(
        (
            header("x-api-key"),
            cookie("session"),
            query("q"),
            client_ip()
        )
            .validate()
            .is_ok()
    );
}
