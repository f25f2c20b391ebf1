//! Mistakes that rate limiters have made about who somebody is.

use tollgate::key::{KeyExtractor, NoKey, PeerAddr, client_ip};

use crate::support::{empty, from, key, resolved, with_lines};

#[test]
fn the_leftmost_forwarded_address_is_never_trusted() {
    let client = client_ip()
        .trusted_proxies(["10.0.0.0/8"])
        .x_forwarded_for();
    for lines in [&["6.6.6.6, 203.0.113.9"][..], &["6.6.6.6", "203.0.113.9"]] {
        let head = from("10.0.0.1", with_lines("x-forwarded-for", lines));
        assert_eq!(resolved(&client, &head), "203.0.113.9");
    }
}

#[test]
fn no_header_is_read_that_was_not_configured() {
    let mut head = from("192.0.2.1", empty());
    for name in [
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
        "cf-connecting-ip",
        "true-client-ip",
    ] {
        head.headers
            .insert(name, "6.6.6.6".parse().expect("a value"));
    }
    assert_eq!(resolved(&client_ip(), &head), "192.0.2.1");
}

#[test]
fn mapped_ipv4_clients_do_not_share_a_prefix() {
    let by = |peer| key(&client_ip(), &from(peer, empty())).expect("there is a peer");
    assert_ne!(by("::ffff:192.0.2.1"), by("::ffff:192.0.2.2"));
    assert_eq!(by("::ffff:192.0.2.1"), by("192.0.2.1"));
    assert_eq!(by("::ffff:c000:201"), by("192.0.2.1"));
}

#[test]
fn an_ipv6_host_cannot_leave_its_budget_by_changing_its_address() {
    let by = |peer| key(&client_ip(), &from(peer, empty())).expect("there is a peer");
    assert_eq!(
        by("2001:db8:1:2::1"),
        by("2001:db8:1:2:ffff:ffff:ffff:ffff")
    );
    assert_ne!(by("2001:db8:1:2::1"), by("2001:db8:1:3::1"));
    // Text that looks like IPv4 does not make an address one.
    assert_eq!(by("2001:db8:1:2::192.0.2.1"), by("2001:db8:1:2::192.0.2.2"));
}

#[test]
fn behind_a_trusted_proxy_clients_have_separate_keys() {
    let request = |client| from("10.0.0.1", with_lines("x-forwarded-for", &[client]));
    let (a, b) = (request("203.0.113.9"), request("203.0.113.10"));
    assert_eq!(key(&client_ip(), &a), key(&client_ip(), &b));
    let reported = client_ip().trusted_proxies(["10.0.0.1"]).x_forwarded_for();
    assert_ne!(key(&reported, &a), key(&reported, &b));
}

#[test]
fn behind_two_proxies_the_inner_one_is_not_the_client() {
    let reported = client_ip()
        .trusted_proxies(["10.0.0.0/8"])
        .x_forwarded_for();
    let request = |list| from("10.0.0.1", with_lines("x-forwarded-for", &[list]));
    assert_eq!(
        resolved(&reported, &request("203.0.113.9, 10.0.0.2")),
        "203.0.113.9"
    );
    assert_eq!(
        resolved(&reported, &request("203.0.113.10, 10.0.0.2")),
        "203.0.113.10"
    );
}

#[test]
fn a_missing_peer_is_misconfigured() {
    let Err(NoKey::Misconfigured(text)) = key(&client_ip(), &empty()) else {
        panic!("there is no peer")
    };
    assert!(
        text.contains("into_make_service_with_connect_info"),
        "{text}"
    );
    // It cannot be seen before a request comes.
    assert!(client_ip().validate().is_ok());
}

#[test]
fn any_server_can_set_the_peer() {
    let mut head = empty();
    head.extensions
        .insert(PeerAddr("[2001:db8::1]:443".parse().expect("an address")));
    assert_eq!(resolved(&client_ip(), &head), "2001:db8::1");
}
