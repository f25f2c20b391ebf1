//! `Forwarded`, RFC 7239.

use tollgate::key::{ClientIp, client_ip};

use crate::support::{from, resolved, with_lines};

const PEER: &str = "10.0.0.1";

fn trusted() -> ClientIp {
    client_ip().trusted_proxies(["10.0.0.0/8"]).forwarded()
}

fn forwarded(client: &ClientIp, lines: &[&str]) -> String {
    resolved(client, &from(PEER, with_lines("forwarded", lines)))
}

#[test]
fn the_for_parameter_is_the_address() {
    for (line, address) in [
        ("for=192.0.2.60", "192.0.2.60"),
        ("For=192.0.2.60", "192.0.2.60"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        (
            "proto=http; by=203.0.113.43 ;\tfor=192.0.2.60",
            "192.0.2.60",
        ),
        ("for=\"[2001:db8::1]:80\"", "2001:db8::1"),
        ("for=\"192.0.2.60:4711\"", "192.0.2.60"),
        ("for=\"192.0.2.60:_p.2-x_\"", "192.0.2.60"),
        ("for=\"[2001:db8::1]:_p\"", "2001:db8::1"),
        ("for=\"[::ffff:192.0.2.60]\"", "192.0.2.60"),
        ("for=192.0.2.60;ext=\"a,b;c\\\"d\"", "192.0.2.60"),
        (";;for=192.0.2.60;;", "192.0.2.60"),
        (
            "for=192.0.2.60, for=\"[2001:db8:cafe::17]:4711\"",
            "2001:db8:cafe::17",
        ),
        ("for=6.6.6.6, for=203.0.113.9, for=10.0.0.2", "203.0.113.9"),
        ("for=10.0.0.3,for=10.0.0.2", "10.0.0.3"),
    ] {
        assert_eq!(forwarded(&trusted(), &[line]), address, "{line}");
    }
}

#[test]
fn an_element_without_an_address_stops_the_walk() {
    for element in [
        "for=unknown",
        "for=_hidden",
        "for=\"2001:db8::1\"",
        "for=\"[fe80::1%eth0]\"",
        "for=\"\"",
        "for=\"192.0.2.60:\"",
        "for=\"192.0.2.60:_\"",
        "for=\"192.0.2.60:p\"",
        "for=\"192.0.2.60:_p+\"",
        "for=\"192.0.2.60:80:_p\"",
        "for=\"\\192.0.2.60\"",
        "proto=http",
        "",
    ] {
        let line = format!("for=203.0.113.9, {element}, for=10.0.0.2");
        assert_eq!(forwarded(&trusted(), &[&line]), "10.0.0.2", "{element}");
        let line = format!("for=203.0.113.9, {element}");
        assert_eq!(forwarded(&trusted(), &[&line]), PEER, "{element}");
    }
}

#[test]
fn a_malformed_line_falls_back_to_the_peer() {
    for line in [
        "for=\"192.0.2.60",
        "for=192.0.2.60\"",
        "for=192.0.2.60:80",
        "for=2001:db8::1",
        "for=",
        "for =192.0.2.60",
        "for=192.0.2.60 for=192.0.2.61",
        "for=192.0.2.60;for=192.0.2.61",
        "for=192.0.2.60;FOR=192.0.2.60",
        "for=\"192.0.2.60\"x",
        "for=\"192.0.2.60\\\"",
        "192.0.2.60",
        "for=192.0.2.60, 10.0.0.2",
    ] {
        assert_eq!(forwarded(&trusted(), &[line]), PEER, "{line}");
        let line = format!("{line}, for=10.0.0.2");
        assert_eq!(forwarded(&trusted(), &[&line]), PEER, "{line}");
    }
}

#[test]
fn a_malformed_line_on_the_way_falls_back_to_the_peer() {
    assert_eq!(forwarded(&trusted(), &["for=\"", "for=10.0.0.2"]), PEER);
    let hops = client_ip().forwarded().hops(3);
    assert_eq!(
        forwarded(&hops, &["for=6.6.6.6", "for=\"", "for=10.0.0.2"]),
        PEER
    );
}

#[test]
fn hops_count_elements_over_all_lines() {
    let lines = ["for=6.6.6.6", "for=203.0.113.9, for=unknown", "proto=http"];
    assert_eq!(
        forwarded(&client_ip().forwarded().hops(3), &lines),
        "203.0.113.9"
    );
    assert_eq!(forwarded(&client_ip().forwarded().hops(2), &lines), PEER);
    assert_eq!(forwarded(&client_ip().forwarded().hops(5), &lines), PEER);
}

#[test]
fn at_most_64_elements_are_read() {
    let line = format!("for=203.0.113.9{}", ",for=10.0.0.2".repeat(63));
    assert_eq!(forwarded(&trusted(), &[&line]), "203.0.113.9");
    let line = format!("for=203.0.113.9,for=10.0.0.3{}", ",for=10.0.0.2".repeat(63));
    assert_eq!(forwarded(&trusted(), &[&line]), "10.0.0.3");
    let line = format!("for=6.6.6.6{}", ",for=10.0.0.2".repeat(400));
    assert_eq!(forwarded(&trusted(), &[&line]), "10.0.0.2");
}

#[test]
fn at_most_8_kib_are_read() {
    let long = format!("for=203.0.113.9;a={}", "x".repeat(8192));
    assert_eq!(forwarded(&trusted(), &[&long]), PEER);
    assert_eq!(
        forwarded(&trusted(), &[&long, "for=203.0.113.9"]),
        "203.0.113.9"
    );
    let half = format!("for=10.0.0.2;a={}", "x".repeat(5000));
    assert_eq!(
        forwarded(&trusted(), &["for=203.0.113.9", &half]),
        "203.0.113.9"
    );
    assert_eq!(
        forwarded(&trusted(), &["for=203.0.113.9", &half, &half]),
        PEER
    );
}
